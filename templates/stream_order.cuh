// Programmatic dependent launch: a kernel starts before what precedes it in the stream has ended.
#pragma once

#include "config.cuh"

namespace splitkv {

// By every thread, before it touches memory: what precedes has ended and is visible. sm_90 and up.
template <const Config& C>
__device__ inline void wait_for_stream() {
  if constexpr (C.pdl) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// What follows in the stream may start once every block has said so or ended; it waits in turn for
// the whole grid. Said late, so that blocks which only wait take no room from those that work.
template <const Config& C>
__device__ inline void start_what_follows() {
  if constexpr (C.pdl) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace splitkv
