// A row of new elements in the registers of a warp, and its way into the type of a cache: dividing
// by a scale, saturation, rounding to nearest with ties to even. compiler/append.hpp says what each
// number becomes; the CPU gives the same bits but for those of a NaN.
#pragma once

#include "config.cuh"
#include "convert.cuh"
#include "load.cuh"
#include "types.cuh"

namespace splitkv {

constexpr float smallest_normal = 1.17549435082228750797e-38f;

template <DType T>
__host__ __device__ constexpr float largest_finite() {
  if (T == DType::fp32) return largest_float;
  if (T == DType::fp16) return 65504.0f;
  if (T == DType::bf16) return 0x1.fep127f;
  if (T == DType::e4m3) return 448.0f;
  return T == DType::e5m2 ? 57344.0f : 127.0f;
}

template <DType T>
__host__ __device__ constexpr float smallest_finite() {
  return T == DType::int8 ? -128.0f : -largest_finite<T>();
}

// NaN stays NaN.
template <DType T>
__device__ inline float clamped(float x) {
  if (x > largest_finite<T>()) return largest_finite<T>();
  return x < smallest_finite<T>() ? smallest_finite<T>() : x;
}

// Adds just under half a unit of the last kept bit, or half when that bit is odd.
__device__ inline u32 round_off(u32 bits, int dropped) {
  return bits + ((1u << (dropped - 1)) - 1) + (bits >> dropped & 1);
}

// An 8-bit float of `mantissa` bits from a clamped number, in integers: for hardware without the
// conversion. Beside 2^(23 - unit) an fp32 has the spacing of the subnormals, 2^-unit: there the
// addition rounds.
template <DType T>
__device__ inline u32 small_float_bits(float x) {
  constexpr int mantissa = T == DType::e4m3 ? 3 : 2;
  constexpr u32 bias_less = T == DType::e4m3 ? 120u << 23 : 112u << 23;
  constexpr float beside = T == DType::e4m3 ? 16384.0f : 128.0f;
  constexpr u32 smallest = bias_less + (1u << 23);  // of the normal numbers
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  u32 code = (round_off(size, 23 - mantissa) - bias_less) >> (23 - mantissa);
  if (size < smallest) {
    code = __float_as_uint(__uint_as_float(size) + beside) - __float_as_uint(beside);
  }
  if (size > 0x7f800000u) code = 0x7f;
  return code | (bits >> 24 & 0x80u);
}

// The bits of a clamped number in the low half of a word. Wide types may hold an infinity.
template <DType T>
__device__ inline u32 bits_of(float x) {
  if constexpr (T == DType::fp32) {
    return __float_as_uint(x);
  } else if constexpr (size_bytes(T) == 2) {
    return pack_two<T>(x, 0.0f) & 0xffffu;
  } else if constexpr (T == DType::int8) {
    return x == x ? u32(__float2int_rn(x)) & 0xffu : 0;
  } else {
#if __CUDA_ARCH__ >= 890
    u16 two;
    if constexpr (T == DType::e4m3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    }
    return two & 0xffu;
#else
    return small_float_bits<T>(x);
#endif
  }
}

// Width elements side by side, in one store. `address` is a multiple of their bytes.
template <DType T, int Width>
__device__ inline void store_bits(char* address, const u32 (&bits)[Width]) {
  constexpr int bytes = Width * size_bytes(T);
  constexpr int in_word = bytes < 4 ? Width : 4 / size_bytes(T);
  u32 words[bytes < 4 ? 1 : bytes / 4] = {};
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    words[i / in_word] |= bits[i] << (8 * size_bytes(T) * (i % in_word));
  }
  if constexpr (bytes == 16) {
    *reinterpret_cast<uint4*>(address) = {words[0], words[1], words[2], words[3]};
  } else if constexpr (bytes == 8) {
    *reinterpret_cast<uint2*>(address) = {words[0], words[1]};
  } else if constexpr (bytes == 4) {
    *reinterpret_cast<u32*>(address) = words[0];
  } else if constexpr (bytes == 2) {
    *reinterpret_cast<u16*>(address) = u16(words[0]);
  } else {
    *address = char(words[0]);
  }
}

// Lane `lane` holds elements (32 * chunk + lane) * Width and the Width - 1 behind it of every chunk
// that the row has; what lies beyond the row is 0.
template <DType To, int Dim, int Width>
struct NewRow {
  static_assert(Dim % Width == 0, "chunks end with the row");
  static constexpr int chunks = ceil_div(Dim, 32 * Width);
  float values[chunks][Width];

  __device__ static int first_of(int chunk, int lane) { return (32 * chunk + lane) * Width; }

  // `from`: Dim elements of type From; where they happen to be aligned they come Width at a time.
  template <DType From>
  __device__ void load(const char* from, int lane) {
    constexpr int bytes = Width * size_bytes(From);
    const bool aligned = reinterpret_cast<u64>(from) % bytes == 0;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int first = first_of(chunk, lane);
#pragma unroll
      for (int i = 0; i < Width; ++i) values[chunk][i] = 0.0f;
      if (first >= Dim) continue;
      if (aligned) {
        const Raw<bytes> raw = load_global<bytes>(from + first * size_bytes(From));
#pragma unroll
        for (int i = 0; i < Width; ++i) values[chunk][i] = element<From>(raw, i);
      } else {
#pragma unroll
        for (int i = 0; i < Width; ++i) values[chunk][i] = load_scalar<From>(from, first + i);
      }
    }
  }

  // The scale that the row gets; the same in all lanes.
  __device__ float make_scale() const {
    if constexpr (size_bytes(To) > 1) return 1.0f;
    float largest = 0.0f;
    bool has_nan = false;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        const float size = fabsf(values[chunk][i]);
        if (size <= largest_float) largest = fmaxf(largest, size);
        has_nan |= size != size;
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, offset));
    }
    if constexpr (To == DType::int8) {
      if (__any_sync(all_lanes, has_nan)) return __int_as_float(0x7fc00000);
    }
    if (largest == 0.0f) return 1.0f;
    return fmaxf(__fdiv_rn(largest, largest_finite<To>()), smallest_normal);
  }

  template <bool Divides>
  __device__ void store(char* to, float scale, int lane) const {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int first = first_of(chunk, lane);
      if (first >= Dim) continue;
      u32 bits[Width];
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        const float value = values[chunk][i];
        const float quotient = Divides ? __fdiv_rn(value, scale) : value;
        // Infinities that were given stay in types that have them.
        const bool clamps = size_bytes(To) == 1 || fabsf(value) <= largest_float;
        bits[i] = bits_of<To>(clamps ? clamped<To>(quotient) : quotient);
      }
      store_bits<To>(to + first * size_bytes(To), bits);
    }
  }
};

}  // namespace splitkv
