#include <algorithm>
#include <cassert>
#include <cmath>

#include "compiler/score.hpp"

namespace splitkv {
namespace {

double evaluate_leaf(const ScoreNode& node, const ScoreInputs& inputs) {
  switch (node.op) {
    case ScoreOp::dot:
      return inputs.dot;
    case ScoreOp::query_pos:
      return inputs.query_pos;
    case ScoreOp::key_pos:
      return inputs.key_pos;
    case ScoreOp::kv_len:
      return inputs.kv_len;
    case ScoreOp::q_head:
      return inputs.q_head;
    case ScoreOp::batch:
      return inputs.batch;
    case ScoreOp::score:
      return inputs.score;
    case ScoreOp::bias:
      return inputs.bias;
    case ScoreOp::tree_visible:
      return inputs.tree_visible;
    case ScoreOp::param:
      assert(size_t(node.index) < inputs.params.size());
      return inputs.params[size_t(node.index)];
    default:
      assert(node.op == ScoreOp::constant);
      return node.value;
  }
}

double evaluate_unary(ScoreOp op, double a) {
  switch (op) {
    case ScoreOp::neg:
      return -a;
    case ScoreOp::abs:
      return std::fabs(a);
    case ScoreOp::tanh:
      return std::tanh(a);
    case ScoreOp::exp:
      return std::exp(a);
    case ScoreOp::log:
      return std::log(a);
    case ScoreOp::sigmoid:
      return 1 / (1 + std::exp(-a));
    default:
      assert(op == ScoreOp::invert);
      return a != 0 ? 0 : 1;
  }
}

double evaluate_binary(ScoreOp op, double a, double b) {
  switch (op) {
    case ScoreOp::add:
      return a + b;
    case ScoreOp::sub:
      return a - b;
    case ScoreOp::mul:
      return a * b;
    case ScoreOp::div:
      return a / b;
    case ScoreOp::min:
      return std::min(a, b);
    case ScoreOp::max:
      return std::max(a, b);
    case ScoreOp::less:
      return a < b ? 1 : 0;
    case ScoreOp::less_equal:
      return a <= b ? 1 : 0;
    case ScoreOp::quotient:
      return std::floor(a / b);
    case ScoreOp::remainder:
      return a - b * std::floor(a / b);
    case ScoreOp::equal:
      return a == b ? 1 : 0;
    case ScoreOp::both:
      return a != 0 && b != 0 ? 1 : 0;
    default:
      assert(op == ScoreOp::either);
      return a != 0 || b != 0 ? 1 : 0;
  }
}

}  // namespace

double evaluate(const ScoreExpr& expr, const ScoreInputs& inputs) {
  assert(!expr.nodes.empty());
  std::vector<double> values;
  values.reserve(expr.nodes.size());
  for (const ScoreNode& node : expr.nodes) {
    const auto operand = [&](int i) { return values[size_t(node.operands[i])]; };
    switch (arity(node.op)) {
      case 0:
        values.push_back(evaluate_leaf(node, inputs));
        break;
      case 1:
        values.push_back(evaluate_unary(node.op, operand(0)));
        break;
      case 2:
        values.push_back(evaluate_binary(node.op, operand(0), operand(1)));
        break;
      default:
        values.push_back(operand(0) != 0 ? operand(1) : operand(2));
    }
  }
  return values.back();
}

}  // namespace splitkv
