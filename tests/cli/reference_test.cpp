// The reference judges everything else, so it is judged here against values worked out by hand.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tools/reference/accuracy.hpp"
#include "tools/reference/attention.hpp"

namespace splitkv::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Scores 0, ln 2, ln 3 and ln 4 of one-dimensional keys; values 1, 10, 100, 1000.
struct FourKeys {
  const std::vector<double> q = {1};
  const std::vector<double> k = {0, std::log(2), std::log(3), std::log(4)};
  const std::vector<double> v = {1, 10, 100, 1000};

  Attention attention(int64_t kv_len) const {
    Attention a;
    a.q = dense(Element::fp64, q.data(), 1, 1, 1);
    a.k = dense(Element::fp64, k.data(), 1, 4, 1);
    a.v = dense(Element::fp64, v.data(), 1, 4, 1);
    a.kv_len = {kv_len};
    return a;
  }
};

TEST(Reference, WeighsValuesByTheSoftmaxOfTheScores) {
  const Answer answer = attend(FourKeys().attention(4));
  EXPECT_NEAR(answer.out[0], (1 + 20 + 300 + 4000) / 10.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(10), 1e-15);
}

TEST(Reference, GivesZeroAndMinusInfinityWithoutKeys) {
  const Answer answer = attend(FourKeys().attention(0));
  EXPECT_EQ(answer.out[0], 0);
  EXPECT_EQ(answer.lse[0], -kInfinity);
}

TEST(Reference, KeepsTheNewestKeysOfAWindow) {
  const FourKeys keys;
  Attention attention = keys.attention(4);
  attention.window = 2;
  const Answer answer = attend(attention);
  EXPECT_NEAR(answer.out[0], (300 + 4000) / 7.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(7), 1e-15);
  attention.window = 9;
  EXPECT_EQ(attend(attention).out, attend(keys.attention(4)).out);
}

TEST(Reference, ScalesBeforeItCaps) {
  const FourKeys keys;
  Attention attention = keys.attention(2);
  attention.scale = 3;
  attention.softcap = 2;
  const double capped = 2 * std::tanh(3 * std::log(2) / 2);
  EXPECT_NEAR(attend(attention).lse[0], std::log(1 + std::exp(capped)), 1e-15);
}

TEST(Reference, DoesNotOverflowWithLargeScores) {
  const FourKeys keys;
  Attention attention = keys.attention(4);
  attention.scale = 1e5;
  const Answer answer = attend(attention);
  EXPECT_EQ(answer.out[0], 1000);
  EXPECT_NEAR(answer.lse[0], 1e5 * std::log(4), 1e-9);
}

TEST(Reference, ReadsTheKvHeadOfItsGroupAndNothingBeyondTheLength) {
  // 2 rows, 4 query heads on 2 kv heads, 3 tokens of which 2 and 1 are real; v tells who was read.
  const std::vector<float> q(2 * 4, 1.0f);
  std::vector<float> k(2 * 2 * 3, 0.0f), v(2 * 2 * 3);
  const int64_t kv_len[] = {2, 1};
  for (int i = 0; i < 12; ++i) {
    const bool real = i % 3 < kv_len[i / 6];
    v[i] = real ? float(100 * (i / 6) + 10 * (i / 3 % 2)) : NAN;
    if (!real) k[i] = NAN;
  }
  Attention attention;
  attention.q_heads = 4;
  attention.kv_heads = 2;
  attention.q = dense(Element::fp32, q.data(), 4, 1, 1);
  attention.k = dense(Element::fp32, k.data(), 2, 3, 1);
  attention.v = dense(Element::fp32, v.data(), 2, 3, 1);
  attention.kv_len = {2, 1};
  for (const int threads : {1, 3}) {
    EXPECT_EQ(attend(attention, threads).out,
              (std::vector<double>{0, 0, 10, 10, 100, 100, 110, 110}));
  }
}

