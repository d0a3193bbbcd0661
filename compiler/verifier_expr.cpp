// Rules of what users write: parameters and expressions. The text form's parser keeps many of them
// by itself; a problem built otherwise may break them.
#include <algorithm>
#include <cmath>

#include "compiler/expr_tools.hpp"
#include "compiler/text.hpp"
#include "compiler/text_expr.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv::rules {
namespace {

constexpr size_t kLongestName = 64;
constexpr int kMaxDivisor = 1 << 30;
// Positions are whole numbers of 32 bits; so are the whole constants that meet them.
constexpr double kLargestConstant = 1e15;

bool is_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName && !(name[0] >= '0' && name[0] <= '9') &&
         std::all_of(name.begin(), name.end(), fits) && !is_reserved_name(name);
}

struct UserExpr {
  const char* field;
  const ScoreExpr& expr;
  const char* fits;  // a word that would do
};

// Applies `check` to both expressions of a problem, where it has them.
template <class Check>
Verdict for_both(const Problem& problem, Check check) {
  const UserExpr both[] = {{"score", problem.score_mod, "score=score*0.5"},
                           {"where", problem.predicate, "where=key_pos<4096"}};
  for (const UserExpr& user : both) {
    if (user.expr.nodes.empty()) continue;
    if (Verdict verdict = check(user)) return verdict;
  }
  return {};
}

bool has_known_leaf(const ScoreNode& node, const Problem& problem) {
  if (node.op == ScoreOp::param)
    return node.index >= 0 && size_t(node.index) < problem.params.size();
  return node.op != ScoreOp::dot && node.op != ScoreOp::bias && node.op != ScoreOp::tree_visible;
}

// Every node takes the latest results that nobody took, as in a text read from the left.
bool is_in_text_order(const ScoreExpr& expr) {
  std::vector<int> open;
  for (size_t i = 0; i < expr.nodes.size(); ++i) {
    const ScoreNode& node = expr.nodes[i];
    const int count = arity(node.op);
    if (int(open.size()) < count) return false;
    for (int k = 0; k < 3; ++k) {
      const int expected = k < count ? open[open.size() - size_t(count - k)] : -1;
      if (node.operands[k] != expected) return false;
    }
    open.resize(open.size() - size_t(count));
    open.push_back(int(i));
  }
  return open.size() == 1;
}

// The largest magnitude of every node, as far as it is made of whole numbers.
std::vector<double> largest_magnitudes(const ScoreExpr& expr) {
  std::vector<double> largest;
  for (const ScoreNode& node : expr.nodes) {
    const auto operand = [&](int i) { return largest[size_t(node.operands[i])]; };
    double value = 0x1p31;
    if (node.op == ScoreOp::constant) {
      value = std::fabs(node.value);
    } else if (node.op == ScoreOp::mul) {
      value = operand(0) * operand(1);
    } else if (node.op == ScoreOp::add || node.op == ScoreOp::sub) {
      value = operand(0) + operand(1);
    } else if (node.op == ScoreOp::select) {
      value = std::max(operand(1), operand(2));
    } else if (is_logical(node.op)) {
      value = 1;
    } else if (arity(node.op) == 2) {
      value = std::max(operand(0), operand(1)) + 1;
    } else if (arity(node.op) == 1) {
      value = operand(0);
    }
    largest.push_back(value);
  }
  return largest;
}

}  // namespace

Verdict params_are_few(const Problem& problem, const Target&) {
  const size_t count = problem.params.size();
  if (count <= size_t(kMaxParams)) return {};
  std::string fits;
  for (int i = 0; i < kMaxParams; ++i) {
    const Param& param = problem.params[size_t(i)];
    fits += fmt::format("{}{}:{}", i == 0 ? "params=" : ",", param.name, name(param.scope));
  }
  return refuse(__func__, "params", fmt::format("{} names", count),
                fmt::format("is more than {}", kMaxParams), fits);
}

Verdict param_names_are_new_words(const Problem& problem, const Target&) {
  for (const Param& param : problem.params)
    if (!is_name(param.name))
      return refuse(__func__, "params", param.name,
                    "is no name, or one that expressions know already", "params=slope:scalar");
  return {};
}

