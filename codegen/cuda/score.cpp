#include "codegen/cuda/score.hpp"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <string>
#include <vector>

#include "compiler/score.hpp"

namespace splitkv {
namespace {

// What a node's value is on the device. Positions stay integers: fp32 holds them exactly only up to
// 2^24, and sequences grow longer.
enum class Kind { integer, real, truth };

struct Lowered {
  std::string text;  // an expression: a name, a literal or a parenthesised term
  Kind kind;
};

class Lowering {
 public:
  Lowering(const ScoreExpr& expr, const Problem& problem) : expr_(expr), problem_(problem) {}

  // Writes one statement for each node with operands and returns the result's name or literal.
  Lowered write(Writer& out) {
    for (size_t i = 0; i < expr_.nodes.size(); ++i) values_.push_back(lower(out, expr_.nodes[i]));
    return values_.back();
  }

  static std::string as_real(const Lowered& value) {
    switch (value.kind) {
      case Kind::integer:
        return fmt::format("Real({})", value.text);
      case Kind::truth:
        return fmt::format("({} ? Real(1) : Real(0))", value.text);
      case Kind::real:
        break;
    }
    return value.text;
  }

  static std::string as_truth(const Lowered& value) {
    if (value.kind == Kind::truth) return value.text;
    return fmt::format("({} != 0)", value.text);
  }

 private:
  Lowered lower(Writer& out, const ScoreNode& node) {
    switch (node.op) {
      case ScoreOp::dot:
        return {"dot", Kind::real};
      case ScoreOp::constant:
        return literal(node.value);
      case ScoreOp::query_pos:
        return {query_position(), Kind::integer};
      case ScoreOp::key_pos:
        return {"at.key_pos", Kind::integer};
      case ScoreOp::kv_len:
        return {"at.kv_len", Kind::integer};
      case ScoreOp::q_head:
        return {"at.q_head", Kind::integer};
      case ScoreOp::batch:
        return {"at.batch", Kind::integer};
      default:
        break;
    }
    const Lowered result = operation(node);
    const std::string name = fmt::format("t{}", next_name_++);
    constexpr const char* types[] = {"i32", "Real", "bool"};
    out.line(fmt::format("const {} {} = {};", types[int(result.kind)], name, result.text));
    return {name, result.kind};
  }

  std::string query_position() const {
    if (problem_.query_len == 1) return "(at.kv_len - 1)";
    return fmt::format("(at.kv_len - {} + at.query)", problem_.query_len);
  }

  static Lowered literal(double value) {
    if (value == std::floor(value) && std::abs(value) < 1 << 30) {
      return {fmt::format("{}", int64_t(value)), Kind::integer};
    }
    return {fmt::format("Real({})", value), Kind::real};
  }

  Lowered operation(const ScoreNode& node) const {
    const auto operand = [&](int i) -> const Lowered& { return values_[node.operands[i]]; };
    if (arity(node.op) == 1) return unary(node.op, operand(0));
    if (node.op == ScoreOp::select) return choice(operand(0), operand(1), operand(2));
    return binary(node.op, operand(0), operand(1));
  }

  static Lowered unary(ScoreOp op, const Lowered& a) {
    if (op == ScoreOp::neg) return {fmt::format("-{}", number(a).text), number(a).kind};
    if (op == ScoreOp::abs && a.kind == Kind::integer)
      return {fmt::format("abs({})", a.text), a.kind};
    const char* function = op == ScoreOp::abs    ? "abs_of"
                           : op == ScoreOp::tanh ? "tanh_of"
                           : op == ScoreOp::exp  ? "exp_of"
                                                 : "log_of";
    return {fmt::format("{}({})", function, as_real(a)), Kind::real};
  }

  static Lowered choice(const Lowered& condition, const Lowered& yes, const Lowered& no) {
    const bool integers = yes.kind == Kind::integer && no.kind == Kind::integer;
    return {fmt::format("{} ? {} : {}", as_truth(condition), integers ? yes.text : as_real(yes),
                        integers ? no.text : as_real(no)),
            integers ? Kind::integer : Kind::real};
  }

