// Raw vectors of 2 to 16 bytes, loaded from global memory in one instruction. No L2 prefetch hint:
// hints cost 8 to 10 % of the sustained rate on an H200.
#pragma once

#include "types.cuh"

namespace splitkv {

// Bytes 4, 8 and 16 as 32-bit words; 2 bytes sit in the low half of one word.
template <int Bytes>
struct Raw {
  static_assert(Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16,
                "a load brings 2, 4, 8 or 16 bytes");
  u32 words[Bytes < 4 ? 1 : Bytes / 4];
};

// `address` is a multiple of Bytes; the memory is not written while the kernel runs. Volatile, so
// that no load moves before the wait for what precedes the kernel (stream_order.cuh).
template <int Bytes>
__device__ inline Raw<Bytes> load_global(const void* address) {
  Raw<Bytes> raw;
  if constexpr (Bytes == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.words[0]), "=r"(raw.words[1]), "=r"(raw.words[2]), "=r"(raw.words[3])
                 : "l"(address));
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(raw.words[0]), "=r"(raw.words[1])
                 : "l"(address));
  } else if constexpr (Bytes == 4) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(raw.words[0]) : "l"(address));
  } else {
    u16 half;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(address));
    raw.words[0] = half;
  }
  return raw;
}

template <int Bytes>
__device__ inline Raw<Bytes> zero_raw() {
  Raw<Bytes> raw;
#pragma unroll
  for (u32& word : raw.words) word = 0;
  return raw;
}

// Data that other blocks of this grid wrote: read past L1, which is not coherent.
__device__ inline float load_shared_global(const float* address) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}

// Four floats at a multiple of 16 bytes, or two at one of 8 as the first two of four.
template <int Width>
__device__ inline float4 load_shared_global_four(const float* address) {
  static_assert(Width == 4 || Width == 2, "rows are read by fours or twos");
  float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
  if constexpr (Width == 4) {
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(address)
                 : "memory");
  } else {
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];"
                 : "=f"(value.x), "=f"(value.y)
                 : "l"(address)
                 : "memory");
  }
  return value;
}

template <int Bytes>
__device__ inline Raw<Bytes> load_shared_global_raw(const void* address) {
  static_assert(Bytes == 4 || Bytes == 8, "2 or 4 elements of 16 bits");
  Raw<Bytes> raw;
  if constexpr (Bytes == 8) {
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                 : "=r"(raw.words[0]), "=r"(raw.words[1])
                 : "l"(address)
                 : "memory");
  } else {
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(raw.words[0]) : "l"(address) : "memory");
  }
  return raw;
}

}  // namespace splitkv