Verdict param_names_differ(const Problem& problem, const Target&) {
  for (size_t i = 0; i < problem.params.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (problem.params[i].name == problem.params[k].name)
        return refuse(__func__, "params", problem.params[i].name, "is given twice",
                      fmt::format("params={}:scalar", problem.params[i].name));
  return {};
}

Verdict expressions_are_short(const Problem& problem, const Target&) {
  return for_both(problem, [](const UserExpr& user) -> Verdict {
    const size_t count = user.expr.nodes.size();
    if (count <= size_t(kMaxExprNodes)) return {};
    return refuse("expressions_are_short", user.field, fmt::format("{} nodes", count),
                  fmt::format("is more than {}", kMaxExprNodes), user.fits);
  });
}

Verdict expressions_are_in_text_order(const Problem& problem, const Target&) {
  return for_both(problem, [](const UserExpr& user) -> Verdict {
    if (is_in_text_order(user.expr)) return {};
    return refuse("expressions_are_in_text_order", user.field,
                  fmt::format("{} nodes", user.expr.nodes.size()),
                  "is not one tree whose operands come first, in order", user.fits);
  });
}

Verdict expressions_use_what_is_there(const Problem& problem, const Target&) {
  return for_both(problem, [&](const UserExpr& user) -> Verdict {
    for (const ScoreNode& node : user.expr.nodes)
      if (!has_known_leaf(node, problem))
        return refuse(
            "expressions_use_what_is_there", user.field,
            print_expression(user.expr, problem.params),
            node.op == ScoreOp::param
                ? fmt::format("uses parameter {} of {}", node.index, problem.params.size())
                : std::string("uses what only the problem's own words may"),
            user.fits);
    return {};
  });
}

Verdict predicate_does_not_use_score(const Problem& problem, const Target&) {
  const ScoreExpr& where = problem.predicate;
  if (where.nodes.empty() || !uses(where, int(where.nodes.size()) - 1, ScoreOp::score)) return {};
  return refuse(__func__, "where", print_expression(where, problem.params),
                "uses the score, which is not known when keys are chosen", "where=key_pos<4096");
}

Verdict expression_constants_fit_fp32(const Problem& problem, const Target&) {
  return for_both(problem, [&](const UserExpr& user) -> Verdict {
    for (const ScoreNode& node : user.expr.nodes)
      if (node.op == ScoreOp::constant && !(std::fabs(node.value) <= kLargestConstant))
        return refuse(
            "expression_constants_fit_fp32", user.field,
            print_expression(user.expr, problem.params),
            fmt::format("has the number {}, which is above {}", node.value, kLargestConstant),
            user.fits);
    return {};
  });
}

Verdict floor_division_is_of_whole_numbers(const Problem& problem, const Target&) {
  return for_both(problem, [&](const UserExpr& user) -> Verdict {
    const std::vector<bool> whole = whole_nodes(user.expr);
    for (const ScoreNode& node : user.expr.nodes) {
      if (node.op != ScoreOp::quotient && node.op != ScoreOp::remainder) continue;
      const ScoreNode& divisor = user.expr.nodes[size_t(node.operands[1])];
      const bool constant = divisor.op == ScoreOp::constant && divisor.value >= 1 &&
                            divisor.value <= kMaxDivisor &&
                            std::trunc(divisor.value) == divisor.value;
      if (constant && whole[size_t(node.operands[0])]) continue;
      return refuse("floor_division_is_of_whole_numbers", user.field,
                    print_expression(user.expr, problem.params),
                    constant ? std::string("has // or % of something that is not a whole number")
                             : fmt::format("has // or % by something other than a whole number "
                                           "from 1 to {}",
                                           kMaxDivisor),
                    fmt::format("{}=key_pos//64", user.field));
    }
    return {};
  });
}

// Whole numbers are computed in 64 bits. Positions, lengths and indices are below 2^31.
Verdict whole_numbers_fit_64_bits(const Problem& problem, const Target&) {
  return for_both(problem, [&](const UserExpr& user) -> Verdict {
    const std::vector<bool> whole = whole_nodes(user.expr);
    const std::vector<double> largest = largest_magnitudes(user.expr);
    for (size_t i = 0; i < largest.size(); ++i)
      if (whole[i] && largest[i] > 0x1p62)
        return refuse("whole_numbers_fit_64_bits", user.field,
                      print_expression(user.expr, problem.params),
                      "multiplies whole numbers beyond 2^62", user.fits);
    return {};
  });
}

// The text form writes the negative of a number as a number.
Verdict negative_numbers_are_numbers(const Problem& problem, const Target&) {
  return for_both(problem, [&](const UserExpr& user) -> Verdict {
    for (const ScoreNode& node : user.expr.nodes)
      if (node.op == ScoreOp::neg &&
          user.expr.nodes[size_t(node.operands[0])].op == ScoreOp::constant)
        return refuse("negative_numbers_are_numbers", user.field,
                      print_expression(user.expr, problem.params),
                      "negates a number instead of naming the negative one", user.fits);
    return {};
  });
}

}  // namespace splitkv::rules
