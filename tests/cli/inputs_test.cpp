#include "tools/splitkv/inputs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

// The interval by the definition: the hull of all keys that some query sees.
KeyRange hull(const Problem& problem, int32_t kv_len) {
  KeyRange range{kv_len, 0};
  for (int32_t query = kv_len - problem.query_len; query < kv_len; ++query) {
    for (int32_t key = 0; key < kv_len; ++key) {
      const bool after_window = problem.window == 0 || key > query - problem.window;
      const int32_t start = query - ((query % std::max(1, problem.chunk)) + problem.chunk) %
                                        std::max(1, problem.chunk);
      const bool in_chunk = problem.chunk == 0 || key >= start;
      const bool seen = problem.mask != Mask::causal || key <= query;
      if (!after_window || !in_chunk || !seen) continue;
      range.first = std::min(range.first, key);
      range.end = std::max(range.end, key + 1);
    }
  }
  return range.first < range.end ? range : KeyRange{};
}

TEST(KeyRanges, AreTheHullOfWhatTheQueriesSee) {
  for (const char* words : {"", "window=5", "chunk=7", "window=3 chunk=4", "mask=none",
                            "mask=none window=6", "mask=none chunk=5"}) {
    for (const char* queries : {"1", "2", "5"}) {
      const Problem problem = problem_of(
          (std::string("attention q=fp32 heads=1 dim=8 query_len=") + queries + " " + words)
              .c_str());
      for (int32_t length = 0; length < 24; ++length) {
        Rows rows;
        rows.kv_len = {length};
        EXPECT_EQ(key_range(problem, rows, 0), hull(problem, length))
            << words << " queries " << queries << " length " << length << ": "
            << key_range(problem, rows, 0).first << " to " << key_range(problem, rows, 0).end;
      }
    }
  }
}

TEST(KeyRanges, OfShardsAreLocal) {
  // Keys stand at 1, 5, 9, 13; the query at 11 of 12 sees the newest 4 positions: 8 to 11.
  const Problem problem = problem_of("attention q=fp32 heads=1 dim=8 window=4 positions=strided");
  Rows rows;
  rows.kv_len = {3};
  rows.total_len = {12};
  rows.pos0 = 1;
  rows.pos_step = 4;
  EXPECT_EQ(key_range(problem, rows, 0), (KeyRange{2, 3}));
  rows.kv_begin = {3};
  EXPECT_EQ(key_range(problem, rows, 0), KeyRange{});
}

TEST(GeneratedInputs, OfRaggedRowsLieDenselyAndTailsAreMinusOne) {
  const Problem problem = problem_of("attention q=fp32 heads=2/1 dim=8 query_len=3");
  StepForm form;
  form.queries = {2, 0, 3, 0};
  form.spare_rows = 2;
  form.minus_one_tail = true;
  const Inputs inputs = generate_inputs(problem, {9, 4, 7, 2}, 3, form);
  EXPECT_EQ(inputs.q_offset, (std::vector<int32_t>{0, 2, 2, 5, -1}));
  EXPECT_EQ(inputs.query_rows, 7);
  EXPECT_EQ(inputs.q.size(), size_t(7 * 2 * 8 * 4));
  // Rows without queries reach no keys.
  EXPECT_EQ(key_range(problem, inputs, 1), KeyRange{});
  EXPECT_TRUE(std::isnan(load_element(DType::fp32, inputs.k.data(), 9 * 8)));
}

TEST(GeneratedInputs, HaveWhatTheProblemAsksFor) {
  const Problem problem = problem_of(
      "attention q=fp16 k=e4m3 v=int8 heads=4/2 dim=8 query_len=2 k_scale=inline v_scale=token "
      "alibi=on bias=fp16 params=a:scalar,b:head,c:row mask=tree sink=on");
  const Inputs inputs = generate_inputs(problem, {6, 3}, 8);
  EXPECT_EQ(inputs.k_scale.size(), 2u * 2 * 6);
  EXPECT_EQ(inputs.v_scale.size(), 2u * 2 * 6);
  EXPECT_EQ(inputs.alibi_slopes.size(), 4u);
  EXPECT_EQ(inputs.sink.size(), 4u);
  ASSERT_EQ(inputs.params.size(), 3u);
  EXPECT_EQ(inputs.params[0].size(), 1u);
  EXPECT_EQ(inputs.params[1].size(), 4u);
  EXPECT_EQ(inputs.params[2].size(), 2u);
  EXPECT_EQ(inputs.bias.size(), size_t(2 * 4 * 2 * 6 * 2));
  ASSERT_EQ(inputs.tree.size(), 4u);
  // Every query sees itself.
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(uint8_t(inputs.tree[i]) >> (i % 2) & 1) << i;
  // 8-bit values use the range of their type.
  float largest = 0;
  for (int64_t i = 0; i < 2 * 2 * 6 * 8; ++i) {
    const float value = load_element(DType::e4m3, inputs.k.data(), i);
    if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
  }
  EXPECT_GT(largest, 150);
  EXPECT_LT(largest, 448);
}

}  // namespace
}  // namespace splitkv::tool
