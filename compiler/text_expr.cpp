#include "compiler/text_expr.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "compiler/expr_tools.hpp"

namespace splitkv {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kUnaryLevel = 7;  // binds closer than every binary operator
constexpr int kNoParentheses = 0;

struct Operator {
  std::string_view text;
  int level;  // higher binds closer
  ScoreOp op;
  bool swapped = false;   // a > b is less(b, a)
  bool inverted = false;  // a != b is invert(equal(a, b))
};

// Longer spellings come before their beginnings.
constexpr Operator kOperators[] = {
    {"||", 1, ScoreOp::either},     {"&&", 2, ScoreOp::both},
    {"==", 3, ScoreOp::equal},      {"!=", 3, ScoreOp::equal, false, true},
    {"<=", 4, ScoreOp::less_equal}, {">=", 4, ScoreOp::less_equal, true},
    {"<", 4, ScoreOp::less},        {">", 4, ScoreOp::less, true},
    {"+", 5, ScoreOp::add},         {"-", 5, ScoreOp::sub},
    {"*", 6, ScoreOp::mul},         {"//", 6, ScoreOp::quotient},
    {"/", 6, ScoreOp::div},         {"%", 6, ScoreOp::remainder},
};

struct Named {
  std::string_view name;
  ScoreOp op;
};

constexpr Named kLeaves[] = {
    {"score", ScoreOp::score},   {"query_pos", ScoreOp::query_pos}, {"key_pos", ScoreOp::key_pos},
    {"kv_len", ScoreOp::kv_len}, {"head", ScoreOp::q_head},         {"batch", ScoreOp::batch},
};

constexpr Named kFunctions[] = {
    {"tanh", ScoreOp::tanh},       {"exp", ScoreOp::exp},       {"log", ScoreOp::log},
    {"abs", ScoreOp::abs},         {"min", ScoreOp::min},       {"max", ScoreOp::max},
    {"sigmoid", ScoreOp::sigmoid}, {"select", ScoreOp::select},
};

// Leaves that only a problem's own words make: they print, but nobody can write them.
constexpr Named kOwnLeaves[] = {
    {"dot", ScoreOp::dot}, {"bias", ScoreOp::bias}, {"tree_visible", ScoreOp::tree_visible}};

template <class Names>
std::optional<ScoreOp> op_named(const Names& names, std::string_view name) {
  for (const Named& each : names)
    if (each.name == name) return each.op;
  return std::nullopt;
}

template <class Names>
std::string_view name_of(const Names& names, ScoreOp op) {
  for (const Named& each : names)
    if (each.op == op) return each.name;
  return {};
}

// ---- parsing ------------------------------------------------------------------------------------

// One node over whole expressions, whose nodes come first, in order.
ScoreExpr over(ScoreOp op, std::vector<ScoreExpr> operands) {
  ScoreExpr result;
  int roots[3] = {-1, -1, -1};
  for (size_t i = 0; i < operands.size(); ++i) {
    const int base = int(result.nodes.size());
    for (ScoreNode node : operands[i].nodes) {
      for (int k = 0; k < arity(node.op); ++k) node.operands[k] += base;
      result.nodes.push_back(node);
    }
    roots[i] = int(result.nodes.size()) - 1;
  }
  apply(result, op, roots[0], roots[1], roots[2]);
  return result;
}

using Parsed = std::optional<ScoreExpr>;  // nothing: the parser holds the error

class Parser {
 public:
  Parser(std::string_view text, const std::vector<Param>& params, bool with_score)
      : text_(text), params_(params), with_score_(with_score) {}

  Result<ScoreExpr> parse() {
    Parsed parsed = parse_binary(1);
    if (parsed && at_ < text_.size())
      parsed = fail("what follows is not understood", "an operator such as + or &&");
    if (!parsed) return invalid_argument(error_);
    return *std::move(parsed);
  }

 private:
  std::string_view text_;
  const std::vector<Param>& params_;
  bool with_score_;
  size_t at_ = 0;
  int depth_ = 0;
  size_t nodes_ = 0;
  std::string error_;

