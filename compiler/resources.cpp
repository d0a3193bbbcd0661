#include "compiler/resources.hpp"

#include <algorithm>

#include "compiler/arithmetic.hpp"

namespace splitkv {
namespace {

// Elements of a head of `dim` that one of `lanes` lanes holds, in whole vectors.
int slice_of(int dim, int vector, int lanes) {
  return ceil_div(ceil_div(dim, vector), lanes) * vector;
}

// Elements of `type` that one load brings: what the alignment allows, as far as it divides a row.
int vector_of(const Problem& problem, DType type, int dim) {
  int vector = std::clamp(problem.align / size_bytes(type), 1, 8);
  while (vector > 1 && dim % vector != 0) vector /= 2;
  return vector;
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
  // fp64 sums and scores bring temporaries of two registers each.
  return row_state + loads + scores + (all_fp32(problem) ? 72 : 40);
}

// Registers of a thread of the mma family for all its panels. q stays in registers only while it is
// small, by the rule of templates/split_mma.cuh.
struct MmaValues {
  int panels = 0;
  int accumulators = 0;
  int q = 0;
};

MmaValues mma_values(const Problem& problem, const Schedule& schedule) {
  MmaValues values;
  values.panels = panels_of_a_warp(schedule);
  values.accumulators = values.panels * round_up(problem.dim_v, 16) / 4;
  // Operands of 16 columns, of two registers.
  const int q_operands = values.panels * ceil_div(problem.dim_qk, 16);
  values.q = q_operands <= 16 ? 2 * q_operands : 0;
  return values;
}

// Accumulators and q of every panel, and about sixty for the fragments of K and V, statistics,
// addresses and loop control.
int estimate_mma_registers(const Problem& problem, const Schedule& schedule) {
  const MmaValues values = mma_values(problem, schedule);
  return values.accumulators + values.q + 60;
}

// What NVRTC 13 takes for an mma kernel: fitted to some 770 schedules compiled for sm_90a (dims 64
// to 576, up to 8 panels, every partition and reduce), with a standard deviation of 9 registers;
// sm_80 and sm_89 take as many, sm_100 and newer three tenths more.
int compiled_mma_registers(const Problem& problem, const Schedule& schedule, const Target& target) {
  const MmaValues values = mma_values(problem, schedule);
  double registers = 54 + 1.32 * values.accumulators + 1.25 * values.q + 3.0 * values.panels;
  if (is_paged(problem)) registers += 5;
  if (size_bytes(problem.k_dtype) == 1) registers += 3;
  if (schedule.partition == Partition::flat) registers += 21;  // its place among the rows
  if (schedule.reduce == Reduce::last_block) registers += 6;
  if (schedule.reduce == Reduce::cluster) registers += 3;
  if (compute_capability(target) >= 100) registers *= 1.3;
  return int(registers);
}

// Accumulators of half of V's columns, a tile's scores, and about sixty as above.
int estimate_wgmma_registers(const Problem& problem, const Schedule& schedule) {
  const int of_a_column = kWgmmaTile * kWgmmaColumn / 128;
  return (wgmma_shape(problem, schedule).half_v + 1) * of_a_column + 60;
}

// What NVRTC 13 takes for a wgmma kernel: seen of a dozen, within some 10 registers.
int compiled_wgmma_registers(const Problem& problem, const Schedule& schedule) {
  const int accumulators =
      wgmma_shape(problem, schedule).half_v * (kWgmmaTile * kWgmmaColumn / 128);
  return accumulators + 72 + (schedule.partition == Partition::flat ? 40 : 0);
}

// Shared memory of a block's loop, and of what lies behind all else while it runs.
struct LoopMemory {
  int64_t loop_bytes = 0;
  int64_t barrier_bytes = 0;
};

LoopMemory loop_memory(const Problem& problem, const Schedule& schedule) {
  if (schedule.family == Family::mma) {
    const MmaShape shape = mma_shape(problem, schedule);
    return {shape.loop_bytes, shape.barrier_bytes};
  }
  if (schedule.family == Family::wgmma) {
    const WgmmaShape shape = wgmma_shape(problem, schedule);
    return {shape.loop_bytes, shape.barrier_bytes};
  }
  return {round_up(int64_t(4) * schedule.rows * problem.dim_qk, 16), 0};
}

// Blocks an SM holds at once, by each of its four limits.
int count_blocks_per_sm(const Resources& needs, const Target& target) {
  // The register file is handed out in units of 256 registers a warp, that is 8 a thread; the
  // system keeps 1 KiB of shared memory for every resident block.
  const int block_registers = round_up(needs.compiled_registers, 8) * needs.threads_per_block;
  const int64_t block_smem = needs.smem_bytes + 1024;
  const int64_t fit = std::min({int64_t(target.max_blocks_per_sm),
                                int64_t(target.max_threads_per_sm / needs.threads_per_block),
                                int64_t(target.registers_per_sm / block_registers),
                                target.smem_per_sm_bytes / block_smem});
  return int(fit);
}

}  // namespace

LaneShape lane_shape(const Problem& problem) {
  // Eight elements a lane: one 16-byte load of a 16-bit type, two of fp32. From 256 elements on all
  // 32 lanes are in use and slices grow.
  const int widest = std::max(problem.dim_qk, problem.dim_v);
  LaneShape shape;
  shape.lanes = 1;
  while (shape.lanes < 32 && shape.lanes * 8 < widest) shape.lanes *= 2;
  shape.vector_k = vector_of(problem, problem.k_dtype, problem.dim_qk);
  shape.vector_v = vector_of(problem, problem.v_dtype, problem.dim_v);
  shape.slice_qk = slice_of(problem.dim_qk, shape.vector_k, shape.lanes);
  shape.slice_v = slice_of(problem.dim_v, shape.vector_v, shape.lanes);
  return shape;
}

int64_t cluster_join_bytes(const Problem& problem, const Schedule& schedule) {
  if (schedule.reduce != Reduce::cluster) return 0;
  const int64_t width = problem.dim_v % 4 == 0 ? 4 : 2;  // floats of a vector
  const int64_t slice = ceil_div(schedule.rows * problem.dim_v / width, int64_t(schedule.cluster));
  const int64_t statistics = exchanged_merge(problem, schedule) == Merge::lse ? 1 : 2;
  return 4 * schedule.cluster * (width * slice + statistics * schedule.rows);
}

// The streams of a block join through shared memory: m, l and the accumulators of every row of
// every stream, in fp32, and 16 bytes in which one thread tells the block what it learned. Before
// that the query rows lie there, and what the mma and wgmma families stage.
int64_t split_smem_bytes(const Problem& problem, const Schedule& schedule) {
  if (schedule.family == Family::vector) return 0;
  const int64_t pitch = round_up(problem.dim_v, 16) + 4;
  const int64_t rows = int64_t(schedule.rows) * streams(schedule);
  const int64_t merge_bytes = 4 * rows * pitch + round_up(8 * rows, 16) + 16;
  const LoopMemory loop = loop_memory(problem, schedule);
  const int64_t own_bytes = std::max(loop.loop_bytes, merge_bytes);
  const int64_t join_bytes = cluster_join_bytes(problem, schedule);
  if (loop.barrier_bytes == 0) return own_bytes + join_bytes;
  return own_bytes + round_up(join_bytes, int64_t(8)) + loop.barrier_bytes;
}

Resources resources_of(const Problem& problem, const Schedule& schedule, const Target& target) {
  Resources needs;
  if (schedule.family == Family::vector) return needs;
  needs.threads_per_block = 32 * schedule.warps;
  needs.smem_bytes = split_smem_bytes(problem, schedule);
  // The emitted kernel's launch bounds make the compiler fit a block.
  const int of_a_block = target.registers_per_sm / needs.threads_per_block / 8 * 8;
  if (schedule.family == Family::wgmma) {
    needs.registers_per_thread = estimate_wgmma_registers(problem, schedule);
    needs.compiled_registers =
        std::min({compiled_wgmma_registers(problem, schedule), of_a_block, kMaxRegistersPerThread});
  } else if (schedule.family == Family::mma) {
    needs.registers_per_thread = estimate_mma_registers(problem, schedule);
    needs.compiled_registers = std::min(
        {compiled_mma_registers(problem, schedule, target), of_a_block, kMaxRegistersPerThread});
  } else {
    needs.registers_per_thread = estimate_registers(problem, schedule);
    needs.compiled_registers = needs.registers_per_thread;
  }
  needs.blocks_per_sm = count_blocks_per_sm(needs, target);
  return needs;
}

int64_t partial_row_bytes(const Problem& problem, const Schedule& schedule) {
  const int statistics = exchanged_merge(problem, schedule) == Merge::lse ? 1 : 2;
  return int64_t(4) * statistics * schedule.cluster +
         int64_t(problem.dim_v) * size_bytes(schedule.partial_dtype);
}

int64_t kv_bytes(const Problem& problem, int64_t total_tokens) {
  const auto row_bytes = [](int dim, DType type, KvScale scale) {
    return int64_t(dim) * size_bytes(type) + (is_scale_of_key(scale) ? 4 : 0);
  };
  int64_t token_head = row_bytes(problem.dim_qk, problem.k_dtype, problem.k_scale);
  if (!problem.v_in_k) token_head += row_bytes(problem.dim_v, problem.v_dtype, problem.v_scale);
  return total_tokens * problem.kv_heads * token_head;
}

}  // namespace splitkv
