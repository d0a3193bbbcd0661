// Random legal (problem, schedule, step) cases against the fp64 reference. A case is named by its
// number: SPLITKV_PROPERTY_FIRST is the first shard's first, SPLITKV_PROPERTY_CASES how many all
// four draw together.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>

#include "compiler/merge.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/numeric/draws.hpp"
#include "tests/numeric/test_device.hpp"
#include "tools/reference/attention.hpp"
#include "tools/splitkv/partials.hpp"

namespace splitkv {
namespace {

using testing_support::Case;
using testing_support::count;
using testing_support::Draw;
using testing_support::Drawn;
using testing_support::test_device;
using testing_support::test_target;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

// Steps that are drawn for the same kernels: compiling takes longer than running.
constexpr int kStepsAKernel = 4;

// Of one process.
constexpr int kCasesThatDrawAll = 400;

struct Tally {
  Drawn drawn;
  int cases = 0;
  int several_pieces = 0;
  double worst = 0;
};

void expect_right(const Case& c, uint64_t seed, Tally& tally) {
  const std::string schedule = print(c.schedule);
  const tool::Inputs inputs = tool::generate_inputs(c.problem, c.kv_len, seed, c.form);
  SCOPED_TRACE(fmt::format("seed {}: {} | {} | kv_len {} | queries {} | kv_begin {}", seed,
                           print(c.problem), schedule, c.kv_len, c.form.queries, c.form.kv_begin));
  const auto judged =
      testing_support::judge_inputs(test_device(), c.problem, schedule, inputs, seed);
  ++tally.cases;
  count(c, tally.drawn);
  const tool::Rows rows = tool::rows_of(c.problem, inputs);
  tally.several_pieces += tool::count_partials(c.problem, c.schedule, rows).pieces >= 2;
  ASSERT_EQ(judged.failure, "");
  const reference::Accuracy& accuracy = judged.accuracy;
  EXPECT_TRUE(accuracy.out_ok) << accuracy.out_relative_l2 << " above " << accuracy.out_limit
                               << " in row " << accuracy.out_worst_row;
  EXPECT_TRUE(accuracy.lse_ok) << accuracy.lse_error << " above " << accuracy.lse_limit
                               << " in row " << accuracy.lse_worst_row;
  EXPECT_TRUE(judged.execution.repeatable);
  tally.worst = std::max(tally.worst, accuracy.out_relative_l2 / accuracy.out_limit);
}

void print_tally(const Tally& tally) {
  std::printf(
      "%d cases on %s, %d with two or more non-empty partials, worst error %.2f of its "
      "limit\n",
      tally.cases, testing_support::test_device_name().c_str(), tally.several_pieces, tally.worst);
  for (const auto& [value, times] : tally.drawn) std::printf("  %s: %d\n", value.c_str(), times);
}

// Every value was drawn, by this shard or by one before it in this process.
void expect_all_drawn(const Tally& tally, const Target& target) {
  static Drawn drawn;
  static int cases = 0;
  for (const auto& [value, times] : tally.drawn) drawn[value] += times;
  cases += tally.cases;
  if (cases < kCasesThatDrawAll) return;
  for (const std::string& value : testing_support::all_values(target)) {
    EXPECT_GT(drawn[value], 0) << value << " was never drawn";
  }
}

// Four shards, so that they can run beside each other.
class Property : public testing::TestWithParam<int> {};

TEST_P(Property, RandomLegalCasesMeetTheAccuracyContract) {
  const int cases = setting("SPLITKV_PROPERTY_CASES", 2000) / 4;
  const int first = setting("SPLITKV_PROPERTY_FIRST", 0) + GetParam() * cases;
  const Target target = test_target();
  Tally tally;
  for (int i = first; i < first + cases && !HasFatalFailure(); i += kStepsAKernel) {
    Case c = testing_support::draw_case(uint64_t(i), target);
    Draw draw(uint64_t(i) + 1'000'000);
    for (int step = 0; step < kStepsAKernel && i + step < first + cases; ++step) {
      if (step > 0) testing_support::redraw_step(draw, c);
      expect_right(c, uint64_t(i + step), tally);
    }
  }
  print_tally(tally);
  expect_all_drawn(tally, target);
  if (cases < kCasesThatDrawAll / 2) return;
  EXPECT_GE(2 * tally.several_pieces, tally.cases);
}

INSTANTIATE_TEST_SUITE_P(Shards, Property, testing::Range(0, 4));

// The same cases drawn for machines that need not be here.
TEST(Draws, HoldEveryValueThatIsLegalOnAnArchitecture) {
  for (const char* arch : {"cuda:sm_80", "cuda:sm_90a", "cuda:sm_120a", "cpu:x86-64-v3"}) {
    const Target target = *parse_target(arch);
    Tally tally;
    for (int i = 0; i < kCasesThatDrawAll; i += kStepsAKernel) {
      Case c = testing_support::draw_case(uint64_t(i), target);
      Draw draw(uint64_t(i) + 1'000'000);
      for (int step = 0; step < kStepsAKernel; ++step) {
        if (step > 0) testing_support::redraw_step(draw, c);
        ASSERT_FALSE(verify(c.problem, c.schedule, target)) << print(c.schedule);
        count(c, tally.drawn);
      }
    }
    for (const std::string& value : testing_support::all_values(target)) {
      EXPECT_GT(tally.drawn[value], 0) << value << " was never drawn for " << arch;
    }
    EXPECT_EQ(tally.drawn["reduce=cluster"] > 0, testing_support::has_clusters(target));
    EXPECT_EQ(tally.drawn["pdl=on"] > 0, testing_support::has_clusters(target));
  }
}

// ---- any tree over any division of the keys
// ----------------------------------------------------------

MergeTree draw_tree(Draw& draw, int leaves) {
  MergeTree tree;
  std::vector<int> open;
  for (int i = 0; i < leaves; ++i) open.push_back(i);
  while (open.size() > 1) {
    int nodes[2];
    for (int& node : nodes) {
      const int at = draw.between(0, int(open.size()) - 1);
      node = open[size_t(at)];
      open.erase(open.begin() + at);
    }
    open.push_back(leaves + int(tree.joins.size()));
    tree.joins.push_back({nodes[0], nodes[1]});
  }
  return tree;
}

template <class Partial>
double worst_difference(const Partial& a, const std::vector<double>& o) {
  double worst = 0;
  for (size_t i = 0; i < o.size(); ++i) worst = std::max(worst, std::abs(a.o[i] - o[i]));
  return worst;
}

TEST(Trees, AnyTreeOverAnyDivisionOfTheKeysIsTheTwoPassReference) {
  constexpr int dim = 16;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const int keys = draw.between(1, 200);
    const int parts = draw.between(1, 20);
    reference::Attention attention;
    attention.dim_qk = attention.dim_v = dim;
    attention.scale = draw.of({0.25, 1.0, 20.0});
    std::normal_distribution<double> normal;
    std::mt19937_64 engine(seed);
    std::vector<double> q(dim), k(size_t(keys) * dim), v(size_t(keys) * dim);
    for (auto* values : {&q, &k, &v}) {
      for (double& value : *values) value = normal(engine);
    }
    attention.q = reference::dense(reference::Element::fp64, q.data(), 1, 1, dim);
    attention.k = reference::dense(reference::Element::fp64, k.data(), 1, keys, dim);
    attention.v = reference::dense(reference::Element::fp64, v.data(), 1, keys, dim);
    attention.kv_len = {keys};
    const reference::Answer answer = reference::attend(attention, 1);

    std::vector<std::vector<double>> scores(static_cast<size_t>(parts)), rows(scores.size());
    for (int key = 0; key < keys; ++key) {
      const size_t part = size_t(draw.between(0, parts - 1));  // some parts stay empty
      double dot = 0;
      for (int d = 0; d < dim; ++d) dot += q[size_t(d)] * k[size_t(key * dim + d)];
      scores[part].push_back(attention.scale * dot);
      rows[part].insert(rows[part].end(), v.begin() + key * dim, v.begin() + (key + 1) * dim);
    }
    using Mlo = PartialMlo<double, LogBase::natural>;
    using Lse = PartialLse<double, LogBase::natural>;
    std::vector<Mlo> mlo;
    std::vector<Lse> lse;
    for (size_t part = 0; part < scores.size(); ++part) {
      mlo.push_back(
          tile_partial<double, LogBase::natural>(KeySet<double>{scores[part], rows[part], dim}));
      lse.push_back(to_lse(mlo.back()));
    }
    const MergeTree tree = draw_tree(draw, parts);
    const Mlo by_mlo = merge(std::span<const Mlo>(mlo), tree);
    const Lse by_lse = merge(std::span<const Lse>(lse), tree);
    EXPECT_LT(worst_difference(by_mlo, answer.out), 1e-12);
    EXPECT_LT(worst_difference(by_lse, answer.out), 1e-11);  // S of several hundred costs a digit
    EXPECT_NEAR(by_mlo.m + std::log(by_mlo.l), answer.lse[0],
                1e-12 * std::abs(answer.lse[0]) + 1e-12);
    EXPECT_NEAR(by_lse.s, answer.lse[0], 1e-12 * std::abs(answer.lse[0]) + 1e-12);
  }
}

}  // namespace
}  // namespace splitkv
