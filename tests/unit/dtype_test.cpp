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

// ---- 8 bits -------------------------------------------------------------------------------------

struct SmallFormat {
  const char* name;
  int bias;
  int mantissa_bits;
  uint8_t largest;
  uint8_t (*from_float)(float);
  float (*to_float)(uint8_t);

  double value(int magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
    return std::ldexp(hidden + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
  }
};

void PrintTo(const SmallFormat& format, std::ostream* out) { *out << format.name; }

class SmallConversion : public testing::TestWithParam<SmallFormat> {};

TEST_P(SmallConversion, GivesTheValueOfAll256BitPatternsAndBringsThemBack) {
  const SmallFormat format = GetParam();
  for (int bits = 0; bits < 256; ++bits) {
    const int magnitude = bits & 0x7f;
    const float value = format.to_float(uint8_t(bits));
    if (magnitude > format.largest) {
      const bool infinite = format.mantissa_bits == 2 && magnitude == 0x7c;
      ASSERT_EQ(std::isnan(value), !infinite) << bits;
      ASSERT_EQ(std::isinf(value), infinite) << bits;
      continue;
    }
    ASSERT_EQ(std::fabs(double(value)), format.value(magnitude)) << bits;
    ASSERT_EQ(std::signbit(value), bits >= 0x80) << bits;
    ASSERT_EQ(format.from_float(value), bits);
  }
}

TEST_P(SmallConversion, RoundsToNearestWithTiesToEvenAndSaturates) {
  const SmallFormat format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  for (int low = 0; low < format.largest; ++low) {
    const float half = float((format.value(low) + format.value(low + 1)) / 2);
    const int even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(format.from_float(half), even) << low;
    ASSERT_EQ(format.from_float(std::nextafter(half, 0.0f)), low) << low;
    ASSERT_EQ(format.from_float(std::nextafter(half, infinity)), low + 1) << low;
    ASSERT_EQ(format.from_float(-half), even | 0x80) << low;
  }
  for (float large : {float(format.value(format.largest)) * 1.01f,
                      float(format.value(format.largest)) * 2, 1e30f, infinity}) {
    EXPECT_EQ(format.from_float(large), format.largest) << large;
    EXPECT_EQ(format.from_float(-large), format.largest | 0x80) << large;
  }
  EXPECT_TRUE(std::isnan(format.to_float(format.from_float(std::nanf("")))));
  EXPECT_EQ(format.from_float(1e-40f), 0);
  EXPECT_EQ(format.from_float(-0.0f), 0x80);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, SmallConversion,
    testing::Values(SmallFormat{"e4m3", 7, 3, 0x7e, e4m3_from_float, float_from_e4m3},
                    SmallFormat{"e5m2", 15, 2, 0x7b, e5m2_from_float, float_from_e5m2}),
    [](const auto& info) { return info.param.name; });

TEST(DType, Int8IsTheNearestWholeNumberAndSaturates) {
  for (int value = -128; value <= 127; ++value) {
    const int up = value % 2 == 0 ? value : value + 1;
    EXPECT_EQ(int8_from_float(float(value)), value);
    EXPECT_EQ(int8_from_float(float(value) + 0.25f), value);
    EXPECT_EQ(int8_from_float(float(value) + 0.5f), std::min(up, 127));
  }
  EXPECT_EQ(int8_from_float(-1e9f), -128);
  EXPECT_EQ(int8_from_float(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(int8_from_float(std::nanf("")), 0);
}

constexpr DType kAll[] = {DType::fp32, DType::fp16, DType::bf16,
                          DType::e4m3, DType::e5m2, DType::int8};

TEST(DType, NamesReadBack) {
  for (DType type : kAll) EXPECT_EQ(dtype_from_name(name(type)), type);
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, ElementsAreStoredAndLoadedWhereTheIndexSays) {
  for (DType type : kAll) {
    unsigned char bytes[16] = {};
    store_element(type, bytes, 1, -3.0f);
    store_element(type, bytes, 2, 112.0f);
    EXPECT_EQ(load_element(type, bytes, 0), 0.0f);
    EXPECT_EQ(load_element(type, bytes, 1), -3.0f);
    EXPECT_EQ(load_element(type, bytes, 2), 112.0f);
    EXPECT_EQ(load_element(type, bytes, 3), 0.0f);
  }
}

}  // namespace
}  // namespace splitkv
