#include "compiler/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

using Mlo = PartialMlo<double, LogBase::natural>;
using Lse = PartialLse<double, LogBase::natural>;
constexpr int kDim = 5;

template <class T>
struct Row {
  std::vector<T> scores;  // [keys]
  std::vector<T> values;  // [keys, kDim]

  KeySet<T> keys(size_t begin, size_t end) const {
    return {std::span(scores).subspan(begin, end - begin),
            std::span(values).subspan(begin * kDim, (end - begin) * kDim), kDim};
  }
  KeySet<T> keys() const { return keys(0, scores.size()); }
};

template <class T = double>
Row<T> random_row(Engine& engine, int length, double mean = 0, double spread = 3) {
  std::normal_distribution<double> normal;
  Row<T> row;
  for (int j = 0; j < length; ++j) {
    row.scores.push_back(T(mean + spread * normal(engine)));
    for (int i = 0; i < kDim; ++i) row.values.push_back(T(normal(engine)));
  }
  return row;
}

// Softmax over the whole row, two passes in long double, sharing nothing with the algebra.
struct Expected {
  double lse;
  std::vector<double> o;
};

template <class T>
Expected two_pass(const Row<T>& row) {
  const long double peak = *std::max_element(row.scores.begin(), row.scores.end());
  long double total = 0;
  std::vector<long double> sums(kDim);
  for (size_t j = 0; j < row.scores.size(); ++j) {
    const long double weight = expl((long double)row.scores[j] - peak);
    total += weight;
    for (size_t i = 0; i < kDim; ++i) sums[i] += weight * row.values[j * kDim + i];
  }
  Expected expected{double(peak + logl(total)), {}};
  for (long double sum : sums) expected.o.push_back(double(sum / total));
  return expected;
}

void expect_near(const Lse& got, const Expected& expected, double tolerance) {
  EXPECT_NEAR(got.s, expected.lse, tolerance * std::max(1.0, std::fabs(expected.lse)));
  for (size_t i = 0; i < kDim; ++i) EXPECT_NEAR(got.o[i], expected.o[i], tolerance);
}

// Cuts a row at random places; some pieces hold no key.
template <class T>
std::vector<PartialMlo<T, LogBase::natural>> random_pieces(Engine& engine, const Row<T>& row) {
  const int length = int(row.scores.size());
  std::vector<int> cuts = {0, length};
  for (int i = between(engine, 0, 12); i > 0; --i) cuts.push_back(between(engine, 0, length));
  std::sort(cuts.begin(), cuts.end());
  std::vector<PartialMlo<T, LogBase::natural>> pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    pieces.push_back(
        tile_partial<T, LogBase::natural>(row.keys(size_t(cuts[i]), size_t(cuts[i + 1]))));
  return pieces;
}

MergeTree random_tree(Engine& engine, int partials) {
  MergeTree tree;
  std::vector<int> open(static_cast<size_t>(partials));
  std::iota(open.begin(), open.end(), 0);
  while (open.size() > 1) {
    std::shuffle(open.begin(), open.end(), engine);
    const int right = open.back();
    open.pop_back();
    tree.joins.push_back({open.back(), right});
    open.back() = partials + int(tree.joins.size()) - 1;
  }
  return tree;
}

std::vector<Lse> as_lse(const std::vector<Mlo>& partials) {
  std::vector<Lse> converted;
  for (const Mlo& partial : partials) converted.push_back(to_lse(partial));
  return converted;
}

TEST(Merge, AnyTreeOfBothVariantsGivesTheTwoPassSoftmax) {
  Engine engine(1);
  for (int i = 0; i < 300; ++i) {
    const auto row = random_row(engine, between(engine, 1, 90), between(engine, -40, 40));
    const Expected expected = two_pass(row);
    const std::vector<Mlo> mlo = random_pieces(engine, row);
    const std::vector<Lse> lse = as_lse(mlo);
    const std::span<const Mlo> mlo_span(mlo);
    const std::span<const Lse> lse_span(lse);
    expect_near(to_lse(merge(mlo_span)), expected, 1e-12);
    expect_near(merge(lse_span), expected, 1e-12);
    for (int k = 0; k < 5; ++k) {
      const MergeTree tree = random_tree(engine, int(mlo.size()));
      expect_near(to_lse(merge(mlo_span, tree)), expected, 1e-12);
      expect_near(merge(lse_span, tree), expected, 1e-12);
    }
    expect_near(to_lse(merge(mlo_span, pairwise_tree(int(mlo.size())))), expected, 1e-12);
  }
}

