#include <bit>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"

namespace splitkv {
namespace {

constexpr int64_t kColumnBytes = int64_t(kWgmmaTile) * kWgmmaColumn * 2;  // of 64 rows

// A group's accumulators are a power of two of columns; where two groups hold more than there are,
// both hold some.
int half_of(int columns) { return int(std::bit_ceil(unsigned(ceil_div(columns, 2)))); }

}  // namespace

int columns_of_a_copy(int columns) {
  int copied = 4;
  while (columns % copied != 0) --copied;
  return copied;
}

WgmmaShape wgmma_shape(const Problem& problem, const Schedule& schedule) {
  WgmmaShape shape;
  const int columns_v = ceil_div(problem.dim_v, kWgmmaColumn);
  shape.columns_k = ceil_div(problem.dim_qk, kWgmmaColumn);
  shape.columns_v = problem.v_in_k ? 0 : columns_v;
  shape.half_v = half_of(columns_v);
  // Weights lie in a column of K: the first where V has rows of its own, else the first that is no
  // part of V.
  const bool has_room = !problem.v_in_k || shape.columns_k > columns_v;
  shape.q_bytes = shape.columns_k * kColumnBytes;
  shape.stage_bytes = (shape.columns_k + shape.columns_v + (has_room ? 0 : 1)) * kColumnBytes;
  shape.loop_bytes = shape.q_bytes + schedule.stages * shape.stage_bytes;
  // Of a stage: a barrier of each copy of K, one of V, and one of the room it is.
  const int copies_k = shape.columns_k / columns_of_a_copy(shape.columns_k);
  const int barriers = schedule.stages * (copies_k + (problem.v_in_k ? 0 : 1) + 1);
  const int exchanged = 3 * kWgmmaTile;  // two tiles' maxima, and sums
  shape.barrier_bytes = 8 * barriers + 4 * exchanged;
  return shape;
}

}  // namespace splitkv
