#include <cassert>
#include <cmath>

#include "compiler/expr_tools.hpp"
#include "compiler/score.hpp"

namespace splitkv {
namespace {

// Builds a folded expression node by node: every function returns the index of a node of `expr`
// that has the value asked for, reusing what is there.
class Folder {
 public:
  ScoreExpr expr;

  int add_node(const ScoreNode& node) {
    if (node.op == ScoreOp::constant) return number(node.value);
    if (arity(node.op) == 0) return intern(node);
    if (all_constant(node)) return number(evaluate_alone(node));
    const auto [a, b, c] = node.operands;
    switch (node.op) {
      case ScoreOp::neg:
        return is(a, ScoreOp::neg) ? expr.nodes[size_t(a)].operands[0] : intern(node);
      case ScoreOp::add:
        if (equals(a, 0)) return b;
        return equals(b, 0) ? a : intern(node);
      case ScoreOp::sub:
        return equals(b, 0) ? a : intern(node);
      case ScoreOp::mul:
        return multiply(a, b);
      case ScoreOp::div:
        return divide(a, b);
      case ScoreOp::both:
      case ScoreOp::either:
        return join(node.op, a, b);
      case ScoreOp::invert:
        if (is(a, ScoreOp::invert) && logical(expr.nodes[size_t(a)].operands[0]))
          return expr.nodes[size_t(a)].operands[0];
        return intern(node);
      case ScoreOp::quotient:
        return equals(b, 1) && whole(a) ? a : intern(node);
      case ScoreOp::min:
      case ScoreOp::max:
        return a == b ? a : intern(node);
      case ScoreOp::select:
        if (is(a, ScoreOp::constant)) return equals(a, 0) ? c : b;
        return b == c ? b : intern(node);
      default:
        return intern(node);
    }
  }

 private:
  bool is(int index, ScoreOp op) const { return expr.nodes[size_t(index)].op == op; }
  double value(int index) const { return expr.nodes[size_t(index)].value; }
  bool equals(int index, double number) const {
    return is(index, ScoreOp::constant) && value(index) == number;
  }

  bool logical(int index) const { return is_logical(expr.nodes[size_t(index)].op); }
  bool whole(int index) const { return whole_nodes(expr)[size_t(index)]; }

  // A constant decides `both` and `either`, or leaves them to the other operand.
  int join(ScoreOp op, int a, int b) {
    if (is(a, ScoreOp::constant)) std::swap(a, b);
    if (is(b, ScoreOp::constant)) {
      const bool decides = (value(b) != 0) == (op == ScoreOp::either);
      if (decides) return number(op == ScoreOp::either ? 1 : 0);
      if (logical(a)) return a;
    }
    if (a == b && logical(a)) return a;
    return intern({.op = op, .operands = {a, b, -1}});
  }

  int intern(const ScoreNode& node) {
    for (size_t i = 0; i < expr.nodes.size(); ++i)
      if (expr.nodes[i] == node) return int(i);
    expr.nodes.push_back(node);
    return int(expr.nodes.size()) - 1;
  }

  // Constants are compared by == in intern, which would mistake -0 for 0: they are not shared.
  int number(double number) {
    if (number != 0) return intern({.op = ScoreOp::constant, .value = number});
    return constant(expr, number);
  }

  bool all_constant(const ScoreNode& node) const {
    for (int i = 0; i < arity(node.op); ++i)
      if (!is(node.operands[i], ScoreOp::constant)) return false;
    return true;
  }

  double evaluate_alone(const ScoreNode& node) const {
    ScoreExpr alone;
    int operands[3] = {-1, -1, -1};
    for (int i = 0; i < arity(node.op); ++i) operands[i] = constant(alone, value(node.operands[i]));
    apply(alone, node.op, operands[0], operands[1], operands[2]);
    return evaluate(alone, {});
  }

  // Constants go to the right, and (x * c) * d becomes x * (c d) unless c d over- or underflows.
  int multiply(int a, int b) {
    if (is(a, ScoreOp::constant)) std::swap(a, b);
    if (equals(b, 1)) return a;
    if (is(b, ScoreOp::constant) && is(a, ScoreOp::mul)) {
      const auto [x, c, unused] = expr.nodes[size_t(a)].operands;
      if (is(c, ScoreOp::constant) && std::isnormal(value(c) * value(b)))
        return multiply(x, number(value(c) * value(b)));
    }
    return intern({.op = ScoreOp::mul, .operands = {a, b, -1}});
  }

  // x / c becomes x * (1 / c) where 1 / c is an ordinary number. Whole numbers that c divides have
  // whole quotients, which only powers of two keep.
  int divide(int a, int b) {
    if (is(b, ScoreOp::constant) && std::isnormal(value(b)) && std::isnormal(1 / value(b))) {
      int exponent = 0;
      const bool exact = std::fabs(std::frexp(value(b), &exponent)) == 0.5;
      if (exact || !whole(a)) return multiply(a, number(1 / value(b)));
    }
    return intern({.op = ScoreOp::div, .operands = {a, b, -1}});
  }
};

// Keeps only what the node `result` needs, in the same order, with `result` last.
ScoreExpr without_unused(const ScoreExpr& expr, int result) {
  std::vector<bool> used(expr.nodes.size(), false);
  used[size_t(result)] = true;
  for (int i = result; i >= 0; --i) {
    if (!used[size_t(i)]) continue;
    const ScoreNode& node = expr.nodes[size_t(i)];
    for (int k = 0; k < arity(node.op); ++k) used[size_t(node.operands[k])] = true;
  }
  ScoreExpr kept;
  std::vector<int> new_index(expr.nodes.size(), -1);
  for (int i = 0; i <= result; ++i) {
    if (!used[size_t(i)]) continue;
    ScoreNode node = expr.nodes[size_t(i)];
    for (int k = 0; k < arity(node.op); ++k) node.operands[k] = new_index[size_t(node.operands[k])];
    new_index[size_t(i)] = int(kept.nodes.size());
    kept.nodes.push_back(node);
  }
  return kept;
}

}  // namespace

ScoreExpr fold(const ScoreExpr& expr) {
  assert(!expr.nodes.empty());
  Folder folder;
  std::vector<int> folded;
  folded.reserve(expr.nodes.size());
  for (ScoreNode node : expr.nodes) {
    for (int i = 0; i < arity(node.op); ++i) node.operands[i] = folded[size_t(node.operands[i])];
    folded.push_back(folder.add_node(node));
  }
  return without_unused(folder.expr, folded.back());
}

}  // namespace splitkv
