// The table of docs/mathematics.md, section 9: what each form of a partial loses in fp32. The test
// prints it and holds the statements made there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "compiler/merge.hpp"

namespace splitkv {
namespace {

using MloF = PartialMlo<float, LogBase::natural>;
using LseF = PartialLse<float, LogBase::natural>;

constexpr int kKeys = 8192;
constexpr int kPieces = 64;
constexpr int kDim = 64;
constexpr int kRuns = 5;

struct Row {
  std::vector<float> scores;  // [kKeys], normal around `mean`
  std::vector<float> values;  // [kKeys, kDim], normal
};

Row random_row(float mean, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Row row{std::vector<float>(kKeys), std::vector<float>(size_t(kKeys) * kDim)};
  for (float& score : row.scores) score = mean + normal(engine);
  for (float& value : row.values) value = normal(engine);
  return row;
}

std::vector<MloF> pieces_of(const Row& row) {
  std::vector<MloF> pieces;
  constexpr int each = kKeys / kPieces;
  for (int b = 0; b < kPieces; ++b) {
    const std::span<const float> scores(row.scores), values(row.values);
    pieces.push_back(tile_partial<float, LogBase::natural>(
        {scores.subspan(size_t(b) * each, each),
         values.subspan(size_t(b) * each * kDim, each * kDim), kDim}));
  }
  return pieces;
}

// The same row in double precision.
PartialMlo<double, LogBase::natural> exact(const Row& row) {
  const std::vector<double> scores(row.scores.begin(), row.scores.end());
  const std::vector<double> values(row.values.begin(), row.values.end());
  return tile_partial<double, LogBase::natural>({scores, values, kDim});
}

// O = sum exp(S_b - S) o_b, without division by the sum of the weights.
std::vector<float> lse_join_as_written(const std::vector<LseF>& pieces, float s) {
  std::vector<float> o(kDim);
  for (const LseF& piece : pieces)
    for (int i = 0; i < kDim; ++i) o[size_t(i)] += std::exp(piece.s - s) * piece.o[size_t(i)];
  return o;
}

double relative_l2(const std::vector<float>& o, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    error += (o[i] - expected[i]) * (o[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

struct Losses {
  double s = 0;
  double half_ulp = 0;
  double mlo = 0;  // the worst of kRuns
  double lse_as_written = 0;
  double lse = 0;
};

Losses losses_at(float mean) {
  Losses worst;
  for (unsigned run = 0; run < kRuns; ++run) {
    const Row row = random_row(mean, run);
    const std::vector<MloF> pieces = pieces_of(row);
    std::vector<LseF> lse_pieces;
    for (const MloF& piece : pieces) lse_pieces.push_back(to_lse(piece));

    const auto expected = exact(row);
    const MloF mlo = merge(std::span<const MloF>(pieces));
    const LseF lse = merge(std::span<const LseF>(lse_pieces));
    worst.mlo = std::max(worst.mlo, relative_l2(mlo.o, expected.o));
    worst.lse = std::max(worst.lse, relative_l2(lse.o, expected.o));
    worst.lse_as_written = std::max(
        worst.lse_as_written, relative_l2(lse_join_as_written(lse_pieces, lse.s), expected.o));
    worst.s = std::max(worst.s, to_lse(expected).s);
  }
  const float s = float(worst.s);
  worst.half_ulp = double(std::nextafter(s, INFINITY) - s) / 2;
  return worst;
}

TEST(Rounding, MloKeepsItsAccuracyAtAnyScoreWhileLseLosesHalfAnUlpOfS) {
  std::printf("       S | half ulp |   mlo   | lse as written | lse over sum of weights\n");
  for (const float mean : {0.f, 100.f, 467.f, 4000.f, 21551.f}) {
    const Losses loss = losses_at(mean);
    std::printf("%8.1f | %.1e  | %.1e |        %.1e | %.1e\n", loss.s, loss.half_ulp, loss.mlo,
                loss.lse_as_written, loss.lse);
    EXPECT_LT(loss.mlo, 1e-6) << "S = " << loss.s;
    EXPECT_LT(loss.lse, 1e-6 + 4 * 2 * loss.half_ulp) << "S = " << loss.s;
    EXPECT_LT(loss.lse, loss.lse_as_written) << "S = " << loss.s;
    if (loss.s > 400) {
      EXPECT_GT(loss.lse, 10 * loss.mlo) << "S = " << loss.s;
    }
  }
}

TEST(Rounding, ASmallConstantInsideTheLogarithmChangesNoNonEmptySum) {
  for (const float l : {1.0f, 1.5f, 64.0f, 8192.0f}) EXPECT_EQ(l + 1e-12f, l);
}

TEST(Rounding, ThePairwiseFormulaWithoutSelectionMakesNanOfTwoEmpties) {
  const float m = -INFINITY;
  EXPECT_TRUE(std::isnan(std::exp(m - std::max(m, m))));
  const MloF empty = empty_partial<MloF>(kDim);
  EXPECT_EQ(merge(empty, empty), empty);
}

}  // namespace
}  // namespace splitkv
