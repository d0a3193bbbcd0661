#include "compiler/score.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

ScoreInputs random_inputs(Engine& engine) {
  ScoreInputs inputs;
  inputs.dot = std::normal_distribution<double>(0, 10)(engine);
  inputs.kv_len = between(engine, 1, 9000);
  inputs.query_pos = inputs.kv_len - 1;
  inputs.key_pos = between(engine, 0, int(inputs.kv_len) - 1);
  inputs.q_head = between(engine, 0, 31);
  inputs.batch = between(engine, 0, 7);
  return inputs;
}

TEST(Score, IsScaleThenSoftcapInNaturalUnits) {
  Engine engine(1);
  for (int i = 0; i < 1000; ++i) {
    const Problem problem = random_problem(engine);
    const ScoreInputs inputs = random_inputs(engine);
    const double scaled = inputs.dot * scale_of(problem);
    const double cap = problem.softcap;
    const double expected = cap == 0 ? scaled : cap * std::tanh(scaled / cap);
    EXPECT_DOUBLE_EQ(evaluate(score_of(problem), inputs), expected);
    EXPECT_NEAR(evaluate(log2_score_of(problem), inputs), expected * std::numbers::log2e,
                1e-13 * std::fabs(expected));
  }
}

TEST(Score, InLog2UnitsCostsOneMultiplicationWithoutSoftcap) {
  Problem problem;
  const ScoreExpr expr = log2_score_of(problem);
  ASSERT_EQ(expr.nodes.size(), 3u);  // dot, one constant, their product
  EXPECT_EQ(expr.nodes.back().op, ScoreOp::mul);
  problem.softcap = 50;
  EXPECT_EQ(log2_score_of(problem).nodes.size(), 6u);  // dot * c, tanh, * c
}

TEST(Score, AWindowKeepsExactlyItsNewestKeys) {
  for (int window : {1, 2, 17, 100, 5000}) {
    Problem problem;
    problem.window = window;
    const ScoreExpr mask = mask_of(problem), first = first_visible_key_of(problem);
    for (int length : {1, 2, 16, 17, 18, 300}) {
      ScoreInputs inputs;
      inputs.kv_len = length;
      inputs.query_pos = length - 1;
      const int begin = std::max(0, length - window);
      EXPECT_EQ(evaluate(first, inputs), begin);
      for (int key = 0; key < length; ++key) {
        inputs.key_pos = key;
        ASSERT_EQ(evaluate(mask, inputs), key >= begin ? 1 : 0) << window << " " << key;
      }
    }
  }
}

TEST(Score, WithoutAWindowEveryKeyIsSeenAndTheMaskIsConstant) {
  EXPECT_TRUE(is_constant(mask_of(Problem{}), 1));
  EXPECT_TRUE(is_constant(first_visible_key_of(Problem{}), 0));
  Problem windowed;
  windowed.window = 4;
  EXPECT_FALSE(is_constant(mask_of(windowed), 1));
}

// An expression of every operation, over operands that keep it finite.
ScoreExpr random_expr(Engine& engine) {
  const std::vector<ScoreOp> leaves = {ScoreOp::dot,    ScoreOp::query_pos, ScoreOp::key_pos,
                                       ScoreOp::kv_len, ScoreOp::q_head,    ScoreOp::batch};
  const std::vector<ScoreOp> inner = {
      ScoreOp::neg,        ScoreOp::abs,    ScoreOp::tanh, ScoreOp::add, ScoreOp::sub,
      ScoreOp::mul,        ScoreOp::div,    ScoreOp::min,  ScoreOp::max, ScoreOp::less,
      ScoreOp::both,       ScoreOp::select, ScoreOp::mul,  ScoreOp::div, ScoreOp::mul,
      ScoreOp::less_equal, ScoreOp::exp,    ScoreOp::log};
  ScoreExpr expr;
  leaf(expr, one_of(engine, leaves));
  for (int i = 0; i < 12; ++i) {
    const auto operand = [&] {
      if (coin(engine)) return between(engine, 0, int(expr.nodes.size()) - 1);
      if (coin(engine)) return leaf(expr, one_of(engine, leaves));
      return constant(expr, one_of<double>(engine, {0, 1, 2, -1, 0.5, -3.25, 1e-3}));
    };
    const ScoreOp op = one_of(engine, inner);
    const int a = operand();
    const int b = arity(op) >= 2 ? operand() : -1;
    const int c = arity(op) >= 3 ? operand() : -1;
    apply(expr, op, a, b, c);
  }
  return expr;
}