  Parsed fail(std::string_view what, std::string_view fits) {
    if (error_.empty())
      error_ = fmt::format("character {}: {}; {} would work", at_ + 1, what, fits);
    return std::nullopt;
  }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  // Counts what is being built, so that no text takes more than a bounded time.
  bool add_nodes(size_t count) {
    nodes_ += count;
    if (nodes_ <= size_t(kMaxExprNodes)) return true;
    fail(fmt::format("the expression has more than {} numbers, names and operators", kMaxExprNodes),
         "a shorter one");
    return false;
  }

  Parsed parse_binary(int level) {
    Parsed left = parse_unary();
    while (left) {
      const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                      [this](const Operator& o) { return follows(o.text); });
      if (found == std::end(kOperators) || found->level < level) return left;
      at_ += found->text.size();
      Parsed right = parse_binary(found->level + 1);
      if (!right || !add_nodes(found->inverted ? 2 : 1)) return std::nullopt;
      if (found->swapped) std::swap(*left, *right);
      left = over(found->op, {*std::move(left), *std::move(right)});
      if (found->inverted) left = over(ScoreOp::invert, {*std::move(left)});
    }
    return left;
  }

  bool follows(std::string_view token) const { return text_.substr(at_).starts_with(token); }

  Parsed parse_unary() {
    if (++depth_ > kMaxDepth)
      return fail(fmt::format("operations are nested more than {} deep", kMaxDepth),
                  "fewer parentheses");
    Parsed parsed = parse_unary_inside();
    --depth_;
    return parsed;
  }

  Parsed parse_unary_inside() {
    if (take("-")) {
      Parsed operand = parse_unary();
      if (!operand) return operand;
      // The negative of a number is a number.
      if (operand->nodes.back().op == ScoreOp::constant) {
        operand->nodes.back().value *= -1;
        return operand;
      }
      if (!add_nodes(1)) return std::nullopt;
      return over(ScoreOp::neg, {*std::move(operand)});
    }
    if (!follows("!=") && take("!")) {
      Parsed operand = parse_unary();
      if (!operand || !add_nodes(1)) return std::nullopt;
      return over(ScoreOp::invert, {*std::move(operand)});
    }
    return parse_primary();
  }

  Parsed parse_primary() {
    if (take("(")) {
      Parsed inner = parse_binary(1);
      if (inner && !take(")")) return fail("the parenthesis is not closed", ")");
      return inner;
    }
    const char next = at_ < text_.size() ? text_[at_] : '\0';
    if ((next >= '0' && next <= '9') || next == '.') return parse_number();
    if ((next >= 'a' && next <= 'z') || next == '_') return parse_name();
    return fail("an operand is missing", "a number, a name or (");
  }

  Parsed parse_number() {
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) return fail("the number is not understood", "0.5 or 1e-3");
    at_ += size_t(stop - begin);
    if (!add_nodes(1)) return std::nullopt;
    ScoreExpr expr;
    constant(expr, value);
    return expr;
  }

  Parsed parse_name() {
    size_t end = at_;
    const auto in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < text_.size() && in_name(text_[end])) ++end;
    const std::string_view name = text_.substr(at_, end - at_);
    if (const auto function = op_named(kFunctions, name)) {
      at_ = end;
      return parse_call(*function, name);
    }
    ScoreExpr expr;
    const auto leaf_op = op_named(kLeaves, name);
    const auto found = std::find_if(params_.begin(), params_.end(),
                                    [name](const Param& param) { return param.name == name; });
    if (leaf_op && (*leaf_op != ScoreOp::score || with_score_)) {
      leaf(expr, *leaf_op);
    } else if (found != params_.end()) {
      param(expr, int(found - params_.begin()));
    } else {
      return fail(fmt::format("the name \"{}\" means nothing here", name), names_that_work());
    }
    at_ = end;
    if (!add_nodes(1)) return std::nullopt;
    return expr;
  }

  std::string names_that_work() const {
    std::string list;
    for (const Named& each : kLeaves)
      if (each.op != ScoreOp::score || with_score_) list += fmt::format("{}, ", each.name);
    for (const Param& each : params_) list += fmt::format("{}, ", each.name);
    return list + "or a name given by params=";
  }

  Parsed parse_call(ScoreOp op, std::string_view name) {
    const int wanted = arity(op);
    if (!take("(")) return fail(fmt::format("{} is a function", name), fmt::format("{}(", name));
    std::vector<ScoreExpr> operands;
    for (int i = 0; i < wanted; ++i) {
      if (i > 0 && !take(","))
        return fail(fmt::format("{} takes {} operands", name, wanted), "a comma and the next one");
      Parsed operand = parse_binary(1);
      if (!operand) return operand;
      operands.push_back(*std::move(operand));
    }
    if (!take(")")) return fail(fmt::format("{} takes {} operand(s)", name, wanted), ")");
    if (!add_nodes(1)) return std::nullopt;
    return over(op, std::move(operands));
  }
};

