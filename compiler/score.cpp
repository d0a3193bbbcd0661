#include "compiler/score.hpp"

#include <cassert>
#include <numbers>

namespace splitkv {
namespace {

// The arithmetic that the builders below need, over node indices of one expression.
struct Builder {
  ScoreExpr& expr;

  int mul(int a, int b) { return apply(expr, ScoreOp::mul, a, b); }
  int sub(int a, int b) { return apply(expr, ScoreOp::sub, a, b); }
  int number(double value) { return constant(expr, value); }
};

}  // namespace

int leaf(ScoreExpr& expr, ScoreOp op) {
  assert(arity(op) == 0 && op != ScoreOp::constant);
  expr.nodes.push_back({.op = op});
  return int(expr.nodes.size()) - 1;
}

int constant(ScoreExpr& expr, double value) {
  expr.nodes.push_back({.op = ScoreOp::constant, .value = value});
  return int(expr.nodes.size()) - 1;
}

int apply(ScoreExpr& expr, ScoreOp op, int a, int b, int c) {
  const int index = int(expr.nodes.size());
  assert(arity(op) >= 1 && a >= 0 && a < index);
  assert(arity(op) >= 2 ? b >= 0 && b < index : b == -1);
  assert(arity(op) >= 3 ? c >= 0 && c < index : c == -1);
  expr.nodes.push_back({.op = op, .operands = {a, b, c}});
  return index;
}

ScoreExpr score_of(const Problem& problem) {
  ScoreExpr expr;
  Builder build{expr};
  const int dot = leaf(expr, ScoreOp::dot);
  const int scaled = build.mul(dot, build.number(scale_of(problem)));
  if (problem.softcap != 0) {
    const int ratio = apply(expr, ScoreOp::div, scaled, build.number(problem.softcap));
    build.mul(apply(expr, ScoreOp::tanh, ratio), build.number(problem.softcap));
  }
  return expr;
}

ScoreExpr log2_score_of(const Problem& problem) {
  ScoreExpr expr = score_of(problem);
  const int natural = int(expr.nodes.size()) - 1;
  Builder build{expr};
  build.mul(natural, build.number(std::numbers::log2e));
  return fold(expr);
}

ScoreExpr mask_of(const Problem& problem) {
  ScoreExpr expr;
  if (problem.window == 0) {
    constant(expr, 1);
    return expr;
  }
  // A query sees itself and the window - 1 keys before it.
  Builder build{expr};
  const int newest_hidden = build.sub(leaf(expr, ScoreOp::query_pos), build.number(problem.window));
  apply(expr, ScoreOp::less, newest_hidden, leaf(expr, ScoreOp::key_pos));
  return expr;
}

ScoreExpr first_visible_key_of(const Problem& problem) {
  ScoreExpr expr;
  if (problem.window == 0) {
    constant(expr, 0);
    return expr;
  }
  // The row's first query stands at kv_len - query_len and reaches back furthest.
  Builder build{expr};
  const double reach = double(problem.window) + problem.query_len - 1;
  const int first = build.sub(leaf(expr, ScoreOp::kv_len), build.number(reach));
  apply(expr, ScoreOp::max, first, build.number(0));
  return expr;
}

bool is_constant(const ScoreExpr& expr, double value) {
  const ScoreExpr folded = fold(expr);
  const ScoreNode& result = folded.nodes.back();
  return result.op == ScoreOp::constant && result.value == value;
}

}  // namespace splitkv
