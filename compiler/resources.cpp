#include "compiler/resources.hpp"

#include <algorithm>

namespace splitkv {
namespace {

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// Elements of a head of `dim` that one of `lanes` lanes holds, in whole vectors.
int slice_of(int dim, int vector, int lanes) {
  const int vectors = (dim + vector - 1) / vector;
  return (vectors + lanes - 1) / lanes * vector;
}

bool all_fp32(const Problem& problem) {
  return problem.q_dtype == DType::fp32 && problem.k_dtype == DType::fp32 &&
         problem.v_dtype == DType::fp32 && problem.out_dtype == DType::fp32;
}

// Live values of the inner loop: q and the accumulators of every row, the K and V vectors in
// flight, the scores of the keys in flight, and about forty for addresses, statistics and loop
// control.
int estimate_registers(const Problem& problem, const Schedule& schedule) {
  const LaneShape shape = lane_shape(problem);
  const int row_state = schedule.rows * (shape.slice_qk + shape.slice_v);
  // A load narrower than 4 bytes still fills a register.
  const auto registers_of = [](int slice, int vector, DType type) {
    return slice / vector * std::max(1, vector * size_bytes(type) / 4);
  };
  const int loads =
      schedule.unroll * (registers_of(shape.slice_qk, shape.vector_k, problem.k_dtype) +
                         registers_of(shape.slice_v, shape.vector_v, problem.v_dtype));
  // Scores are fp64 where everything is fp32 (templates/score_math.cuh).
  const int score_registers = all_fp32(problem) ? 3 : 1;
  const int scores = schedule.unroll * schedule.rows * score_registers;
  return row_state + loads + scores + 40;
}

// Blocks an SM holds at once, by each of its four limits.
int count_blocks_per_sm(const Resources& needs, const Target& target) {
  // The register file is handed out in units of 256 registers a warp, that is 8 a thread; the
  // system keeps 1 KiB of shared memory for every resident block.
  const int block_registers = round_up(needs.registers_per_thread, 8) * needs.threads_per_block;
  const int64_t block_smem = needs.smem_bytes + 1024;
  const int64_t fit = std::min({int64_t(target.max_blocks_per_sm),
                                int64_t(target.max_threads_per_sm / needs.threads_per_block),
                                int64_t(target.registers_per_sm / block_registers),
                                target.smem_per_sm_bytes / block_smem});
  return int(fit);
}

}  // namespace

LaneShape lane_shape(const Problem& problem) {
  // Eight elements a lane: one 16-byte load of a 16-bit type, two of fp32. 32 lanes x 8 = 256
  // covers the largest head, and as every vector length divides 8 no slice is longer than 8.
  const int widest = std::max(problem.dim_qk, problem.dim_v);
  LaneShape shape;
  shape.lanes = 1;
  while (shape.lanes < 32 && shape.lanes * 8 < widest) shape.lanes *= 2;
  shape.vector_k = problem.align / size_bytes(problem.k_dtype);
  shape.vector_v = problem.align / size_bytes(problem.v_dtype);
  shape.slice_qk = slice_of(problem.dim_qk, shape.vector_k, shape.lanes);
  shape.slice_v = slice_of(problem.dim_v, shape.vector_v, shape.lanes);
  return shape;
}

Resources resources_of(const Problem& problem, const Schedule& schedule, const Target& target) {
  Resources needs;
  if (schedule.family == Family::vector) return needs;
  needs.threads_per_block = 32 * schedule.warps;
  needs.registers_per_thread = estimate_registers(problem, schedule);
  // The warps of a block join through shared memory: m, l and the accumulators of every row of
  // every warp, in fp32, and 16 bytes in which one thread tells the block what it learned. Before
  // that the query rows lie there.
  const int64_t row_floats =
      std::max<int64_t>(schedule.warps * (problem.dim_v + 2), problem.dim_qk);
  needs.smem_bytes = int64_t(4) * schedule.rows * row_floats + 16;
  needs.blocks_per_sm = count_blocks_per_sm(needs, target);
  return needs;
}

int64_t partial_row_bytes(const Problem& problem, const Schedule& schedule) {
  const int statistics = exchanged_merge(problem, schedule) == Merge::lse ? 1 : 2;
  return int64_t(4) * (problem.dim_v + statistics);
}

int64_t kv_bytes(const Problem& problem, int64_t total_tokens) {
  const int64_t token_head = int64_t(problem.dim_qk) * size_bytes(problem.k_dtype) +
                             int64_t(problem.dim_v) * size_bytes(problem.v_dtype);
  return total_tokens * problem.kv_heads * token_head;
}

}  // namespace splitkv
