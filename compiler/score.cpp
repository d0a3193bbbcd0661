#include "compiler/score.hpp"

#include <numbers>

#include "compiler/expr_tools.hpp"

namespace splitkv {

int alibi_param(const Problem& problem) { return int(problem.params.size()); }

std::vector<Param> all_params(const Problem& problem) {
  std::vector<Param> params = problem.params;
  if (problem.alibi) params.push_back({"alibi_slopes", ParamScope::head});
  return params;
}

ScoreExpr score_of(const Problem& problem) {
  ScoreExpr expr;
  const auto mul = [&](int a, int b) { return apply(expr, ScoreOp::mul, a, b); };
  int score = mul(leaf(expr, ScoreOp::dot), constant(expr, scale_of(problem)));
  if (problem.softcap != 0) {
    const int ratio = apply(expr, ScoreOp::div, score, constant(expr, problem.softcap));
    score = mul(apply(expr, ScoreOp::tanh, ratio), constant(expr, problem.softcap));
  }
  if (problem.alibi) {
    const int query = leaf(expr, ScoreOp::query_pos), key = leaf(expr, ScoreOp::key_pos);
    const int distance = apply(expr, ScoreOp::sub, key, query);
    const int ramp = mul(param(expr, alibi_param(problem)), distance);
    score = apply(expr, ScoreOp::add, score, ramp);
  }
  if (problem.bias) score = apply(expr, ScoreOp::add, score, leaf(expr, ScoreOp::bias));
  if (!problem.score_mod.nodes.empty()) {
    const int result = int(problem.score_mod.nodes.size()) - 1;
    score = graft(expr, problem.score_mod, result, score);
  }
  // The last node is the result, also where the user's word is `score` alone.
  expr.nodes.resize(size_t(score) + 1);
  return expr;
}

ScoreExpr log2_score_of(const Problem& problem) {
  ScoreExpr expr = score_of(problem);
  const int natural = int(expr.nodes.size()) - 1;
  apply(expr, ScoreOp::mul, natural, constant(expr, std::numbers::log2e));
  return fold(expr);
}

bool is_constant(const ScoreExpr& expr, double value) {
  const ScoreExpr folded = fold(expr);
  const ScoreNode& result = folded.nodes.back();
  return result.op == ScoreOp::constant && result.value == value;
}

}  // namespace splitkv