  static Lowered binary(ScoreOp op, const Lowered& a, const Lowered& b) {
    if (op == ScoreOp::both) {
      return {fmt::format("{} && {}", as_truth(a), as_truth(b)), Kind::truth};
    }
    const bool integers = a.kind == Kind::integer && b.kind == Kind::integer && op != ScoreOp::div;
    const Kind kind = integers ? Kind::integer : Kind::real;
    const std::string x = integers ? a.text : as_real(a);
    const std::string y = integers ? b.text : as_real(b);
    switch (op) {
      case ScoreOp::add:
        return {fmt::format("{} + {}", x, y), kind};
      case ScoreOp::sub:
        return {fmt::format("{} - {}", x, y), kind};
      case ScoreOp::mul:
        return {fmt::format("{} * {}", x, y), kind};
      case ScoreOp::div:
        return {fmt::format("{} / {}", x, y), kind};
      case ScoreOp::min:
        return {fmt::format("{}({}, {})", integers ? "smaller" : "min_of", x, y), kind};
      case ScoreOp::max:
        return {fmt::format("{}({}, {})", integers ? "larger" : "max_of", x, y), kind};
      case ScoreOp::less:
        return {fmt::format("{} < {}", x, y), Kind::truth};
      case ScoreOp::less_equal:
        return {fmt::format("{} <= {}", x, y), Kind::truth};
      default:
        break;
    }
    assert(!"every two-operand operation is lowered above");
    return a;
  }

  // A truth value in arithmetic counts as 1.0 or 0.0.
  static Lowered number(const Lowered& value) {
    return value.kind == Kind::truth ? Lowered{as_real(value), Kind::real} : value;
  }

  const ScoreExpr& expr_;
  const Problem& problem_;
  std::vector<Lowered> values_;
  int next_name_ = 0;
};

bool asks_coordinates(const ScoreExpr& expr) {
  for (const ScoreNode& node : expr.nodes) {
    if (node.op != ScoreOp::dot && arity(node.op) == 0 && node.op != ScoreOp::constant) return true;
  }
  return false;
}

void write_log2_score(Writer& out, const Problem& problem) {
  const ScoreExpr expr = log2_score_of(problem);
  const char* at = asks_coordinates(expr) ? " at" : "";
  out.line("// The score of q.k in log2 units.");
  out.line("template <class Real>");
  out.open(fmt::format("__device__ static Real log2_score(Real dot, const Coordinates&{}) {{", at));
  Lowering lowering(expr, problem);
  const Lowered result = lowering.write(out);
  out.line(fmt::format("return {};", Lowering::as_real(result)));
  out.close("}");
}

// With one query a row, the interval that starts at first_visible_key is the whole mask.
void write_visible(Writer& out, const Problem& problem) {
  ScoreExpr expr;
  if (problem.query_len == 1) {
    constant(expr, 1);
  } else {
    expr = fold(mask_of(problem));
  }
  const char* at = asks_coordinates(expr) ? " at" : "";
  out.line("// Whether a key of the interval [first_visible_key, kv_len) takes part.");
  out.open(fmt::format("__device__ static bool visible(const Coordinates&{}) {{", at));
  if (!is_constant(expr, 1)) out.line("using Real = float;");
  Lowering lowering(expr, problem);
  const Lowered result = lowering.write(out);
  out.line(is_constant(expr, 1) ? "return true;"
                                : fmt::format("return {};", Lowering::as_truth(result)));
  out.close("}");
}

void write_first_visible_key(Writer& out, const Problem& problem) {
  const ScoreExpr expr = fold(first_visible_key_of(problem));
  const bool asks = asks_coordinates(expr);
  out.line("// Keys before this one are never loaded.");
  out.open(fmt::format("__device__ static i32 first_visible_key(i32{}) {{", asks ? " kv_len" : ""));
  if (asks) out.line("const Coordinates at = {0, 0, 0, 0, kv_len};");
  Lowering lowering(expr, problem);
  const Lowered result = lowering.write(out);
  assert(result.kind == Kind::integer);
  out.line(fmt::format("return {};", result.text));
  out.close("}");
}

}  // namespace

void write_score(Writer& out, const Problem& problem) {
  out.open("struct Score {");
  write_log2_score(out, problem);
  out.line();
  write_visible(out, problem);
  out.line();
  write_first_visible_key(out, problem);
  out.close("};");
}

}  // namespace splitkv
