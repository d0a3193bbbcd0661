// The emulator's conversions and the library's, which share no code.
#include "tests/emulator/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compiler/dtype.hpp"

namespace splitkv {
namespace {

float loaded(DType type, uint16_t bits) { return load_element(type, &bits, 0); }

TEST(Numbers, NarrowOnesAreWidenedAsTheLibraryDoes) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float fp16 = loaded(DType::fp16, uint16_t(bits));
    if (std::isnan(fp16)) {
      EXPECT_TRUE(std::isnan(emulator::from_fp16(bits)));
    } else {
      EXPECT_EQ(emulator::from_fp16(bits), fp16) << bits;
    }
  }
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const float e4m3 = loaded(DType::e4m3, uint16_t(bits));
    EXPECT_TRUE(emulator::from_e4m3(bits) == e4m3 || std::isnan(e4m3)) << bits;
  }
}

TEST(Numbers, WideOnesAreRoundedAsTheLibraryDoes) {
  std::mt19937 engine(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const float value = emulator::float_of(uint32_t(engine()));
    if (std::isnan(value)) continue;
    EXPECT_EQ(emulator::to_fp16(value), fp16_from_float(value)) << value;
    EXPECT_EQ(emulator::to_bf16(value), bf16_from_float(value)) << value;
    if (std::isinf(value)) continue;  // saturated here
    const float e4m3 = std::clamp(value, -448.0f, 448.0f);
    const float e5m2 = std::clamp(value, -57344.0f, 57344.0f);
    EXPECT_EQ(emulator::to_e4m3(value), e4m3_from_float(e4m3)) << value;
    EXPECT_EQ(emulator::to_e5m2(value), e5m2_from_float(e5m2)) << value;
  }
}

}  // namespace
}  // namespace splitkv