TEST(Merge, EmptiesAreNeutralBitForBit) {
  Engine engine(2);
  const Mlo no_mlo = empty_partial<Mlo>(kDim);
  const Lse no_lse = empty_partial<Lse>(kDim);
  for (int i = 0; i < 200; ++i) {
    const auto row = random_row(engine, between(engine, 1, 30), 500, 100);
    const Mlo mlo = tile_partial<double, LogBase::natural>(row.keys());
    const Lse lse = to_lse(mlo);
    EXPECT_EQ(merge(mlo, no_mlo), mlo);
    EXPECT_EQ(merge(no_mlo, mlo), mlo);
    EXPECT_EQ(merge(lse, no_lse), lse);
    EXPECT_EQ(merge(no_lse, lse), lse);

    std::vector<Mlo> pieces = random_pieces(engine, row);
    std::vector<Mlo> padded;
    for (const Mlo& piece : pieces) {
      while (coin(engine)) padded.push_back(no_mlo);
      padded.push_back(piece);
    }
    EXPECT_EQ(merge(std::span<const Mlo>(padded)), merge(std::span<const Mlo>(pieces)));
    const auto padded_lse = as_lse(padded), pieces_lse = as_lse(pieces);
    EXPECT_EQ(merge(std::span<const Lse>(padded_lse)), merge(std::span<const Lse>(pieces_lse)));
  }
}

// Scratch that nobody wrote may hold anything: selection never looks at it, a weight of zero would.
TEST(Merge, WhatLiesInAnEmptysOutputNeverMatters) {
  Engine engine(12);
  const auto row = random_row(engine, 20);
  const Mlo full = tile_partial<double, LogBase::natural>(row.keys());
  Mlo stale = empty_partial<Mlo>(kDim);
  stale.o.assign(kDim, NAN);
  const Lse stale_lse = {-INFINITY, stale.o};
  EXPECT_EQ(merge(full, stale), full);
  EXPECT_EQ(merge(stale, full), full);
  EXPECT_EQ(merge(to_lse(full), stale_lse), to_lse(full));
  const std::vector<Mlo> mlo = {stale, full, stale, full};
  const std::vector<Lse> lse = {stale_lse, to_lse(full), stale_lse, to_lse(full)};
  EXPECT_EQ(merge(std::span<const Mlo>(mlo)), merge(full, full));
  EXPECT_EQ(merge(std::span<const Lse>(lse)).o, merge(to_lse(full), to_lse(full)).o);
}

TEST(Merge, NothingJoinedWithNothingIsNothing) {
  const Mlo no_mlo = empty_partial<Mlo>(kDim);
  const Lse no_lse = empty_partial<Lse>(kDim);
  EXPECT_EQ(merge(no_mlo, no_mlo), no_mlo);
  EXPECT_EQ(merge(no_lse, no_lse), no_lse);
  const std::vector<Mlo> three_mlo(3, no_mlo);
  const std::vector<Lse> three_lse(3, no_lse);
  EXPECT_EQ(merge(std::span<const Mlo>(three_mlo)), no_mlo);
  EXPECT_EQ(merge(std::span<const Lse>(three_lse)), no_lse);
  EXPECT_EQ(to_lse(no_mlo), no_lse);
  EXPECT_EQ(to_mlo(no_lse), no_mlo);
  EXPECT_TRUE(is_empty(no_mlo) && is_empty(no_lse));
  EXPECT_EQ(no_lse.s, -INFINITY);
  EXPECT_EQ(no_mlo.o, std::vector<double>(kDim, 0.0));
}

TEST(Merge, AMaskedKeyIsLikeNoKeyEvenIfItsValueIsNan) {
  Engine engine(3);
  const auto row = random_row(engine, 12);
  Row<double> with_masked = row;
  with_masked.scores.insert(with_masked.scores.begin() + 5, -INFINITY);
  with_masked.values.insert(with_masked.values.begin() + 5 * kDim, kDim, NAN);
  const auto tile = tile_partial<double, LogBase::natural>(row.keys());
  EXPECT_EQ((tile_partial<double, LogBase::natural>(with_masked.keys())), tile);
  EXPECT_EQ((per_key_partial<double, LogBase::natural>(with_masked.keys())),
            (per_key_partial<double, LogBase::natural>(row.keys())));
  const Row<double> all_masked{std::vector<double>(4, -INFINITY),
                               std::vector<double>(4 * kDim, NAN)};
  EXPECT_TRUE(is_empty(tile_partial<double, LogBase::natural>(all_masked.keys())));
  EXPECT_TRUE(is_empty(per_key_partial<double, LogBase::natural>(all_masked.keys())));
}

