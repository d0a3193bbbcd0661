// Sums of partials by a warp that is busy with one row: lane i knows the statistics of partial i of
// 32, and hands its share of the union to all. A Row says where partials come from: their
// `count()`; `statistics_of(partial)`, beyond the last of no keys; and `vector_of(partial, j)`, the
// lane's vector j of `vectors`. Where `fits_a_warp` says that there are 32 at most, no loop is made
// for more, which would take a seventh of a kernel's time to compile.
#pragma once

#include "partials.cuh"

namespace splitkv {

// `first_own`: the statistics of the lane's partial among the first 32.
template <class Row>
__device__ inline Statistics join_all(const Row& row, const Statistics& first_own) {
  Statistics all = join_over_lanes(first_own);
  if constexpr (Row::fits_a_warp) return all;
#pragma unroll 1
  for (i32 base = 32; base < row.count(); base += 32) {
    all = join(all, join_over_lanes(row.statistics_of(base + threadIdx.x % 32)));
  }
  return all;
}

// In the order of the partials, whatever order they arrived in. `with_rest` joins to the union of
// all what is no partial.
template <const Config& C, class Row, class WithRest>
__device__ inline Statistics sum_partials(const Row& row, float4 (&o)[Row::vectors],
                                          const WithRest& with_rest) {
  const i32 lane = threadIdx.x % 32;
  const Statistics first_own = row.statistics_of(lane);
  const Statistics all = with_rest(join_all(row, first_own));
  const float unit = row_unit(all);
  const float start = initial_sum(all);
#pragma unroll
  for (float4& four : o) four = {start, start, start, start};
#pragma unroll 1
  for (i32 base = 0; base < (Row::fits_a_warp ? 1 : row.count()); base += 32) {
    const Statistics own = base == 0 ? first_own : row.statistics_of(base + lane);
    const float shares = share_of(own, all, unit);
    // Partials have their loads in flight together; beyond the last, its own with share 0.
    constexpr int at_once = larger(8 / Row::vectors, 2);
    const i32 count = smaller(32, row.count() - base);
#pragma unroll 1
    for (i32 first = 0; first < count; first += at_once) {
#pragma unroll
      for (i32 i = first; i < first + at_once; ++i) {
        const float share = __shfl_sync(all_lanes, shares, i);
        const i32 partial = base + smaller(i, count - 1);
#pragma unroll
        for (int j = 0; j < Row::vectors; ++j) {
          add_vector<C>(o[j], share, row.vector_of(partial, j));
        }
      }
    }
  }
  return all;
}

}  // namespace splitkv
