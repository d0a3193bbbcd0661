#include "compiler/expr.hpp"

#include <cassert>
#include <cmath>

#include "compiler/expr_tools.hpp"

namespace splitkv {

int leaf(ScoreExpr& expr, ScoreOp op) {
  assert(arity(op) == 0 && op != ScoreOp::constant && op != ScoreOp::param);
  expr.nodes.push_back({.op = op});
  return int(expr.nodes.size()) - 1;
}

int constant(ScoreExpr& expr, double value) {
  expr.nodes.push_back({.op = ScoreOp::constant, .value = value});
  return int(expr.nodes.size()) - 1;
}

int param(ScoreExpr& expr, int index) {
  assert(index >= 0);
  expr.nodes.push_back({.op = ScoreOp::param, .index = index});
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

std::vector<bool> whole_nodes(const ScoreExpr& expr) {
  std::vector<bool> whole;
  for (const ScoreNode& node : expr.nodes) {
    const auto operand = [&](int i) { return bool(whole[size_t(node.operands[i])]); };
    switch (node.op) {
      case ScoreOp::constant:
        whole.push_back(std::trunc(node.value) == node.value);
        break;
      case ScoreOp::query_pos:
      case ScoreOp::key_pos:
      case ScoreOp::kv_len:
      case ScoreOp::q_head:
      case ScoreOp::batch:
        whole.push_back(true);
        break;
      case ScoreOp::neg:
      case ScoreOp::abs:
        whole.push_back(operand(0));
        break;
      case ScoreOp::add:
      case ScoreOp::sub:
      case ScoreOp::mul:
      case ScoreOp::min:
      case ScoreOp::max:
      case ScoreOp::quotient:
      case ScoreOp::remainder:
        whole.push_back(operand(0) && operand(1));
        break;
      case ScoreOp::select:
        whole.push_back(operand(1) && operand(2));
        break;
      default:
        whole.push_back(is_logical(node.op));
    }
  }
  return whole;
}

bool uses(const ScoreExpr& expr, int node, ScoreOp op) {
  const ScoreNode& at = expr.nodes[size_t(node)];
  if (at.op == op) return true;
  for (int i = 0; i < arity(at.op); ++i)
    if (uses(expr, at.operands[i], op)) return true;
  return false;
}

int truth(ScoreExpr& expr, int node) {
  if (is_logical(expr.nodes[size_t(node)].op)) return node;
  const int is_zero = apply(expr, ScoreOp::equal, node, constant(expr, 0));
  return apply(expr, ScoreOp::invert, is_zero);
}

int graft(ScoreExpr& to, const ScoreExpr& from, int node, int score) {
  ScoreNode copy = from.nodes[size_t(node)];
  if (copy.op == ScoreOp::score && score >= 0) return score;
  const bool logical =
      copy.op == ScoreOp::invert || copy.op == ScoreOp::both || copy.op == ScoreOp::either;
  for (int i = 0; i < arity(copy.op); ++i) {
    const int operand = graft(to, from, copy.operands[i], score);
    copy.operands[i] = logical ? truth(to, operand) : operand;
  }
  to.nodes.push_back(copy);
  return int(to.nodes.size()) - 1;
}

}  // namespace splitkv