// ---- printing -----------------------------------------------------------------------------------

class Printer {
 public:
  Printer(const ScoreExpr& expr, const std::vector<Param>& params) : expr_(expr), params_(params) {}

  // Text of a node, in parentheses where it binds less closely than `level`.
  std::string print(int index, int level) const {
    const ScoreNode& node = expr_.nodes[size_t(index)];
    if (arity(node.op) == 0) return print_leaf(node);
    if (const std::string_view name = name_of(kFunctions, node.op); !name.empty())
      return print_call(node, name);
    if (node.op == ScoreOp::neg) return fmt::format("-{}", print(node.operands[0], kUnaryLevel));
    if (node.op == ScoreOp::invert) {
      const ScoreNode& inner = expr_.nodes[size_t(node.operands[0])];
      if (inner.op != ScoreOp::equal)
        return fmt::format("!{}", print(node.operands[0], kUnaryLevel));
      return print_binary(inner, "!=", level);
    }
    return print_binary(node, {}, level);
  }

 private:
  const ScoreExpr& expr_;
  const std::vector<Param>& params_;

  std::string print_leaf(const ScoreNode& node) const {
    // fmt prints the shortest digits that read back as the same double.
    if (node.op == ScoreOp::constant) return fmt::format("{}", node.value);
    if (node.op == ScoreOp::param) {
      const bool known = node.index >= 0 && size_t(node.index) < params_.size();
      return known ? params_[size_t(node.index)].name : fmt::format("param{}", node.index);
    }
    const std::string_view name = name_of(kLeaves, node.op);
    return std::string(name.empty() ? name_of(kOwnLeaves, node.op) : name);
  }

  std::string print_call(const ScoreNode& node, std::string_view name) const {
    std::string text = fmt::format("{}(", name);
    for (int i = 0; i < arity(node.op); ++i) {
      if (i > 0) text += ",";
      text += print(node.operands[i], kNoParentheses);
    }
    return text + ")";
  }

  // Operators of one level are read from the left.
  std::string print_binary(const ScoreNode& node, std::string_view spelling, int level) const {
    const auto found =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const Operator& o) {
          return o.op == node.op && (spelling.empty() || o.text == spelling);
        });
    std::string text = print(node.operands[0], found->level);
    text += found->text;
    text += print(node.operands[1], found->level + 1);
    return found->level < level ? fmt::format("({})", text) : text;
  }
};

}  // namespace

Result<ScoreExpr> parse_expression(std::string_view text, const std::vector<Param>& params,
                                   bool with_score) {
  return Parser(text, params, with_score).parse();
}

std::string print_expression(const ScoreExpr& expr, const std::vector<Param>& params) {
  return Printer(expr, params).print(int(expr.nodes.size()) - 1, kNoParentheses);
}

bool is_reserved_name(std::string_view name) {
  return op_named(kLeaves, name) || op_named(kFunctions, name) || op_named(kOwnLeaves, name);
}

}  // namespace splitkv