TEST(Reference, ConvertsHalfTypesExactly) {
  EXPECT_EQ(value_of_fp16(0x3c00), 1);
  EXPECT_EQ(value_of_fp16(0xc500), -5);
  EXPECT_EQ(value_of_fp16(0x7bff), 65504);
  EXPECT_EQ(value_of_fp16(0x0001), std::ldexp(1, -24));
  EXPECT_EQ(value_of_fp16(0x03ff), std::ldexp(1023, -24));
  EXPECT_EQ(value_of_fp16(0xfc00), -kInfinity);
  EXPECT_TRUE(std::isnan(value_of_fp16(0x7e00)));
  EXPECT_EQ(value_of_bf16(0x3f80), 1);
  EXPECT_EQ(value_of_bf16(0xc0a0), -5);
  EXPECT_EQ(value_of_bf16(0x0001), std::ldexp(1, -133));
  EXPECT_EQ(value_of_bf16(0x7f80), kInfinity);
  EXPECT_TRUE(std::isnan(value_of_bf16(0xffff)));
  const uint16_t two[] = {0x3c00, 0xc500};
  EXPECT_EQ(value_at(Element::fp16, two, 1), -5);
}

TEST(Reference, Converts8BitTypesExactly) {
  EXPECT_EQ(value_of_e4m3(0x38), 1);
  EXPECT_EQ(value_of_e4m3(0xca), -5);
  EXPECT_EQ(value_of_e4m3(0x7e), 448);
  EXPECT_EQ(value_of_e4m3(0x01), std::ldexp(1, -9));
  EXPECT_EQ(value_of_e4m3(0x87), -std::ldexp(7, -9));
  EXPECT_TRUE(std::isnan(value_of_e4m3(0x7f)));
  EXPECT_TRUE(std::isnan(value_of_e4m3(0xff)));
  EXPECT_EQ(value_of_e5m2(0x3c), 1);
  EXPECT_EQ(value_of_e5m2(0xc5), -5);
  EXPECT_EQ(value_of_e5m2(0x7b), 57344);
  EXPECT_EQ(value_of_e5m2(0x01), std::ldexp(1, -16));
  EXPECT_EQ(value_of_e5m2(0xfc), -kInfinity);
  EXPECT_TRUE(std::isnan(value_of_e5m2(0x7d)));
  const uint8_t three[] = {0x80, 0x7f, 0xff};
  EXPECT_EQ(value_at(Element::int8, three, 0), -128);
  EXPECT_EQ(value_at(Element::int8, three, 1), 127);
  EXPECT_EQ(value_at(Element::int8, three, 2), -1);
}

TEST(Accuracy, TakesTheToleranceOfTheCoarsestType) {
  const auto tolerance = [](std::initializer_list<Element> types) {
    return tolerance_for(std::span(types.begin(), types.size()));
  };
  EXPECT_EQ(tolerance({Element::fp32, Element::fp32}), (Tolerance{1e-5, 1e-5, 4}));
  EXPECT_EQ(tolerance({Element::fp32, Element::fp16}), (Tolerance{1e-3, 1e-3, 4}));
  EXPECT_EQ(tolerance({Element::bf16, Element::fp16}), (Tolerance{4e-3, 1e-3, 4}));
  // 8-bit K and V are compared after dequantisation, and count as bf16 beside 16-bit types.
  EXPECT_EQ(tolerance({Element::fp16, Element::e4m3}), (Tolerance{4e-3, 1e-3, 4}));
  EXPECT_EQ(tolerance({Element::fp32, Element::int8}), (Tolerance{1e-5, 1e-5, 4}));
}

