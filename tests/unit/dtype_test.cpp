#include "compiler/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

namespace splitkv {
namespace {

// What a format is, in plain arithmetic: the value of a magnitude's bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  uint16_t (*from_float)(float);
  float (*to_float)(uint16_t);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return uint16_t(((1 << exponent_bits) - 1) << mantissa_bits); }
  double value(uint16_t magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
    return std::ldexp(hidden + mantissa, std::max(exponent, 1) - bias() - mantissa_bits);
  }
};

// How the test's parameter reads in the list of tests.
void PrintTo(const Format& format, std::ostream* out) {
  *out << format.exponent_bits << "-bit exponent";
}

class Conversion : public testing::TestWithParam<Format> {};

TEST_P(Conversion, GivesTheValueOfAll65536BitPatterns) {
  const Format format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t magnitude = bits & 0x7fff;
    const float value = format.to_float(uint16_t(bits));
    if (magnitude > format.infinity()) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (magnitude == format.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(std::fabs(double(value)), format.value(magnitude)) << bits;
    }
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
  }
}

TEST_P(Conversion, BringsAll65536BitPatternsBack) {
  const Format format = GetParam();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t back = format.from_float(format.to_float(uint16_t(bits)));
    if ((bits & 0x7fff) > format.infinity()) {
      ASSERT_GT(back & 0x7fff, format.infinity()) << "a NaN stopped being one: " << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST_P(Conversion, RoundsToNearestWithTiesToEven) {
  const Format format = GetParam();
  for (int low = 0; low < format.infinity() - 1; ++low) {
    const double below = format.value(uint16_t(low)), above = format.value(uint16_t(low + 1));
    const float half = float((below + above) / 2);
    ASSERT_EQ(double(half) * 2, below + above) << "the midpoint is a float";
    const int even = low % 2 == 0 ? low : low + 1;
    const float infinity = std::numeric_limits<float>::infinity();
    ASSERT_EQ(format.from_float(half), even) << low;
    ASSERT_EQ(format.from_float(std::nextafter(half, 0.0f)), low) << low;
    ASSERT_EQ(format.from_float(std::nextafter(half, infinity)), low + 1) << low;
    ASSERT_EQ(format.from_float(-half), even | 0x8000) << low;
  }
}

TEST_P(Conversion, OverflowsToInfinityFromHalfwayPastTheLargestNumber) {
  const Format format = GetParam();
  const uint16_t largest = uint16_t(format.infinity() - 1);
  const double step = format.value(largest) - format.value(uint16_t(largest - 1));
  const float limit = float(format.value(largest) + step / 2);
  EXPECT_EQ(format.from_float(limit), format.infinity());
  EXPECT_EQ(format.from_float(std::nextafter(limit, 0.0f)), largest);
  EXPECT_EQ(format.from_float(-std::numeric_limits<float>::max()), format.infinity() | 0x8000);
  EXPECT_EQ(format.from_float(std::numeric_limits<float>::infinity()), format.infinity());
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversion,
                         testing::Values(Format{5, 10, fp16_from_float, float_from_fp16},
                                         Format{8, 7, bf16_from_float, float_from_bf16}),
                         [](const auto& info) { return info.index == 0 ? "fp16" : "bf16"; });

TEST(DType, NamesReadBack) {
  for (DType type : {DType::fp32, DType::fp16, DType::bf16})
    EXPECT_EQ(dtype_from_name(name(type)), type);
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, ElementsAreStoredAndLoadedWhereTheIndexSays) {
  for (DType type : {DType::fp32, DType::fp16, DType::bf16}) {
    unsigned char bytes[16] = {};
    store_element(type, bytes, 1, -1.5f);
    store_element(type, bytes, 2, 0.25f);
    EXPECT_EQ(load_element(type, bytes, 0), 0.0f);
    EXPECT_EQ(load_element(type, bytes, 1), -1.5f);
    EXPECT_EQ(load_element(type, bytes, 2), 0.25f);
    EXPECT_EQ(load_element(type, bytes, 3), 0.0f);
  }
}

}  // namespace
}  // namespace splitkv
