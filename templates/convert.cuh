// Between stored element types and fp32, without the toolkit's fp16 headers (they take longer to
// parse than all of this).
#pragma once

#include "config.cuh"
#include "load.cuh"
#include "types.cuh"

namespace splitkv {

// 8-bit types widen exactly into every wider one. `bits` is the element in the low bits.
template <DType T>
__device__ inline float from_bits(u32 bits) {
  static_assert(T != DType::fp32, "an fp32 value does not fit 16 bits");
  if constexpr (T == DType::bf16) {
    return __uint_as_float(bits << 16);
  } else if constexpr (T == DType::fp16) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(u16(bits)));
    return value;
  } else if constexpr (T == DType::e5m2) {
    return from_bits<DType::fp16>(bits << 8);
  } else if constexpr (T == DType::e4m3) {
    // The exponent and mantissa at fp32's place are short of the bias's difference, 120; the
    // product is exact for subnormal values too. The one NaN of each sign is selected.
    const float magnitude = __uint_as_float((bits & 0x7f) << 20) * 0x1p120f;
    const float value = (bits & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000) : magnitude;
    return (bits & 0x80) != 0 ? -value : value;
  } else {
    return float(int(bits << 24) >> 24);
  }
}

// Element `i` of a raw vector of type T.
template <DType T, int Bytes>
__device__ inline float element(const Raw<Bytes>& raw, int i) {
  if constexpr (T == DType::fp32) {
    return __uint_as_float(raw.words[i]);
  } else if constexpr (size_bytes(T) == 2) {
    return from_bits<T>(raw.words[i / 2] >> (16 * (i % 2)) & 0xffff);
  } else {
    return from_bits<T>(raw.words[i / 4] >> (8 * (i % 4)) & 0xff);
  }
}

// q and out are never 8-bit.
template <DType T>
__device__ inline float load_scalar(const void* base, i64 index) {
  if constexpr (T == DType::fp32) {
    return static_cast<const float*>(base)[index];
  } else {
    return from_bits<T>(static_cast<const u16*>(base)[index]);
  }
}

// Two values as one word of T, fp16 or bf16, the first in the low half.
template <DType T>
__device__ inline u32 pack_two(float low, float high) {
  u32 word;
  if constexpr (T == DType::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

// Two neighbours of 8 bits, in the low half of `bits`, as a word of two of To, fp16 or bf16: exact.
template <DType From, DType To>
__device__ inline u32 widen_two(u32 bits) {
  static_assert(size_bytes(From) == 1 && size_bytes(To) == 2, "8 bits become 16");
  u32 halves = 0;
  if constexpr (From == DType::e5m2) {
    halves = __byte_perm(bits, 0, 0x1404);  // the upper bytes of two fp16
#if __CUDA_ARCH__ >= 890
  } else if constexpr (From == DType::e4m3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(u16(bits)));
#endif
  } else {
    return pack_two<To>(from_bits<From>(bits & 0xff), from_bits<From>(bits >> 8 & 0xff));
  }
  if constexpr (To == DType::fp16) return halves;
  return pack_two<To>(from_bits<DType::fp16>(halves & 0xffff),
                      from_bits<DType::fp16>(halves >> 16));
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

// The first `Width` of four neighbours; `index` need not be aligned.
template <DType T, int Width>
__device__ inline void store_four(void* base, i64 index, const float4& values) {
  store_scalar<T>(base, index, values.x);
  store_scalar<T>(base, index + 1, values.y);
  if constexpr (Width == 4) {
    store_scalar<T>(base, index + 2, values.z);
    store_scalar<T>(base, index + 3, values.w);
  }
}

}  // namespace splitkv