TEST(Accuracy, AllowsWhatRoundingDoesToElementsNearZero) {
  const std::vector<double> tiny = {1e-9, -2e-9}, zeros = {0, 0}, ones = {1, 1}, off = {1, 1.1};
  Tolerance tolerance{1e-3, 1e-3, 4};
  EXPECT_FALSE(compare({.out = zeros, .expected_out = tiny, .dim = 2}, tolerance).out_ok);
  tolerance.out_absolute = 0x1p-25;
  EXPECT_TRUE(compare({.out = zeros, .expected_out = tiny, .dim = 2}, tolerance).out_ok);
  EXPECT_FALSE(compare({.out = off, .expected_out = ones, .dim = 2}, tolerance).out_ok);
  EXPECT_FALSE(compare({.out = tiny, .expected_out = zeros, .dim = 2}, tolerance).out_ok);
}

TEST(Accuracy, WidensByUlpsOfTheLargestLse) {
  const Tolerance fp32{1e-5, 1e-5, 4};
  // 2e-5 is within 4 ulp of 476, but not of 1: a row's own |lse| widens its limit, no other's.
  const std::vector<double> out = {1, 1 + 2e-5}, expected = {1, 1};
  const auto judged = [&](std::array<double, 2> lse) {
    return compare({.out = out, .expected_out = expected, .dim = 1, .lse_natural = lse},
                   widened_for_lse_partials(fp32));
  };
  EXPECT_TRUE(judged({1.0, -476.0}).ok());
  EXPECT_FALSE(judged({-476.0, 1.0}).ok());
}

Accuracy judge_out(std::vector<double> out, std::vector<double> expected) {
  return compare({.out = out, .expected_out = expected, .dim = 2}, {1e-3, 1e-3, 4});
}

TEST(Accuracy, FindsTheWorstRow) {
  const Accuracy accuracy = judge_out({3, 4, 30, 40.1, 3, 4}, {3, 4, 30, 40, 3, 4});
  EXPECT_EQ(accuracy.out_worst_row, 1);
  EXPECT_NEAR(accuracy.out_relative_l2, 0.1 / 50, 1e-12);
  EXPECT_FALSE(accuracy.ok());
  EXPECT_TRUE(judge_out({3, 4.0001}, {3, 4}).ok());
}

TEST(Accuracy, AcceptsNoNaNAndNothingButZeroInAnEmptyRow) {
  EXPECT_FALSE(judge_out({kNaN, 4}, {3, 4}).ok());
  EXPECT_FALSE(judge_out({3, 4, 3, kNaN}, {3, 4, 3, 4}).ok());
  EXPECT_FALSE(judge_out({kInfinity, 4}, {3, 4}).ok());
  EXPECT_FALSE(judge_out({0, 1e-30}, {0, 0}).ok());
  EXPECT_TRUE(judge_out({0, 0}, {0, 0}).ok());
}

Accuracy judge_lse(std::vector<double> lse, std::vector<double> expected) {
  return compare({.lse = lse, .expected_lse = expected, .dim = 2}, {1e-5, 1e-5, 4});
}

TEST(Accuracy, MeasuresTheLseByItsOwnUlp) {
  EXPECT_TRUE(judge_lse({1.000009, -kInfinity}, {1, -kInfinity}).ok());
  EXPECT_FALSE(judge_lse({1.000011}, {1}).ok());
  EXPECT_TRUE(judge_lse({476.0001}, {476}).ok());  // 4 ulp are 1.2e-4
  EXPECT_FALSE(judge_lse({476.00013}, {476}).ok());
  EXPECT_FALSE(judge_lse({-kInfinity}, {1}).ok());
  EXPECT_FALSE(judge_lse({-1e30}, {-kInfinity}).ok());
  EXPECT_FALSE(judge_lse({kNaN}, {-kInfinity}).ok());
  EXPECT_FALSE(judge_lse({kNaN, 1}, {1, 1}).ok());
  const Accuracy accuracy = judge_lse({476.0001, 1.00002}, {476, 1});
  EXPECT_EQ(accuracy.lse_worst_row, 1);
  EXPECT_EQ(accuracy.lse_limit, 1e-5);
}

}  // namespace
}  // namespace splitkv::reference
