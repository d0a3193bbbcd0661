#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"

namespace splitkv {
namespace {

constexpr int64_t kSector = 32;         // bytes
constexpr int64_t kSwizzleUnit = 1024;  // bytes: where the copy engine's swizzles begin anew

// Bytes from one row to the next in shared memory: whole sectors; which chunk lies where in a row
// keeps eight rows at one column in eight different groups of banks.
int64_t pitch_of(int64_t row_bytes) { return round_up(row_bytes, kSector); }

// Columns are as wide as the copy engine's widest swizzle that divides the row.
int column_of(int64_t pitch) {
  if (pitch % 128 == 0) return 128;
  return pitch % 64 == 0 ? 64 : 32;
}

// A row of 16-bit elements, padded to whole operands.
int64_t pitch_of_16_bits(int dim) { return pitch_of(round_up(dim, 16) * 2); }

// A staged row of K or V: 8-bit elements lie as they are in memory.
int64_t staged_pitch(DType type, int dim) {
  return size_bytes(type) == 1 ? pitch_of(dim) : pitch_of_16_bits(dim);
}

// Bytes of the copies that bring a row: what divides both its length and its place.
int copy_bytes(const Problem& problem, DType type, int dim) {
  int bytes = std::min(16, problem.align);
  while (bytes > 1 && dim * size_bytes(type) % bytes != 0) bytes /= 2;
  return bytes;
}

}  // namespace

int panels_of_a_warp(const Schedule& schedule) {
  return ceil_div(schedule.rows, 8 * schedule.row_warps);
}

MmaShape mma_shape(const Problem& problem, const Schedule& schedule) {
  MmaShape shape;
  shape.panels = panels_of_a_warp(schedule);
  shape.copy_k = copy_bytes(problem, problem.k_dtype, problem.dim_qk);
  shape.copy_v = copy_bytes(problem, problem.v_dtype, problem.dim_v);
  shape.pitch_q = pitch_of_16_bits(problem.dim_qk);
  shape.pitch_k = staged_pitch(problem.k_dtype, problem.dim_qk);
  shape.pitch_v = problem.v_in_k ? 0 : staged_pitch(problem.v_dtype, problem.dim_v);
  int widest_8_bit = 0;
  if (size_bytes(problem.k_dtype) == 1) widest_8_bit = problem.dim_qk;
  if (size_bytes(problem.v_dtype) == 1) widest_8_bit = std::max(widest_8_bit, problem.dim_v);
  shape.work_pitch = widest_8_bit == 0 ? 0 : pitch_of_16_bits(widest_8_bit);
  const bool scales = is_scale_of_key(problem.k_scale) || is_scale_of_key(problem.v_scale);
  shape.scale_bytes = scales ? 2 * kMmaStep * 4 : 0;
  shape.step_bytes = kMmaStep * (shape.pitch_k + shape.pitch_v) + shape.scale_bytes;
  shape.work_bytes = kMmaStep * shape.work_pitch;
  shape.column_k = column_of(shape.pitch_k);
  shape.column_v = problem.v_in_k ? 0 : column_of(shape.pitch_v);
  shape.q_bytes = int64_t(8) * shape.panels * schedule.row_warps * shape.pitch_q;
  if (schedule.loads == Loads::tensor) {
    shape.q_bytes = round_up(shape.q_bytes, kSwizzleUnit);
    shape.barrier_bytes = int64_t(8) * streams(schedule) * schedule.stages;
  }
  const int64_t stream_bytes = schedule.stages * shape.step_bytes + shape.work_bytes;
  shape.loop_bytes = shape.q_bytes + streams(schedule) * stream_bytes;
  return shape;
}

int most_mma_rows(const Problem& problem) {
  const int64_t columns = round_up(problem.dim_v, 16);
  return int(std::min<int64_t>(kMaxMmaRows, kMmaAccumulatorColumns / columns * 8));
}

}  // namespace splitkv
