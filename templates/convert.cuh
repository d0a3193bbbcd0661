// Between stored element types and fp32, without the toolkit's fp16 headers (they take longer to
// parse than all of this).
#pragma once

#include "config.cuh"
#include "load.cuh"
#include "types.cuh"

namespace splitkv {

template <DType T>
__device__ inline float from_bits(u16 bits) {
  static_assert(T != DType::fp32, "an fp32 value does not fit 16 bits");
  if constexpr (T == DType::bf16) {
    return __uint_as_float(u32(bits) << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
}

// Element `i` of a raw vector of type T.
template <DType T, int Bytes>
__device__ inline float element(const Raw<Bytes>& raw, int i) {
  if constexpr (T == DType::fp32) {
    return __uint_as_float(raw.words[i]);
  } else {
    return from_bits<T>(u16(raw.words[i / 2] >> (16 * (i % 2))));
  }
}

template <DType T>
__device__ inline float load_scalar(const void* base, i64 index) {
  if constexpr (T == DType::fp32) {
    return static_cast<const float*>(base)[index];
  } else {
    return from_bits<T>(static_cast<const u16*>(base)[index]);
  }
}

// Rounds to nearest, ties to even.
template <DType T>
__device__ inline void store_scalar(void* base, i64 index, float value) {
  if constexpr (T == DType::fp32) {
    static_cast<float*>(base)[index] = value;
  } else {
    u16 bits;
    if constexpr (T == DType::bf16) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    } else {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    }
    static_cast<u16*>(base)[index] = bits;
  }
}

// Four neighbours; `index` need not be aligned.
template <DType T>
__device__ inline void store_four(void* base, i64 index, const float4& values) {
  store_scalar<T>(base, index, values.x);
  store_scalar<T>(base, index + 1, values.y);
  store_scalar<T>(base, index + 2, values.z);
  store_scalar<T>(base, index + 3, values.w);
}

}  // namespace splitkv
