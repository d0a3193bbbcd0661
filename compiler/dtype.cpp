#include "compiler/dtype.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace splitkv {
namespace {

constexpr uint32_t kFloatInfinity = 0x7f800000u;

// Drops the low `bits` bits of a magnitude, rounding to nearest with ties to even. The carry may
// run into the exponent, which is what rounding up to the next power of two (or to infinity) means.
constexpr uint32_t round_off(uint32_t magnitude, int bits) {
  const uint32_t half_less_one = (1u << (bits - 1)) - 1;
  const uint32_t odd = (magnitude >> bits) & 1u;
  return (magnitude + half_less_one + odd) >> bits;
}

// A format of 8 bits: its exponent's bias, its mantissa bits and the code of its largest number.
struct SmallFormat {
  int bias;
  int mantissa_bits;
  uint32_t largest;
};
constexpr SmallFormat kE4m3 = {7, 3, 0x7e};
constexpr SmallFormat kE5m2 = {15, 2, 0x7b};
constexpr uint8_t kSmallNan = 0x7f;  // in both formats

uint8_t small_from_float(const SmallFormat& format, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = uint8_t(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInfinity) return uint8_t(sign | kSmallNan);
  if (magnitude >= uint32_t(128 - format.bias) << 23) {
    const uint32_t rebased = magnitude - (uint32_t(127 - format.bias) << 23);
    const uint32_t code = round_off(rebased, 23 - format.mantissa_bits);
    return uint8_t(sign | std::min(code, format.largest));
  }
  // Subnormal: count units of 2^(1 - bias - mantissa_bits), as fp16_from_float does.
  const int shift = 151 - format.bias - format.mantissa_bits - int(magnitude >> 23);
  if (shift > 24) return sign;
  return uint8_t(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, shift));
}

}  // namespace

std::string_view name(DType type) {
  switch (type) {
    case DType::fp32:
      return "fp32";
    case DType::fp16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
    case DType::int8:
      return "int8";
  }
  assert(!"unknown dtype");
  return "";
}

std::optional<DType> dtype_from_name(std::string_view text) {
  for (DType type : {DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::e5m2, DType::int8})
    if (text == name(type)) return type;
  return std::nullopt;
}

uint16_t fp16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInfinity) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  constexpr uint32_t kOverflow = 0x477ff000u;  // 65520: halfway between 65504 and 2^16
  if (magnitude >= kOverflow) return uint16_t(sign | 0x7c00u);
  constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  if (magnitude >= kSmallestNormal) {
    const uint32_t rebased = magnitude - (uint32_t(127 - 15) << 23);
    return uint16_t(sign | round_off(rebased, 13));
  }
  // Subnormal: count units of 2^-24. The significand with its hidden bit is in units of
  // 2^(exponent - 150), so the shift below is at least 14; from 25 on all is below half a unit.
  const int shift = 126 - int(magnitude >> 23);
  if (shift > 24) return sign;
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  return uint16_t(sign | round_off(significand, shift));
}

uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInfinity) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t(sign | round_off(magnitude, 16));
}

float float_from_fp16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(float(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | kFloatInfinity | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint8_t e4m3_from_float(float value) { return small_from_float(kE4m3, value); }
uint8_t e5m2_from_float(float value) { return small_from_float(kE5m2, value); }

float float_from_e4m3(uint8_t bits) {
  const uint32_t sign = uint32_t(bits & 0x80u) << 24;
  const uint32_t exponent = bits >> 3 & 0xfu;
  const uint32_t mantissa = bits & 0x7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float magnitude = std::ldexp(float(mantissa), -9);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 7) << 23 | mantissa << 20);
}

float float_from_e5m2(uint8_t bits) { return float_from_fp16(uint16_t(bits << 8)); }

int8_t int8_from_float(float value) {
  if (std::isnan(value)) return 0;
  return int8_t(std::nearbyint(std::clamp(value, -128.0f, 127.0f)));
}

float load_element(DType type, const void* data, int64_t index) {
  const char* element = static_cast<const char*>(data) + index * size_bytes(type);
  uint16_t bits = 0;
  switch (type) {
    case DType::fp32: {
      float value;
      std::memcpy(&value, element, sizeof value);
      return value;
    }
    case DType::fp16:
      std::memcpy(&bits, element, sizeof bits);
      return float_from_fp16(bits);
    case DType::bf16:
      std::memcpy(&bits, element, sizeof bits);
      return float_from_bf16(bits);
    case DType::e4m3:
      return float_from_e4m3(uint8_t(*element));
    case DType::e5m2:
      return float_from_e5m2(uint8_t(*element));
    case DType::int8:
      return float(int8_t(*element));
  }
  assert(!"unknown dtype");
  return 0;
}

void store_element(DType type, void* data, int64_t index, float value) {
  char* element = static_cast<char*>(data) + index * size_bytes(type);
  uint16_t bits = 0;
  switch (type) {
    case DType::fp32:
      std::memcpy(element, &value, sizeof value);
      return;
    case DType::fp16:
      bits = fp16_from_float(value);
      std::memcpy(element, &bits, sizeof bits);
      return;
    case DType::bf16:
      bits = bf16_from_float(value);
      std::memcpy(element, &bits, sizeof bits);
      return;
    case DType::e4m3:
      *element = char(e4m3_from_float(value));
      return;
    case DType::e5m2:
      *element = char(e5m2_from_float(value));
      return;
    case DType::int8:
      *element = char(int8_from_float(value));
      return;
  }
  assert(!"unknown dtype");
}

}  // namespace splitkv