TEST(Merge, ThePerKeyRecurrenceGivesTheTileForm) {
  Engine engine(4);
  for (int i = 0; i < 200; ++i) {
    const auto row = random_row(engine, between(engine, 1, 200), between(engine, -300, 300), 20);
    const Mlo tile = tile_partial<double, LogBase::natural>(row.keys());
    const Mlo per_key = per_key_partial<double, LogBase::natural>(row.keys());
    EXPECT_EQ(per_key.m, tile.m);
    EXPECT_NEAR(per_key.l, tile.l, 1e-12 * tile.l);
    for (size_t k = 0; k < kDim; ++k) EXPECT_NEAR(per_key.o[k], tile.o[k], 1e-12);
  }
}

TEST(Merge, RoundRobinStreamsGiveTheTwoPassSoftmax) {
  Engine engine(5);
  for (int i = 0; i < 200; ++i) {
    const auto row = random_row(engine, between(engine, 1, 150));
    const int tile = between(engine, 1, 40), streams = between(engine, 1, 12);
    const Mlo joined = round_robin_partial<double, LogBase::natural>(row.keys(), tile, streams);
    expect_near(to_lse(joined), two_pass(row), 1e-12);
  }
}

TEST(Merge, BothVariantsConvertIntoEachOther) {
  Engine engine(6);
  const auto row = random_row(engine, 40);
  const Mlo mlo = tile_partial<double, LogBase::natural>(row.keys());
  const Lse lse = to_lse(mlo);
  EXPECT_EQ(lse.s, mlo.m + std::log(mlo.l));
  const Mlo back = to_mlo(lse);
  EXPECT_EQ(back.m, lse.s);
  EXPECT_EQ(back.l, 1);
  EXPECT_EQ(back.o, mlo.o);
  EXPECT_EQ(to_lse(back), lse);
}

TEST(Merge, ABase2PartialIsTheNaturalOneInLog2Units) {
  Engine engine(7);
  const auto natural = random_row(engine, 70);
  Row<double> base2 = natural;
  for (double& score : base2.scores) score *= std::numbers::log2e;
  const auto a = to_lse(tile_partial<double, LogBase::two>(base2.keys(0, 31)));
  const auto b = to_lse(tile_partial<double, LogBase::two>(base2.keys(31, 70)));
  const auto joined = merge(a, b);
  const Expected expected = two_pass(natural);
  EXPECT_NEAR(joined.s, expected.lse * std::numbers::log2e, 1e-12);
  for (size_t i = 0; i < kDim; ++i) EXPECT_NEAR(joined.o[i], expected.o[i], 1e-12);
}

template <class A, class B>
concept Joins = requires(A a, B b) {
  merge(a, b);
};
static_assert(Joins<Lse, Lse> && Joins<Mlo, Mlo>);
static_assert(!Joins<Lse, PartialLse<double, LogBase::two>>, "bases do not mix");
static_assert(!Joins<Mlo, Lse>, "forms do not mix");

// The worst error of o over 64 pieces joined in fp32, at scores around `mean`.
struct Fp32Error {
  double mlo = 0;
  double lse = 0;
};

Fp32Error fp32_error(double mean) {
  Engine engine(8);
  Fp32Error worst;
  for (int run = 0; run < 10; ++run) {
    const auto row = random_row<float>(engine, 1024, mean, 1);
    const Expected expected = two_pass(row);
    using MloF = PartialMlo<float, LogBase::natural>;
    using LseF = PartialLse<float, LogBase::natural>;
    std::vector<MloF> mlo;
    std::vector<LseF> lse;
    for (size_t begin = 0; begin < 1024; begin += 16) {
      mlo.push_back(tile_partial<float, LogBase::natural>(row.keys(begin, begin + 16)));
      lse.push_back(to_lse(mlo.back()));
    }
    const MloF by_mlo = merge(std::span<const MloF>(mlo));
    const LseF by_lse = merge(std::span<const LseF>(lse));
    for (size_t i = 0; i < kDim; ++i) {
      worst.mlo = std::max(worst.mlo, std::fabs(by_mlo.o[i] - expected.o[i]));
      worst.lse = std::max(worst.lse, std::fabs(by_lse.o[i] - expected.o[i]));
    }
  }
  return worst;
}

TEST(Merge, InFp32OnlyTheLseJoinLosesAccuracyWithTheSizeOfS) {
  const Fp32Error small = fp32_error(0), large = fp32_error(500), huge = fp32_error(20000);
  for (const Fp32Error& error : {small, large, huge}) EXPECT_LT(error.mlo, 1e-6);
  EXPECT_LT(small.lse, 2e-6);
  EXPECT_GT(large.lse, 5 * large.mlo);
  EXPECT_GT(huge.lse, 5 * large.lse);
  EXPECT_LT(huge.lse, 1e-2);
}

}  // namespace
}  // namespace splitkv
