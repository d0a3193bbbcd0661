// Every option of the reference against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/reference/attention.hpp"

namespace splitkv::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Keys of score 0 with values 1, 10, 100, 1000, ...: out tells by its digits which keys a query
// sees, lse how many.
struct Digits {
  std::vector<double> zeros = std::vector<double>(64, 0.0);
  std::vector<double> powers;

  Digits() {
    for (int i = 0; i < 8; ++i) powers.push_back(std::pow(10, i));
  }
  Attention attention(int64_t keys, int64_t queries = 1) const {
    Attention a;
    a.query_len = queries;
    a.q = dense(Element::fp64, zeros.data(), 1, queries, 1);
    a.k = dense(Element::fp64, zeros.data(), 1, 8, 1);
    a.v = dense(Element::fp64, powers.data(), 1, 8, 1);
    a.kv_len = {keys};
    return a;
  }
};

// Which keys each query sees, as the decimal digits of a number; 0 for a query without keys.
std::vector<double> seen(const Attention& attention) {
  const Answer answer = attend(attention, 1);
  std::vector<double> digits;
  for (size_t i = 0; i < answer.out.size(); ++i) {
    const double weight = std::exp(answer.lse[i]);
    digits.push_back(std::round(answer.out[i] * weight));
  }
  return digits;
}

using Seen = std::vector<double>;

TEST(ReferenceMask, CausalLetsTheLastQueryStandAtTheLastKey) {
  const Digits digits;
  EXPECT_EQ(seen(digits.attention(4, 3)), (Seen{11, 111, 1111}));
}

TEST(ReferenceMask, QueriesBeforeTheFirstKeySeeNothing) {
  const Digits digits;
  const Answer answer = attend(digits.attention(2, 4));
  EXPECT_EQ(seen(digits.attention(2, 4)), (Seen{0, 0, 1, 11}));
  EXPECT_EQ(answer.out[0], 0);
  EXPECT_EQ(answer.lse[1], -kInfinity);
}

TEST(ReferenceMask, NoneShowsEveryKeyToEveryQuery) {
  const Digits digits;
  Attention attention = digits.attention(3, 2);
  attention.mask = Mask::none;
  EXPECT_EQ(seen(attention), (Seen{111, 111}));
}

TEST(ReferenceMask, WindowsAreEachQuerysOwn) {
  const Digits digits;
  Attention attention = digits.attention(5, 3);
  attention.window = 2;
  EXPECT_EQ(seen(attention), (Seen{110, 1100, 11000}));
  attention.mask = Mask::none;
  EXPECT_EQ(seen(attention), (Seen{11110, 11100, 11000}));
}

TEST(ReferenceMask, ChunksBeginAtMultiplesOfTheirSize) {
  const Digits digits;
  Attention attention = digits.attention(5, 4);
  attention.chunk = 3;
  EXPECT_EQ(seen(attention), (Seen{11, 111, 1000, 11000}));
  // Queries at -2 and -1 are in the chunk [-3, 0), which has no keys; with mask=none they see those
  // after it.
  Attention before = digits.attention(1, 3);
  before.chunk = 3;
  before.mask = Mask::none;
  EXPECT_EQ(seen(before), (Seen{1, 1, 1}));
}

TEST(ReferenceMask, TreesHideKeysOfOtherBranches) {
  const Digits digits;
  Attention attention = digits.attention(5, 3);
  attention.mask = Mask::tree;
  // Keys 0 and 1 come before the tree; query 1 hangs below 0, query 2 beside it.
  const int bits[] = {0b001, 0b011, 0b100};
  attention.tree = [&](int64_t, int64_t query, int64_t bit) {
    return (bits[query] >> bit & 1) != 0;
  };
  EXPECT_EQ(seen(attention), (Seen{111, 1111, 10011}));
}

TEST(ReferenceMask, PredicatesSeePositionsAndIndices) {
  const Digits digits;
  Attention attention = digits.attention(6, 2);
  attention.predicate = "key_pos%2==0||key_pos==query_pos";
  EXPECT_EQ(seen(attention), (Seen{10101, 110101}));
  attention.predicate = "key_pos>=kv_len-first&&batch==0&&head==0";
  attention.params = {{"first", Param::Per::row, {3}}};
  EXPECT_EQ(seen(attention), (Seen{11000, 111000}));
}

TEST(ReferenceRows, BeginHidesPaddingOnTheLeft) {
  const Digits digits;
  Attention attention = digits.attention(4);
  attention.kv_begin = {2};
  EXPECT_EQ(seen(attention), (Seen{1100}));
  attention.kv_begin = {9};
  EXPECT_EQ(seen(attention), (Seen{0}));
}

