// Copies by tensor map (sm_90 up): one instruction of one lane brings a whole step of rows, laid
// out as kv_stage.cuh says, and a barrier in shared memory counts its bytes in. A tensor map sees K
// or V as [blocks, heads, columns, tokens, elements of a column]; its ends say nothing about a
// row's length, so only steps whose keys all count are copied this way.
#pragma once

#include "args.cuh"
#include "types.cuh"

namespace splitkv {

// By one lane, before anything arrives: a phase takes so many arrivals.
__device__ inline void start_barrier(u32 barrier, u32 arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// By one lane, once nobody waits: the place may hold other things.
__device__ inline void end_barrier(u32 barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Barriers that this lane started are seen by the copies it starts.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What this thread did to shared memory comes before copies by tensor map that are started after
// the next barrier of its warp or block.
__device__ inline void order_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// An arrival: at once, or when `bytes` have come.
__device__ inline void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Until the phase of this parity has ended; phases count from 0.
__device__ inline void wait_phase(u32 barrier, u32 parity) {
  u32 ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// Tokens from `token` on of one head of a block, as many as the map's box holds. No L2 hint: the
// maps are encoded without promotion, which costs 8 to 10 % of the sustained rate.
__device__ inline void copy_tensor(u32 to, const TensorMap& map, i32 token, i32 head, i32 block,
                                   u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %2, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(0), "r"(token), "r"(head), "r"(block), "r"(barrier)
      : "memory");
}

// The same of columns from `column` on.
__device__ inline void copy_columns(u32 to, const TensorMap& map, i32 column, i32 token, i32 head,
                                    i32 block, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(&map), "r"(0), "r"(token), "r"(column), "r"(head), "r"(block), "r"(barrier)
      : "memory");
}

__device__ inline void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace splitkv
