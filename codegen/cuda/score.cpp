#include "codegen/cuda/score.hpp"

#include <fmt/format.h>

#include <algorithm>
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

// What positions are called where the expression is written.
struct PositionNames {
  const char* query_pos = "at.query_pos";
  const char* kv_len = "at.kv_len";
};

class Lowering {
 public:
  Lowering(const ScoreExpr& expr, const Problem& problem, const PositionNames& names = {})
      : expr_(expr), problem_(problem), names_(names) {}

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

  // Whole numbers are 64 bits wide where users write the arithmetic; what the library writes itself
  // stays within 32.
  const char* integer() const {
    return problem_.score_mod.nodes.empty() && problem_.predicate.nodes.empty() ? "i32" : "i64";
  }

 private:
  Lowered lower(Writer& out, const ScoreNode& node) {
    switch (node.op) {
      case ScoreOp::dot:
        return {"dot", Kind::real};
      case ScoreOp::constant:
        return literal(node.value);
      case ScoreOp::query_pos:
        return position(names_.query_pos);
      case ScoreOp::key_pos:
        return position("at.key_pos");
      case ScoreOp::kv_len:
        return position(names_.kv_len);
      case ScoreOp::q_head:
        return position("at.q_head");
      case ScoreOp::batch:
        return position("at.batch");
      case ScoreOp::param:
        return {parameter(node.index), Kind::real};
      case ScoreOp::bias:
        return {fmt::format("Real(bias_at<DType::{}>(args, at))", splitkv::name(*problem_.bias)),
                Kind::real};
      case ScoreOp::tree_visible:
        return {"tree_visible(args, at)", Kind::truth};
      default:
        break;
    }
    const Lowered result = operation(node);
    const std::string name = fmt::format("t{}", next_name_++);
    const char* types[] = {integer(), "Real", "bool"};
    out.line(fmt::format("const {} {} = {};", types[int(result.kind)], name, result.text));
    return {name, result.kind};
  }

  Lowered position(std::string_view name) const {
    if (integer() == std::string_view("i32")) return {std::string(name), Kind::integer};
    return {fmt::format("i64({})", name), Kind::integer};
  }

  std::string parameter(int index) const {
    const ParamScope scope = params_[index].scope;
    const char* at = scope == ParamScope::scalar ? "0"
                     : scope == ParamScope::head ? "at.q_head"
                                                 : "at.batch";
    return fmt::format("Real(args.params[{}][{}])", index, at);
  }

