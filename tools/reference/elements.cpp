#include "tools/reference/elements.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace splitkv::reference {

double value_of_fp16(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0x1f) {
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// A bfloat16 is the upper half of a float.
double value_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

// 1 sign bit, 4 of exponent (bias 7), 3 of fraction.
double value_of_e4m3(uint8_t bits) {
  const double sign = bits & 0x80 ? -1.0 : 1.0;
  const int exponent = (bits >> 3) & 0xf;
  const int fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

// The upper half of an fp16.
double value_of_e5m2(uint8_t bits) { return value_of_fp16(uint16_t(bits << 8)); }

namespace {

// ldexp for every element would take most of the reference's time.
const std::vector<double>& fp16_values() {
  static const std::vector<double> values = [] {
    std::vector<double> all(1 << 16);
    for (size_t bits = 0; bits < all.size(); ++bits) all[bits] = value_of_fp16(uint16_t(bits));
    return all;
  }();
  return values;
}

}  // namespace

double value_at(Element element, const void* data, int64_t index) {
  switch (element) {
    case Element::fp64:
      return static_cast<const double*>(data)[index];
    case Element::fp32:
      return static_cast<const float*>(data)[index];
    case Element::e4m3:
      return value_of_e4m3(static_cast<const uint8_t*>(data)[index]);
    case Element::e5m2:
      return value_of_e5m2(static_cast<const uint8_t*>(data)[index]);
    case Element::int8:
      return static_cast<const int8_t*>(data)[index];
    case Element::fp16:
    case Element::bf16:
      break;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 2 * index, 2);
  return element == Element::fp16 ? fp16_values()[bits] : value_of_bf16(bits);
}

ReadVector dense(Element element, const void* data, int64_t heads, int64_t tokens, int64_t dim) {
  return [=](int64_t row, int64_t head, int64_t token, double* values) {
    const int64_t first = ((row * heads + head) * tokens + token) * dim;
    for (int64_t i = 0; i < dim; ++i) values[i] = value_at(element, data, first + i);
  };
}

}  // namespace splitkv::reference
