// What an append must store, number by number.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/numeric/append_case.hpp"

namespace splitkv::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct FloatForm {
  int exponent_bits, mantissa_bits;
  double largest;
  bool has_infinity;
};

FloatForm form_of(DType type) {
  switch (type) {
    case DType::fp16:
      return {5, 10, 65504, true};
    case DType::bf16:
      return {8, 7, 0x1.fep127, true};
    case DType::e4m3:
      return {4, 3, 448, false};
    case DType::e5m2:
      return {5, 2, 57344, true};
    default:
      return {8, 23, double(std::numeric_limits<float>::max()), true};
  }
}

double float_value(const FloatForm& form, uint32_t bits) {
  const int bias = (1 << (form.exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << form.mantissa_bits) - 1);
  const int exponent = int(bits >> form.mantissa_bits & ((1u << form.exponent_bits) - 1));
  const double sign = bits >> (form.exponent_bits + form.mantissa_bits) & 1 ? -1 : 1;
  if (exponent == (1 << form.exponent_bits) - 1) {
    if (form.has_infinity) return mantissa == 0 ? sign * kInfinity : NAN;
    if (mantissa == (1u << form.mantissa_bits) - 1) return NAN;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - form.mantissa_bits);
  return sign *
         std::ldexp((1u << form.mantissa_bits) + mantissa, exponent - bias - form.mantissa_bits);
}

// Of all codes with the number's sign the nearest finite one, the even one of two.
uint32_t nearest_code(DType type, double x) {
  const uint32_t sign = std::signbit(x) ? 0x80 : 0;
  uint32_t best = sign;
  for (uint32_t code = 0; code < 0x80; ++code) {
    const double value = reference_value(type, sign | code);
    if (!std::isfinite(value)) continue;
    const double held = reference_value(type, best);
    const double better = std::abs(x - held) - std::abs(x - value);
    if (better > 0 || (better == 0 && code % 2 == 0)) best = sign | code;
  }
  return best;
}

// A number that the type holds, as its bits.
uint32_t exact_bits(const FloatForm& form, double x) {
  const int all = form.exponent_bits + form.mantissa_bits;
  const int bias = (1 << (form.exponent_bits - 1)) - 1;
  const uint32_t sign = std::signbit(x) ? 1u << all : 0;
  const double size = std::abs(x);
  if (size == kInfinity) return sign | ((1u << form.exponent_bits) - 1) << form.mantissa_bits;
  if (size < std::ldexp(1.0, 1 - bias)) {
    return sign | uint32_t(std::ldexp(size, bias - 1 + form.mantissa_bits));
  }
  const int exponent = std::ilogb(size);
  const double fraction = std::ldexp(size, form.mantissa_bits - exponent);  // the hidden bit first
  return sign + (uint32_t(exponent + bias - 1) << form.mantissa_bits) + uint32_t(fraction);
}

}  // namespace

double reference_value(DType type, uint32_t bits) {
  if (type == DType::int8) return int8_t(bits);
  return float_value(form_of(type), bits);
}

uint32_t reference_bits(DType type, float value, const float* scale) {
  // The quotient is one of fp32.
  const float quotient = scale != nullptr ? value / *scale : value;
  if (type == DType::int8) {
    if (std::isnan(quotient)) return 0;
    return uint32_t(uint8_t(int(std::nearbyint(std::clamp(double(quotient), -128.0, 127.0)))));
  }
  if (std::isnan(quotient)) return kAnyNan;
  if (size_bytes(type) == 1) {
    const double largest = form_of(type).largest;
    return nearest_code(type, std::clamp(double(quotient), -largest, largest));
  }
  const FloatForm form = form_of(type);
  if (std::isinf(value)) return exact_bits(form, quotient);
  const int bias = (1 << (form.exponent_bits - 1)) - 1;
  const double x = std::isinf(quotient) ? std::copysign(form.largest, quotient) : quotient;
  const int exponent = x == 0 ? 1 - bias : std::max(std::ilogb(x), 1 - bias);
  const double unit = std::ldexp(1.0, exponent - form.mantissa_bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  const double held = std::clamp(rounded, -form.largest, form.largest);
  return exact_bits(form, std::copysign(held, x));
}

float reference_scale(DType type, const std::vector<float>& row) {
  if (size_bytes(type) > 1) return 1;
  float largest = 0;
  bool has_nan = false;
  for (const float v : row) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    has_nan |= std::isnan(v);
  }
  if (type == DType::int8 && has_nan) return NAN;
  if (largest == 0) return 1;
  const float limit = type == DType::int8 ? 127.0f : type == DType::e4m3 ? 448.0f : 57344.0f;
  return std::max(largest / limit, 0x1p-126f);
}

}  // namespace splitkv::testing_support
