#include "tools/reference/expression.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>

namespace splitkv::reference {

struct Expression::Node {
  // Of the values of the operands and the named values; `operands` is empty for leaves.
  std::function<double(std::span<const double> operands, std::span<const double> named)> value;
  std::vector<std::shared_ptr<const Node>> operands;
  // select and the logical operators look at the operands they need only.
  bool lazy = false;
};

namespace {

using Node = Expression::Node;
using NodePtr = std::shared_ptr<const Node>;
using Values = std::span<const double>;

double value_of(const Node& node, Values named) {
  if (node.lazy) {
    // select(c, a, b)
    const bool taken = value_of(*node.operands[0], named) != 0;
    return value_of(*node.operands[taken ? 1 : 2], named);
  }
  std::vector<double> operands;
  for (const NodePtr& operand : node.operands) operands.push_back(value_of(*operand, named));
  return node.value(operands, named);
}

// Floor division of whole numbers.
int64_t floor_quotient(double a, double b) {
  const auto x = int64_t(a), y = int64_t(b);
  if (double(x) != a || double(y) != b || y <= 0) {
    throw std::invalid_argument("// and % take whole numbers and a divisor above 0");
  }
  return x >= 0 ? x / y : -((-x + y - 1) / y);
}

struct Call {
  std::string_view name;
  size_t operands;
  double (*value)(Values);
};

constexpr Call kCalls[] = {
    {"tanh", 1, [](Values v) { return std::tanh(v[0]); }},
    {"exp", 1, [](Values v) { return std::exp(v[0]); }},
    {"log", 1, [](Values v) { return std::log(v[0]); }},
    {"abs", 1, [](Values v) { return std::abs(v[0]); }},
    {"sigmoid", 1, [](Values v) { return 1 / (1 + std::exp(-v[0])); }},
    {"min", 2, [](Values v) { return std::min(v[0], v[1]); }},
    {"max", 2, [](Values v) { return std::max(v[0], v[1]); }},
};

struct Infix {
  std::string_view sign;
  int level;  // binds tighter the higher
  double (*value)(Values);
};

// Longer signs before those that they begin with.
constexpr Infix kInfixes[] = {
    {"||", 1, [](Values v) { return double(v[0] != 0 || v[1] != 0); }},
    {"&&", 2, [](Values v) { return double(v[0] != 0 && v[1] != 0); }},
    {"==", 3, [](Values v) { return double(v[0] == v[1]); }},
    {"!=", 3, [](Values v) { return double(v[0] != v[1]); }},
    {"<=", 4, [](Values v) { return double(v[0] <= v[1]); }},
    {">=", 4, [](Values v) { return double(v[0] >= v[1]); }},
    {"<", 4, [](Values v) { return double(v[0] < v[1]); }},
    {">", 4, [](Values v) { return double(v[0] > v[1]); }},
    {"+", 5, [](Values v) { return v[0] + v[1]; }},
    {"-", 5, [](Values v) { return v[0] - v[1]; }},
    {"//", 6, [](Values v) { return double(floor_quotient(v[0], v[1])); }},
    {"*", 6, [](Values v) { return v[0] * v[1]; }},
    {"/", 6, [](Values v) { return v[0] / v[1]; }},
    {"%", 6, [](Values v) { return v[0] - v[1] * double(floor_quotient(v[0], v[1])); }},
};
constexpr int kTightest = 6;

class Parser {
 public:
  Parser(std::string_view text, const std::vector<std::string>& names)
      : text_(text), names_(names) {}

  NodePtr whole() {
    NodePtr node = infix(1);
    if (at_ != text_.size()) fail("the end");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw std::invalid_argument("expression " + std::string(text_) + ": " + wanted +
                                " is wanted at character " + std::to_string(at_));
  }

  bool take(std::string_view sign) {
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  static NodePtr apply(double (*value)(Values), std::vector<NodePtr> operands) {
    return std::make_shared<Node>(
        Node{[value](Values v, Values) { return value(v); }, std::move(operands)});
  }

  const Infix* take_infix(int level) {
    for (const Infix& infix : kInfixes) {
      if (!text_.substr(at_).starts_with(infix.sign)) continue;
      if (infix.level != level) return nullptr;
      at_ += infix.sign.size();
      return &infix;
    }
    return nullptr;
  }

  NodePtr infix(int level) {
    if (level > kTightest) return prefix();
    NodePtr left = infix(level + 1);
    while (const Infix* found = take_infix(level)) {
      left = apply(found->value, {left, infix(level + 1)});
    }
    return left;
  }

  NodePtr prefix() {
    if (take("-")) return apply([](Values v) { return -v[0]; }, {prefix()});
    if (take("!")) return apply([](Values v) { return double(v[0] == 0); }, {prefix()});
    if (take("(")) {
      NodePtr inside = infix(1);
      if (!take(")")) fail(")");
      return inside;
    }
    if (at_ < text_.size() && (std::isdigit(text_[at_]) || text_[at_] == '.')) return number();
    return word();
  }

  NodePtr number() {
    double value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("a number");
    at_ = size_t(end - text_.data());
    return std::make_shared<Node>(Node{[value](Values, Values) { return value; }, {}});
  }

  NodePtr word() {
    const size_t first = at_;
    while (at_ < text_.size() && (std::isalnum(text_[at_]) || text_[at_] == '_')) ++at_;
    const std::string_view name = text_.substr(first, at_ - first);
    if (take("(")) return call(name);
    const auto found = name.empty() ? names_.end() : std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      at_ = first;
      fail("a name that is known");
    }
    const auto index = size_t(found - names_.begin());
    return std::make_shared<Node>(Node{[index](Values, Values named) { return named[index]; }, {}});
  }

  NodePtr call(std::string_view name) {
    std::vector<NodePtr> operands;
    do {
      operands.push_back(infix(1));
    } while (take(","));
    if (!take(")")) fail(")");
    if (name == "select" && operands.size() == 3) {
      return std::make_shared<Node>(Node{{}, std::move(operands), true});
    }
    for (const Call& known : kCalls) {
      if (known.name != name) continue;
      if (known.operands != operands.size()) break;
      return apply(known.value, std::move(operands));
    }
    fail("a function with its number of operands");
  }

  std::string_view text_;
  const std::vector<std::string>& names_;
  size_t at_ = 0;
};

}  // namespace

Expression::Expression(std::string_view text, std::vector<std::string> names)
    : root_(Parser(text, names).whole()) {}

double Expression::evaluate(std::span<const double> values) const {
  return value_of(*root_, values);
}

}  // namespace splitkv::reference
