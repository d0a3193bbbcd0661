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

// Truth values count as the numbers 1 and 0.
bool fits_integer(const Operand& operand) {
  if (!operand.is_constant) return !ir::is_float(operand.value.type);
  return operand.constant == std::trunc(operand.constant) && std::fabs(operand.constant) < 0x1p53;
}

// Whether an operation of both is one of integers.
bool are_integers(const Operand& a, const Operand& b) {
  return fits_integer(a) && fits_integer(b) && !(a.is_constant && b.is_constant);
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

  Value as_float(const Operand& x) { return as_float(x, real_); }

  Value as_integer(const Operand& x) {
    if (x.is_constant) return ir::i64_constant(int64_t(std::floor(x.constant)));
    const ir::Type type{Element::i64, x.value.type.lanes};
    if (x.value.type.element == Element::i1) return w_.cast("zext", x.value, type, "truth.number");
    if (x.value.type.element == Element::i64) return x.value;
    const Value whole = w_.cast("fptosi", x.value, type, "whole");
    const Value above = w_.compare("gt", w_.cast("sitofp", whole, x.value.type, "whole.real"),
                                   x.value, "whole.above");
    return w_.sub(whole, w_.cast("zext", above, type, "whole.past"), "floor");
  }

  Value as_truth(const Operand& x) {
    if (x.is_constant) return ir::int_constant(ir::i1, x.constant != 0);
    if (x.value.type.element == Element::i1) return x.value;
    const Value zero = x.value.type.element == Element::i64 ? ir::int_constant(x.value.type, 0)
                                                            : ir::float_constant(x.value.type, 0);
    return w_.compare("ne", x.value, zero, "truth");
  }

 private:
  Value as_float(const Operand& x, Element real) {
    if (x.is_constant) return ir::float_constant({real}, x.constant);
    const ir::Type type{real, x.value.type.lanes};
    if (x.value.type.element == Element::i1) return w_.cast("uitofp", x.value, type, "truth");
    if (x.value.type.element == Element::i64) return w_.cast("sitofp", x.value, type, "real");
    return w_.cast(real == Element::f64 ? "fpext" : "fptrunc", x.value, type, "real");
  }

  Operand lower_node(const ScoreNode& node, const std::vector<Operand>& values) {
    if (node.op == ScoreOp::constant) return {{}, true, node.value};
    if (arity(node.op) == 0) return leaf(node);
    const Operand& a = values[node.operands[0]];
    if (arity(node.op) == 1) return {unary(node.op, a)};
    const Operand& b = values[node.operands[1]];
    if (node.op == ScoreOp::select) return {pick(a, b, values[node.operands[2]])};
    return {binary(node.op, a, b)};
  }

  Operand leaf(const ScoreNode& node) {
    const Value value = leaf_(node);
    return {ir::is_float(value.type) ? as_float({value}) : value};
  }

  Value unary(ScoreOp op, const Operand& a) {
    const bool integer = fits_integer(a) && !a.is_constant;
    switch (op) {
      case ScoreOp::neg:
        return w_.neg(integer ? as_integer(a) : as_float(a), "negated");
      case ScoreOp::abs:
        return w_.abs(integer ? as_integer(a) : as_float(a), "size");
      case ScoreOp::tanh:
        return emit_tanh(w_, as_float(a));
      case ScoreOp::exp:
        return emit_exp(w_, as_float(a));
      case ScoreOp::log:
        return emit_log(w_, as_float(a));
      case ScoreOp::sigmoid:
        return emit_sigmoid(w_, as_float(a));
      default: {
        assert(op == ScoreOp::invert);
        const Value truth = as_truth(a);
        return w_.bit_xor(truth, ir::int_constant(truth.type, 1), "inverted");
      }
    }
  }

  Value binary(ScoreOp op, const Operand& a, const Operand& b) {
    switch (op) {
      case ScoreOp::both:
        return w_.bit_and(as_truth(a), as_truth(b), "both");
      case ScoreOp::either:
        return w_.bit_or(as_truth(a), as_truth(b), "either");
      case ScoreOp::div:
        return w_.div(as_float(a), as_float(b), "quotient");
      case ScoreOp::quotient:
        return w_.floor_div(as_integer(a), divisor(b), "floor.quotient");
      case ScoreOp::remainder:
        return w_.floor_rem(as_integer(a), divisor(b), "floor.remainder");
      case ScoreOp::less:
        return compare("lt", a, b, "less");
      case ScoreOp::less_equal:
        return compare("le", a, b, "less.equal");
      case ScoreOp::equal:
        return compare("eq", a, b, "equal");
      default:
        return arithmetic(op, a, b);
    }
  }

  static int64_t divisor(const Operand& b) {
    assert(b.is_constant && b.constant >= 1);
    return int64_t(b.constant);
  }

  // An integer beside a real number: both exact in f64.
  Value compare(const char* predicate, const Operand& a, const Operand& b, const char* hint) {
    if (are_integers(a, b)) return w_.compare(predicate, as_integer(a), as_integer(b), hint);
    const bool mixed = (!a.is_constant && fits_integer(a)) || (!b.is_constant && fits_integer(b));
    const Element real = mixed ? Element::f64 : real_;
    return w_.compare(predicate, as_float(a, real), as_float(b, real), hint);
  }

  Value arithmetic(ScoreOp op, const Operand& a, const Operand& b) {
    const bool integer = are_integers(a, b);
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
      default:
        assert(op == ScoreOp::max);
        return w_.max(x, y, "larger.one");
    }
  }

  Value pick(const Operand& condition, const Operand& a, const Operand& b) {
    const bool integer = are_integers(a, b);
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

ir::Value emit_condition(ir::Writer& writer, const ScoreExpr& expr, int lanes,
                         const ScoreLeaf& leaf) {
  Lowering lowering(writer, Element::f64, leaf);
  return writer.splat(lowering.as_truth(lowering.lower(expr)), lanes);
}

ir::Value emit_position(ir::Writer& writer, const ScoreExpr& expr, const ScoreLeaf& leaf) {
  Lowering lowering(writer, Element::f64, leaf);
  return lowering.as_integer(lowering.lower(expr));
}

}  // namespace splitkv::llvm_codegen
