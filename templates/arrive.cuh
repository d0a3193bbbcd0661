// The last-arriving block of a sequence joins its partials.
#pragma once

#include "partition.cuh"

namespace splitkv {

// By a whole block, after it wrote its partial of a sequence of `pieces` pieces. True in every
// thread of the block that arrives last; then the partials of all pieces are visible and the
// counter is zero again. `flag` is a word of shared memory. Arrival order decides who joins, never
// in which order.
__device__ inline bool arrive_last(u32* counter, i32 pieces, u32* flag) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool last = atomicAdd(counter, 1u) == u32(pieces) - 1;
    if (last) *counter = 0;
    *flag = last;
  }
  __syncthreads();
  const bool last = *flag != 0;
  if (last) __threadfence();
  return last;
}

}  // namespace splitkv
