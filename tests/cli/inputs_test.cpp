#include "tools/splitkv/inputs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler/dtype.hpp"
#include "compiler/text.hpp"

namespace splitkv::tool {
namespace {

Problem problem_of(const char* text) {
  const auto problem = parse_problem(text);
  EXPECT_TRUE(problem.ok()) << text;
  return *problem;
}

TEST(GeneratedValues, LookLikeAStandardNormal) {
  double sum = 0, squares = 0, fourths = 0, lag = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double value = generated_value(7, i);
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
    lag += value * generated_value(7, i + 1);
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourths / kCount, 2.85, 0.1);  // 3 less 1.2 / 8: a sum of eight uniforms
  EXPECT_NEAR(lag / kCount, 0, 0.01);
}

// The values of a second implementation of the generator, written in another language.
TEST(GeneratedValues, AreTheSameEverywhere) {
  EXPECT_EQ(generated_value(7, 0), -0x1.2d09dap-2f);
  EXPECT_EQ(generated_value(7, 1), -0x1.45e0bap+0f);
  EXPECT_EQ(generated_value(~uint64_t(0), 12345), 0x1.29ba54p-1f);
}

// These digits are the promise that a seed means the same inputs on every machine and in every
// version.
TEST(GeneratedInputs, AreTheSameEverywhere) {
  const Problem bf16 = problem_of("attention q=bf16 kv=bf16 heads=4/2 dim=64");
  EXPECT_EQ(digest(bf16, generate_inputs(bf16, {100, 0, 37}, 0)), "5ec25fddfabac9f6");
  const Problem mixed =
      problem_of("attention q=fp32 k=fp16 v=bf16 heads=3/1 dim=64/40 window=50 kv_layout=bthd");
  EXPECT_EQ(digest(mixed, generate_inputs(mixed, {70}, 42)), "2a5103ccf62484c7");
}

TEST(GeneratedInputs, DependOnTheSeed) {
  const Problem problem = problem_of("attention q=fp32 kv=fp32 heads=2 dim=8");
  const Inputs one = generate_inputs(problem, {5, 6}, 1);
  EXPECT_EQ(one, generate_inputs(problem, {5, 6}, 1));
  EXPECT_NE(digest(problem, one), digest(problem, generate_inputs(problem, {5, 6}, 2)));
}

TEST(GeneratedInputs, GiveATokenTheSameValuesWhateverTheLengths) {
  const Problem problem = problem_of("attention q=fp32 kv=fp32 heads=2 dim=8");
  const Inputs a = generate_inputs(problem, {5, 6}, 1);
  const Inputs b = generate_inputs(problem, {9, 3, 1}, 1);
  const int64_t head_bytes = 8 * 4;
  for (int64_t i = 0; i < 2 * 2; ++i) {  // rows 0 and 1, both heads: tokens 0 to 2 are in both
    EXPECT_EQ(std::memcmp(&a.k[i * a.capacity * head_bytes], &b.k[i * b.capacity * head_bytes],
                          3 * head_bytes),
              0);
    EXPECT_EQ(std::memcmp(&a.v[i * a.capacity * head_bytes], &b.v[i * b.capacity * head_bytes],
                          3 * head_bytes),
              0);
  }
  EXPECT_NE(a.k, a.v);
}

TEST(GeneratedInputs, AreNaNWhereNoQuerySees) {
  for (const char* type : {"fp32", "fp16", "bf16"}) {
    const std::string text =
        std::string("attention q=") + type + " kv=" + type + " heads=2/1 dim=8 window=4";
    const Problem problem = problem_of(text.c_str());
    const std::vector<int32_t> lengths = {10, 0, 3};
    const Inputs inputs = generate_inputs(problem, lengths, 3);
    ASSERT_EQ(inputs.capacity, 10);
    for (int64_t i = 0; i < 3 * 10 * 8; ++i) {
      const int64_t row = i / 80, token = i / 8 % 10;
      const bool seen = token < lengths[row] && token >= lengths[row] - 4;
      EXPECT_EQ(std::isnan(load_element(problem.k_dtype, inputs.k.data(), i)), !seen) << i;
      EXPECT_EQ(std::isnan(load_element(problem.v_dtype, inputs.v.data(), i)), !seen) << i;
    }
  }
}

}  // namespace
}  // namespace splitkv::tool