TEST(ReferenceRows, FewerQueriesStandAtTheEndAndTheOthersAreEmpty) {
  const Digits digits;
  Attention attention = digits.attention(4, 3);
  attention.queries = {2};
  EXPECT_EQ(seen(attention), (Seen{111, 1111, 0}));
}

TEST(ReferenceRows, StridedKeysStandAtGlobalPositions) {
  const Digits digits;
  // Keys 1, 3, 5, 7 of 8; queries at 6 and 7.
  Attention attention = digits.attention(4, 2);
  attention.total_len = {8};
  attention.pos0 = 1;
  attention.pos_step = 2;
  EXPECT_EQ(seen(attention), (Seen{111, 1111}));
  attention.window = 4;  // query 6 sees positions 3 to 6, query 7 sees 4 to 7
  EXPECT_EQ(seen(attention), (Seen{110, 1100}));
  attention.window = 0;
  attention.predicate = "kv_len==8&&key_pos>=5";
  EXPECT_EQ(seen(attention), (Seen{100, 1100}));
}

TEST(ReferenceScore, AlibiFallsWithTheDistance) {
  const Digits digits;
  Attention attention = digits.attention(3);
  attention.alibi_slopes = {std::log(2)};
  const Answer answer = attend(attention);
  EXPECT_NEAR(answer.out[0], (0.25 * 1 + 0.5 * 10 + 100) / 1.75, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(1.75), 1e-14);
}

TEST(ReferenceScore, BiasIsAddedAfterTheCapAndMasks) {
  const Digits digits;
  Attention attention = digits.attention(3);
  attention.softcap = 1;
  const double bias[] = {std::log(2), -kInfinity, std::log(6)};
  attention.bias = [&](int64_t, int64_t, int64_t, int64_t key) { return bias[key]; };
  const Answer answer = attend(attention);
  EXPECT_NEAR(answer.out[0], (2 * 1 + 6 * 100) / 8.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(8), 1e-14);
  attention.bias = [](int64_t, int64_t, int64_t, int64_t) { return -kInfinity; };
  const Answer empty = attend(attention);
  EXPECT_EQ(empty.out[0], 0);
  EXPECT_EQ(empty.lse[0], -kInfinity);
}

TEST(ReferenceScore, UserExpressionsComeLast) {
  const Digits digits;
  Attention attention = digits.attention(3);
  attention.alibi_slopes = {1};
  attention.score = "log(factor)+0*score+select(key_pos<1,log(3),0)";
  attention.params = {{"factor", Param::Per::head, {5}}};
  const Answer answer = attend(attention);
  EXPECT_NEAR(answer.out[0], (15 * 1 + 5 * 10 + 5 * 100) / 25.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(25), 1e-14);
}

TEST(ReferenceScore, ScalesMultiplyDotsAndValues) {
  const std::vector<double> q = {2}, k = {1, 1}, v = {1, 10};
  Attention attention;
  attention.q = dense(Element::fp64, q.data(), 1, 1, 1);
  attention.k = dense(Element::fp64, k.data(), 1, 2, 1);
  attention.v = dense(Element::fp64, v.data(), 1, 2, 1);
  attention.kv_len = {2};
  const double k_scale[] = {0, std::log(3) / 2}, v_scale[] = {4, 0.5};
  attention.k_scale = [&](int64_t, int64_t, int64_t key) { return k_scale[key]; };
  attention.v_scale = [&](int64_t, int64_t, int64_t key) { return v_scale[key]; };
  const Answer answer = attend(attention);  // weights 1 and 3
  EXPECT_NEAR(answer.out[0], (4 * 1 + 3 * 0.5 * 10) / 4.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(4), 1e-14);
}

TEST(ReferenceSink, IsOneMoreLogitWithoutAValue) {
  const Digits digits;
  Attention attention = digits.attention(2);
  attention.sinks = {std::log(6)};
  const Answer answer = attend(attention);
  EXPECT_NEAR(answer.out[0], 11 / 8.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], std::log(8), 1e-14);
}

TEST(ReferenceSink, IsTheLseOfAnEmptyRowAndMayBeHuge) {
  const Digits digits;
  Attention attention = digits.attention(0);
  attention.sinks = {-2.5};
  EXPECT_EQ(attend(attention).lse[0], -2.5);
  EXPECT_EQ(attend(attention).out[0], 0);
  Attention huge = digits.attention(2);
  huge.sinks = {3e38};
  EXPECT_EQ(attend(huge).lse[0], 3e38);
  EXPECT_EQ(attend(huge).out[0], 0);
  huge.sinks = {-kInfinity};
  EXPECT_NEAR(attend(huge).lse[0], std::log(2), 1e-14);
}

}  // namespace
}  // namespace splitkv::reference
