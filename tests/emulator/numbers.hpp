// Between fp32 and narrower types, rounding to nearest with ties to even.
#pragma once

#include "device_api.hpp"

namespace emulator {

inline float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }

inline float from_bf16(u32 bits) { return float_of(bits << 16); }

inline float from_fp16(u32 bits) {
  const u32 magnitude = (bits & 0x7fff) << 13;
  float value = float_of(magnitude) * 0x1p112f;  // exact for subnormal numbers too
  if ((bits & 0x7c00) == 0x7c00) value = float_of(magnitude | 0x7f800000);
  return (bits & 0x8000) != 0 ? -value : value;
}

inline u32 to_bf16(float value) {
  const u32 bits = bits_of(value);
  if (value != value) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// A binary float of `mantissa` bits and this exponent bias: sign and magnitude, the exponent
// running on beyond what the type has. Not for NaN.
struct SmallFloat {
  u32 sign;
  u32 magnitude;
};
inline SmallFloat to_small(float value, int mantissa, int bias) {
  const u32 bits = bits_of(value);
  const u32 size = bits & 0x7fffffff;
  const int exponent = int(size >> 23) - 127;
  if (exponent < 1 - bias) {  // subnormal there: a count of the smallest number
    const float unit = float_of(u32(127 + bias - 1 + mantissa) << 23);
    return {bits >> 31, u32(__builtin_rintf(float_of(size) * unit))};
  }
  const int dropped = 23 - mantissa;
  const u32 rounded = size + (1u << (dropped - 1)) - 1 + (size >> dropped & 1);
  return {bits >> 31, (rounded >> dropped) - (u32(127 - bias) << mantissa)};
}

inline u32 to_fp16(float value) {
  if (value != value) return 0x7fff;
  const SmallFloat small = to_small(value, 10, 15);
  return small.sign << 15 | (small.magnitude > 0x7c00 ? 0x7c00 : small.magnitude);
}

// With saturation to the largest finite number.
inline u32 to_e4m3(float value) {
  if (value != value) return 0x7f;
  const SmallFloat small = to_small(value, 3, 7);
  return small.sign << 7 | (small.magnitude > 0x7e ? 0x7e : small.magnitude);
}
inline u32 to_e5m2(float value) {
  if (value != value) return 0x7f;
  const SmallFloat small = to_small(value, 2, 15);
  return small.sign << 7 | (small.magnitude > 0x7b ? 0x7b : small.magnitude);
}

inline float from_e4m3(u32 bits) {
  const float size = float_of((bits & 0x7f) << 20) * 0x1p120f;
  const float value = (bits & 0x7f) == 0x7f ? float_of(0x7fc00000) : size;
  return (bits & 0x80) != 0 ? -value : value;
}

// Subnormal numbers become 0 of their sign.
inline float flushed(float value) {
  return (bits_of(value) & 0x7f800000) == 0 ? float_of(bits_of(value) & 0x80000000) : value;
}

}  // namespace emulator
