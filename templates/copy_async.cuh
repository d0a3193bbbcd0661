// Words of shared memory by their addresses, and copies from global to shared memory that run
// beside the arithmetic. All exist from sm_80 on.
#pragma once

#include "types.cuh"

namespace splitkv {

__device__ inline u32 shared_address(const void* pointer) {
  return u32(__cvta_generic_to_shared(pointer));
}

__device__ inline float load_shared_float(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline void store_shared(u32 address, u32 word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

// Copies Bytes (4, 8 or 16, both addresses multiples of it), or writes zeros where `from_memory` is
// false: then nothing is read.
template <int Bytes>
__device__ inline void copy_async(u32 to, const void* from, bool from_memory) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a copy brings 4, 8 or 16 bytes");
  const int bytes = from_memory ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
                 "r"(bytes)
                 : "memory");
  }
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most `Pending` of the lane's newest groups are under way.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace splitkv
