#include "codegen/llvm/score.hpp"

#include <cassert>
#include <cmath>

#include "codegen/llvm/math.hpp"

namespace splitkv::llvm_codegen {
namespace {

using ir::Element;
using ir::Value;

// A lowered node. A constant has no type until an operand beside it gives it one.
struct Operand {
  Value value;
  bool is_constant = false;
  double constant = 0;
};

bool fits_integer(const Operand& operand) {
  if (!operand.is_constant) return operand.value.type.element == Element::i64;
  return operand.constant == std::trunc(operand.constant) && std::fabs(operand.constant) < 0x1p53;
}

class Lowering {
 public:
  Lowering(ir::Writer& writer, Element real, const ScoreLeaf& leaf)
      : w_(writer), real_(real), leaf_(leaf) {}

  Operand lower(const ScoreExpr& expr) {
    std::vector<Operand> values;
    for (const ScoreNode& node : expr.nodes) values.push_back(lower_node(node, values));
    return values.back();
  }

  Value as_float(const Operand& x) {
    if (x.is_constant) return ir::float_constant({real_}, x.constant);
    const ir::Type type{real_, x.value.type.lanes};
    if (x.value.type.element == Element::i1) return w_.cast("uitofp", x.value, type, "truth");
    if (x.value.type.element == Element::i64) return w_.cast("sitofp", x.value, type, "real");
    return x.value;
  }

  Value as_integer(const Operand& x) {
    if (x.is_constant) return ir::i64_constant(std::llround(std::floor(x.constant)));
    if (x.value.type.element == Element::i64) return x.value;
    return w_.cast("fptosi", as_float(x), {Element::i64, x.value.type.lanes}, "integer");
  }

  Value as_truth(const Operand& x) {
    if (x.is_constant) return ir::int_constant(ir::i1, x.constant != 0);
    if (x.value.type.element == Element::i1) return x.value;
    const Value zero = x.value.type.element == Element::i64 ? ir::int_constant(x.value.type, 0)
                                                            : ir::float_constant(x.value.type, 0);
    return w_.compare("ne", x.value, zero, "truth");
  }

 private:
  Operand lower_node(const ScoreNode& node, const std::vector<Operand>& values) {
    if (node.op == ScoreOp::constant) return {{}, true, node.value};
    if (arity(node.op) == 0) return {leaf_(node.op)};
    const Operand& a = values[node.operands[0]];
    if (arity(node.op) == 1) return {unary(node.op, a)};
    const Operand& b = values[node.operands[1]];
    if (node.op == ScoreOp::select) return {choose(a, b, values[node.operands[2]])};
    return {binary(node.op, a, b)};
  }

  Value in_single(Value (*function)(ir::Writer&, Value), const Operand& a) {
    const Value x = as_float(a);
    if (real_ == Element::f32) return function(w_, x);
    const ir::Type single{Element::f32, x.type.lanes};
    return w_.cast("fpext", function(w_, w_.cast("fptrunc", x, single, "single")), x.type, "real");
  }

  Value unary(ScoreOp op, const Operand& a) {
    const bool integer = fits_integer(a) && !a.is_constant;
    switch (op) {
      case ScoreOp::neg:
        return w_.neg(integer ? a.value : as_float(a), "negated");
      case ScoreOp::abs:
        return w_.abs(integer ? a.value : as_float(a), "size");
      case ScoreOp::tanh:
        return in_single(emit_tanh, a);
      case ScoreOp::exp:
        return in_single(emit_exp, a);
      default:
        assert(op == ScoreOp::log);
        return in_single(emit_log, a);
    }
  }

  Value binary(ScoreOp op, const Operand& a, const Operand& b) {
    if (op == ScoreOp::both) return w_.bit_and(as_truth(a), as_truth(b), "both");
    if (op == ScoreOp::div) return w_.div(as_float(a), as_float(b), "quotient");
    const bool integer = fits_integer(a) && fits_integer(b) && !(a.is_constant && b.is_constant);
    const Value x = integer ? as_integer(a) : as_float(a);
    const Value y = integer ? as_integer(b) : as_float(b);
    switch (op) {
      case ScoreOp::add:
        return w_.add(x, y, "sum");
      case ScoreOp::sub:
        return w_.sub(x, y, "difference");
      case ScoreOp::mul:
        return w_.mul(x, y, "product");
      case ScoreOp::min:
        return w_.min(x, y, "smaller.one");
      case ScoreOp::max:
        return w_.max(x, y, "larger.one");
      case ScoreOp::less:
        return w_.compare("lt", x, y, "less");
      default:
        assert(op == ScoreOp::less_equal);
        return w_.compare("le", x, y, "less.equal");
    }
  }

  Value choose(const Operand& condition, const Operand& a, const Operand& b) {
    const bool integer = fits_integer(a) && fits_integer(b) && !(a.is_constant && b.is_constant);
    return w_.select(as_truth(condition), integer ? as_integer(a) : as_float(a),
                     integer ? as_integer(b) : as_float(b), "chosen");
  }

  ir::Writer& w_;
  Element real_;
  const ScoreLeaf& leaf_;
};

}  // namespace

ir::Value emit_score(ir::Writer& writer, const ScoreExpr& expr, ir::Type real,
                     const ScoreLeaf& leaf) {
  Lowering lowering(writer, real.element, leaf);
  return writer.splat(lowering.as_float(lowering.lower(expr)), real.lanes);
}

ir::Value emit_condition(ir::Writer& writer, const ScoreExpr& expr, ir::Type real,
                         const ScoreLeaf& leaf) {
  Lowering lowering(writer, real.element, leaf);
  return writer.splat(lowering.as_truth(lowering.lower(expr)), real.lanes);
}

ir::Value emit_position(ir::Writer& writer, const ScoreExpr& expr, const ScoreLeaf& leaf) {
  Lowering lowering(writer, Element::f64, leaf);
  return lowering.as_integer(lowering.lower(expr));
}

}  // namespace splitkv::llvm_codegen