// Relative difference that regrouped roundings may make. Comparisons and logarithms may amplify it
// without bound near their jumps, so inputs there are skipped by the caller.
bool agree(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 1e-9 * std::max({1.0, std::fabs(a), std::fabs(b)});
}

TEST(Score, FoldingNeverChangesTheValue) {
  Engine engine(5);
  int compared = 0, smaller = 0;
  for (int i = 0; i < 4000; ++i) {
    const ScoreExpr expr = random_expr(engine);
    const ScoreExpr folded = fold(expr);
    smaller += folded.nodes.size() < expr.nodes.size();
    for (int k = 0; k < 5; ++k) {
      const ScoreInputs inputs = random_inputs(engine);
      // Skip ill-conditioned points: those where a tiny change of the inputs already shows.
      ScoreInputs nudged = inputs;
      nudged.dot *= 1 + 1e-13;
      nudged.query_pos *= 1 - 2e-13;
      nudged.key_pos *= 1 + 3e-13;
      const double value = evaluate(expr, inputs);
      if (!agree(value, evaluate(expr, nudged)) || std::fabs(value) > 1e12) continue;
      ASSERT_TRUE(agree(value, evaluate(folded, inputs)))
          << value << " became " << evaluate(folded, inputs);
      ++compared;
    }
  }
  EXPECT_GT(compared, 10000);
  EXPECT_GT(smaller, 2000);
}

TEST(Score, FoldingTwiceChangesNothingMore) {
  Engine engine(6);
  for (int i = 0; i < 500; ++i) {
    const ScoreExpr folded = fold(random_expr(engine));
    EXPECT_EQ(fold(folded).nodes.size(), folded.nodes.size());
  }
}

TEST(Score, FoldingRemovesWhatHasNoEffect) {
  ScoreExpr expr;
  const int dot = leaf(expr, ScoreOp::dot);
  leaf(expr, ScoreOp::batch);  // unused
  const int scaled = apply(expr, ScoreOp::mul, constant(expr, 3), dot);
  const int shifted = apply(expr, ScoreOp::add, scaled, constant(expr, 0));
  const int halved = apply(expr, ScoreOp::div, shifted, constant(expr, 2));
  apply(expr, ScoreOp::mul, halved, constant(expr, 1));
  const ScoreExpr folded = fold(expr);
  ASSERT_EQ(folded.nodes.size(), 3u);
  EXPECT_EQ(folded.nodes[0].op, ScoreOp::dot);
  EXPECT_EQ(folded.nodes[1].value, 1.5);
  EXPECT_EQ(folded.nodes[2].op, ScoreOp::mul);
}

TEST(Score, ConstantsWhoseProductUnderflowsStayApart) {
  ScoreExpr expr;
  const int small = apply(expr, ScoreOp::mul, leaf(expr, ScoreOp::dot), constant(expr, 1e-200));
  apply(expr, ScoreOp::mul, small, constant(expr, 1e-200));
  ScoreInputs inputs;
  inputs.dot = 1e150;
  EXPECT_EQ(evaluate(fold(expr), inputs), evaluate(expr, inputs));
  EXPECT_GT(evaluate(fold(expr), inputs), 0);
}

}  // namespace
}  // namespace splitkv
