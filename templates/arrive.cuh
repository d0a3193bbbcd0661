// The last-arriving block of a sequence joins its partials.
#pragma once

#include "partition.cuh"

namespace splitkv {

// By a whole block, after it wrote its partial of a sequence of `pieces` pieces. True in every
// thread of the block that arrives last; then the partials of all pieces are visible and the
// counter is zero again. `flag` is a word of shared memory. Arrival order decides who joins, never
// in which order.
__device__ inline bool arrive_last(u32* counter, i32 pieces, u32* flag) {
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    const bool last = before == u32(pieces) - 1;
    if (last) *counter = 0;
    *flag = last;
  }
  __syncthreads();
  return *flag != 0;
}

}  // namespace splitkv
