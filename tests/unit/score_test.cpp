#include "compiler/score.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/text.hpp"
#include "compiler/text_expr.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

ScoreInputs random_inputs(Engine& engine) {
  ScoreInputs inputs;
  inputs.dot = std::normal_distribution<double>(0, 10)(engine);
  inputs.score = std::normal_distribution<double>(0, 10)(engine);
  inputs.kv_len = between(engine, 1, 9000);
  inputs.query_pos = inputs.kv_len - between(engine, 1, 9);
  inputs.key_pos = between(engine, 0, int(inputs.kv_len) - 1);
  inputs.q_head = between(engine, 0, 31);
  inputs.batch = between(engine, 0, 7);
  inputs.bias = std::normal_distribution<double>(0, 3)(engine);
  inputs.tree_visible = between(engine, 0, 1);
  for (int i = 0; i <= kMaxParams; ++i)
    inputs.params.push_back(std::normal_distribution<double>()(engine));
  return inputs;
}

TEST(Score, IsScaleSoftcapAlibiBiasAndTheUsersWordInNaturalUnits) {
  Engine engine(1);
  int compared = 0;
  for (int i = 0; i < 2000; ++i) {
    const Problem problem = random_problem(engine);
    ScoreInputs inputs = random_inputs(engine);
    const double scaled = inputs.dot * scale_of(problem);
    const double cap = problem.softcap;
    double expected = cap == 0 ? scaled : cap * std::tanh(scaled / cap);
    if (problem.alibi)
      expected += inputs.params[problem.params.size()] * (inputs.key_pos - inputs.query_pos);
    if (problem.bias) expected += inputs.bias;
    if (!problem.score_mod.nodes.empty()) {
      inputs.score = expected;
      expected = evaluate(problem.score_mod, inputs);
    }
    const double got = evaluate(score_of(problem), inputs);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    EXPECT_DOUBLE_EQ(got, expected) << print(problem);
    if (!problem.score_mod.nodes.empty() || std::isinf(expected)) continue;
    EXPECT_NEAR(evaluate(log2_score_of(problem), inputs), expected * std::numbers::log2e,
                1e-13 * (std::fabs(expected) + 1e4));
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

TEST(Score, TheSlopesOfAlibiComeAfterTheUsersParameters) {
  Problem problem;
  problem.params = {{"a", ParamScope::row}, {"b", ParamScope::scalar}};
  EXPECT_EQ(all_params(problem), problem.params);
  problem.alibi = true;
  ASSERT_EQ(all_params(problem).size(), 3u);
  EXPECT_EQ(alibi_param(problem), 2);
  EXPECT_EQ(all_params(problem)[2].scope, ParamScope::head);
}

TEST(Score, InLog2UnitsCostsOneMultiplicationWithoutSoftcap) {
  Problem problem;
  const ScoreExpr expr = log2_score_of(problem);
  ASSERT_EQ(expr.nodes.size(), 3u);  // dot, one constant, their product
  EXPECT_EQ(expr.nodes.back().op, ScoreOp::mul);
  problem.softcap = 50;
  EXPECT_EQ(log2_score_of(problem).nodes.size(), 6u);  // dot * c, tanh, * c
}

// An expression of every operation, over operands that keep it finite.
ScoreExpr random_expr(Engine& engine) {
  const std::vector<ScoreOp> leaves = {ScoreOp::dot,    ScoreOp::query_pos, ScoreOp::key_pos,
                                       ScoreOp::kv_len, ScoreOp::q_head,    ScoreOp::batch,
                                       ScoreOp::score,  ScoreOp::bias,      ScoreOp::tree_visible};
  const std::vector<ScoreOp> inner = {
      ScoreOp::neg,        ScoreOp::abs,    ScoreOp::tanh,    ScoreOp::add,    ScoreOp::sub,
      ScoreOp::mul,        ScoreOp::div,    ScoreOp::min,     ScoreOp::max,    ScoreOp::less,
      ScoreOp::both,       ScoreOp::select, ScoreOp::mul,     ScoreOp::div,    ScoreOp::mul,
      ScoreOp::less_equal, ScoreOp::exp,    ScoreOp::log,     ScoreOp::invert, ScoreOp::sigmoid,
      ScoreOp::equal,      ScoreOp::either, ScoreOp::quotient};
  ScoreExpr expr;
  leaf(expr, one_of(engine, leaves));
  for (int i = 0; i < 12; ++i) {
    const auto operand = [&] {
      if (coin(engine)) return between(engine, 0, int(expr.nodes.size()) - 1);
      if (coin(engine)) return leaf(expr, one_of(engine, leaves));
      return constant(expr, one_of<double>(engine, {0, 1, 2, -1, 0.5, -3.25, 1e-3}));
    };
    const ScoreOp op = one_of(engine, inner);
    if (op == ScoreOp::quotient) {
      const int whole = leaf(expr, ScoreOp::key_pos), by = constant(expr, between(engine, 1, 9));
      apply(expr, coin(engine) ? ScoreOp::quotient : ScoreOp::remainder, whole, by);
      continue;
    }
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

TEST(Score, FoldingKeepsWholeNumbersExact) {
  Engine engine(7);
  for (int i = 0; i < 3000; ++i) {
    ScoreExpr expr;
    random_whole(engine, expr, 4);
    const ScoreExpr folded = fold(expr);
    for (int k = 0; k < 4; ++k) {
      ScoreInputs inputs = random_inputs(engine);
      inputs.query_pos = between(engine, -70, 100);
      const double value = evaluate(expr, inputs);
      if (std::fabs(value) > 0x1p40) continue;  // factors of it need not fit a double's 53 bits
      ASSERT_EQ(evaluate(folded, inputs), value);
    }
  }
}

TEST(Score, DividingWholeNumbersStaysADivision) {
  const ScoreExpr folded = fold(parse_expression("key_pos/49==1", {}, false).value());
  ScoreInputs inputs;
  inputs.key_pos = 49;
  EXPECT_EQ(evaluate(folded, inputs), 1);  // 49 * (1 / 49) is less than 1
  EXPECT_TRUE(std::any_of(folded.nodes.begin(), folded.nodes.end(),
                          [](const ScoreNode& node) { return node.op == ScoreOp::div; }));
}

TEST(Score, QuotientAndRemainderAreFloorForNegativeNumbersToo) {
  for (int value = -9; value <= 9; ++value) {
    ScoreInputs inputs;
    inputs.query_pos = value;
    const ScoreExpr quotient = parse_expression("query_pos//4", {}, false).value();
    const ScoreExpr remainder = parse_expression("query_pos%4", {}, false).value();
    EXPECT_EQ(evaluate(quotient, inputs), value < 0 ? -((3 - value) / 4) : value / 4);
    EXPECT_EQ(evaluate(remainder, inputs), ((value % 4) + 4) % 4);
  }
}

}  // namespace
}  // namespace splitkv