  Lowered literal(double value) const {
    const bool wide = integer() == std::string_view("i64");
    if (value == std::floor(value) && std::abs(value) < (wide ? 0x1p53 : 0x1p30)) {
      return {fmt::format("{}{}", int64_t(value), wide ? "ll" : ""), Kind::integer};
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
    if (op == ScoreOp::neg) return {fmt::format("-({})", number(a).text), number(a).kind};
    if (op == ScoreOp::abs && a.kind == Kind::integer)
      return {fmt::format("larger({0}, -({0}))", a.text), a.kind};
    if (op == ScoreOp::invert) return {fmt::format("!{}", as_truth(a)), Kind::truth};
    const char* function = op == ScoreOp::abs       ? "abs_of"
                           : op == ScoreOp::tanh    ? "tanh_of"
                           : op == ScoreOp::exp     ? "exp_of"
                           : op == ScoreOp::sigmoid ? "sigmoid_of"
                                                    : "log_of";
    return {fmt::format("{}({})", function, as_real(a)), Kind::real};
  }

  static Lowered choice(const Lowered& condition, const Lowered& yes, const Lowered& no) {
    const bool integers = yes.kind == Kind::integer && no.kind == Kind::integer;
    return {fmt::format("{} ? {} : {}", as_truth(condition), integers ? yes.text : as_real(yes),
                        integers ? no.text : as_real(no)),
            integers ? Kind::integer : Kind::real};
  }

  Lowered binary(ScoreOp op, const Lowered& a, const Lowered& b) const {
    if (op == ScoreOp::both || op == ScoreOp::either) {
      const char* word = op == ScoreOp::both ? "&&" : "||";
      return {fmt::format("{} {} {}", as_truth(a), word, as_truth(b)), Kind::truth};
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
      case ScoreOp::quotient:
        return {fmt::format("{}({}, {})", integers ? "floor_div" : "quotient_of", x, y), kind};
      case ScoreOp::remainder:
        return {fmt::format("{}({}, {})", integers ? "floor_rest" : "remainder_of", x, y), kind};
      case ScoreOp::equal:
        return {fmt::format("{} == {}", x, y), Kind::truth};
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
  const PositionNames names_;
  const std::vector<Param> params_ = all_params(problem_);
  std::vector<Lowered> values_;
  int next_name_ = 0;
};

bool asks(const ScoreExpr& expr, bool (*what)(ScoreOp)) {
  return std::any_of(expr.nodes.begin(), expr.nodes.end(),
                     [what](const ScoreNode& node) { return what(node.op); });
}

bool is_position(ScoreOp op) {
  return arity(op) == 0 && op != ScoreOp::dot && op != ScoreOp::constant;
}

bool is_device_value(ScoreOp op) {
  return op == ScoreOp::param || op == ScoreOp::bias || op == ScoreOp::tree_visible;
}

// The parameters " at" and " args", named where the expression asks for them.
std::string place_parameters(const ScoreExpr& expr) {
  return fmt::format("const Coordinates&{}, const LaunchArgs&{}",
                     asks(expr, is_position) ? " at" : "",
                     asks(expr, is_device_value) ? " args" : "");
}

void write_log2_score(Writer& out, const Problem& problem) {
  const ScoreExpr expr = log2_score_of(problem);
  out.line("// The score of q.k in log2 units.");
  out.line("template <class Real>");
  out.open(
      fmt::format("__device__ static Real log2_score(Real dot, {}) {{", place_parameters(expr)));
  Lowering lowering(expr, problem);
  const Lowered result = lowering.write(out);
  out.line(fmt::format("return {};", Lowering::as_real(result)));
  out.close("}");
}

void write_visible(Writer& out, const Problem& problem) {
  const ScoreExpr expr = fold(mask_within_interval_of(problem));
  out.line("// Whether a key of the row's interval takes part.");
  out.open(fmt::format("__device__ static bool visible({}) {{", place_parameters(expr)));
  if (is_constant(expr, 1)) {
    out.line("return true;");
  } else {
    out.line("using Real = float;");
    Lowering lowering(expr, problem);
    const Lowered result = lowering.write(out);
    out.line(fmt::format("return {};", Lowering::as_truth(result)));
  }
  out.close("}");
}

void write_bound(Writer& out, const Problem& problem, const char* name, const ScoreExpr& bound) {
  const ScoreExpr expr = fold(bound);
  const auto named = [&expr](ScoreOp op, const char* parameter) {
    const auto is_leaf = [op](const ScoreNode& node) { return node.op == op; };
    return std::any_of(expr.nodes.begin(), expr.nodes.end(), is_leaf) ? parameter : "";
  };
  out.open(fmt::format("__device__ static i32 {}(i32{}, i32{}) {{", name,
                       named(ScoreOp::query_pos, " query_pos"), named(ScoreOp::kv_len, " kv_len")));
  Lowering lowering(expr, problem, {.query_pos = "query_pos", .kv_len = "kv_len"});
  const Lowered result = lowering.write(out);
  assert(result.kind == Kind::integer);
  // Kernels clamp both bounds to the row's keys.
  const bool wide = lowering.integer() == std::string_view("i64");
  out.line(wide ? fmt::format("return i32(smaller(larger(i64({}), i64(0)), i64(0x7fffffff)));",
                              result.text)
                : fmt::format("return {};", result.text));
  out.close("}");
}

void write_interval(Writer& out, const Problem& problem) {
  const KeyInterval interval = key_interval_of(problem);
  out.line(
      "// Keys outside [first_key, end_key) are never loaded: the first as the row's first query");
  out.line("// sees it, the end as its last one does.");
  write_bound(out, problem, "first_key", interval.first);
  write_bound(out, problem, "end_key", interval.end);
}

}  // namespace

void write_score(Writer& out, const Problem& problem) {
  out.open("struct Score {");
  const bool asks_place = asks(log2_score_of(problem), is_position) ||
                          asks(fold(mask_within_interval_of(problem)), is_position);
  out.line("// Whether the two functions below look at where a score stands.");
  out.line(fmt::format("static constexpr bool asks_place = {};", asks_place));
  out.line();
  write_log2_score(out, problem);
  out.line();
  write_visible(out, problem);
  out.line();
  write_interval(out, problem);
  out.close("};");
}

}  // namespace splitkv
