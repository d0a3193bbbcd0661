// The mask of a problem, and the interval of key positions that it leaves.
//
// A conjunct of the mask *bounds* the key where it says key_pos >= b or key_pos < b, b a whole
// number that does not fall as the query's position rises: of many queries the first then has the
// lowest first key and the last the highest end.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "compiler/expr_tools.hpp"
#include "compiler/score.hpp"

namespace splitkv {
namespace {

// Positions and lengths are below 2^31; a bound that could leave 64 bits is not taken.
constexpr double kLargestPosition = 0x1p31;
constexpr double kLargestBound = 0x1p60;

// How a node moves as query_pos rises.
enum class Slope { unknown, falling, level, rising };

Slope opposite(Slope slope) {
  if (slope == Slope::falling) return Slope::rising;
  return slope == Slope::rising ? Slope::falling : slope;
}

// Of a sum, a minimum or a maximum.
Slope together(Slope a, Slope b) {
  if (a == Slope::level) return b;
  return b == Slope::level || a == b ? a : Slope::unknown;
}

// Slope of a node of whole numbers, and the largest magnitude it can have.
struct Range {
  Slope slope = Slope::unknown;
  double magnitude = 0;
};

Range range_of(const ScoreExpr& expr, int index) {
  const ScoreNode& node = expr.nodes[size_t(index)];
  Range a, b;
  if (arity(node.op) >= 1) a = range_of(expr, node.operands[0]);
  if (arity(node.op) == 2) b = range_of(expr, node.operands[1]);
  const auto constant_at = [&](int i) -> std::optional<double> {
    const ScoreNode& operand = expr.nodes[size_t(node.operands[i])];
    if (operand.op != ScoreOp::constant) return std::nullopt;
    return operand.value;
  };
  switch (node.op) {
    case ScoreOp::constant:
      if (std::trunc(node.value) != node.value) return {};
      return {Slope::level, std::fabs(node.value)};
    case ScoreOp::query_pos:
      return {Slope::rising, kLargestPosition};
    case ScoreOp::kv_len:
      return {Slope::level, kLargestPosition};
    case ScoreOp::neg:
      return {opposite(a.slope), a.magnitude};
    case ScoreOp::add:
      return {together(a.slope, b.slope), a.magnitude + b.magnitude};
    case ScoreOp::sub:
      return {together(a.slope, opposite(b.slope)), a.magnitude + b.magnitude};
    case ScoreOp::min:
    case ScoreOp::max:
      return {together(a.slope, b.slope), std::max(a.magnitude, b.magnitude)};
    case ScoreOp::mul: {
      // At most one factor moves; the other decides the direction by its sign.
      const double product = a.magnitude * b.magnitude;
      if (a.slope == Slope::level && b.slope == Slope::level) return {Slope::level, product};
      const std::optional<double> factor = constant_at(1) ? constant_at(1) : constant_at(0);
      const Slope slope = constant_at(1) ? a.slope : b.slope;
      if (!factor || std::trunc(*factor) != *factor) return {};
      return {*factor < 0 ? opposite(slope) : slope, product};
    }
    case ScoreOp::quotient:
      return {a.slope, a.magnitude + 1};
    case ScoreOp::remainder:
      return {a.slope == Slope::level ? Slope::level : Slope::unknown, b.magnitude};
    default:
      return {};
  }
}

// ---- bounds ------------------------------------------------------------------------------------

struct Bound {
  bool is_first = false;  // key_pos >= value; else key_pos < value
  ScoreExpr value;
};

// sign * node, one of the terms of a sum.
struct Term {
  int sign = 1;
  int node = -1;
};

void collect_terms(const ScoreExpr& expr, int index, int sign, std::vector<Term>& terms) {
  const ScoreNode& node = expr.nodes[size_t(index)];
  if (node.op == ScoreOp::add || node.op == ScoreOp::sub) {
    collect_terms(expr, node.operands[0], sign, terms);
    collect_terms(expr, node.operands[1], node.op == ScoreOp::add ? sign : -sign, terms);
  } else if (node.op == ScoreOp::neg) {
    collect_terms(expr, node.operands[0], -sign, terms);
  } else {
    terms.push_back({sign, index});
  }
}

// key_pos is 1, key_pos // c is c; other terms have no divisor.
std::optional<double> key_divisor(const ScoreExpr& expr, int index) {
  const ScoreNode& node = expr.nodes[size_t(index)];
  if (node.op == ScoreOp::key_pos) return 1;
  if (node.op != ScoreOp::quotient) return std::nullopt;
  const ScoreNode& divided = expr.nodes[size_t(node.operands[0])];
  const ScoreNode& divisor = expr.nodes[size_t(node.operands[1])];
  if (divided.op != ScoreOp::key_pos || divisor.op != ScoreOp::constant) return std::nullopt;
  return divisor.value;
}

// The bound that "a <= b" puts on the key, or "a < b" where strict, if it is one.
std::optional<Bound> bound_of(const ScoreExpr& expr, int a, int b, bool strict) {
  std::vector<Term> terms;
  collect_terms(expr, b, 1, terms);
  collect_terms(expr, a, -1, terms);
  const auto is_key = [&](const Term& t) { return uses(expr, t.node, ScoreOp::key_pos); };
  if (std::count_if(terms.begin(), terms.end(), is_key) != 1) return std::nullopt;
  const Term key = *std::find_if(terms.begin(), terms.end(), is_key);
  const std::optional<double> divisor = key_divisor(expr, key.node);
  if (!divisor) return std::nullopt;

  // 0 <= sign * key + rest - strict: the key is at least strict - rest, or below rest - strict + 1.
  Bound bound{key.sign > 0, {}};
  ScoreExpr& value = bound.value;
  int sum = constant(value, bound.is_first == strict ? 1 : 0);
  for (const Term& term : terms) {
    if (term.node == key.node) continue;
    const int copy = graft(value, expr, term.node);
    sum = apply(value, term.sign * key.sign < 0 ? ScoreOp::add : ScoreOp::sub, sum, copy);
  }
  if (*divisor != 1) sum = apply(value, ScoreOp::mul, sum, constant(value, *divisor));
  const Range range = range_of(value, sum);
  const bool moves_well = range.slope == Slope::level || range.slope == Slope::rising;
  if (!moves_well || range.magnitude > kLargestBound) return std::nullopt;
  return bound;
}

// Every bound of a conjunct; empty where it is none.
std::vector<Bound> bounds_of(const ScoreExpr& expr, int index) {
  const ScoreNode& node = expr.nodes[size_t(index)];
  const int a = node.operands[0], b = node.operands[1];
  std::optional<Bound> bound;
  if (node.op == ScoreOp::less || node.op == ScoreOp::less_equal) {
    bound = bound_of(expr, a, b, node.op == ScoreOp::less);
  } else if (node.op == ScoreOp::invert) {
    const ScoreNode& inner = expr.nodes[size_t(a)];
    if (inner.op == ScoreOp::less || inner.op == ScoreOp::less_equal)
      bound = bound_of(expr, inner.operands[1], inner.operands[0], inner.op == ScoreOp::less_equal);
  } else if (node.op == ScoreOp::equal) {
    bound = bound_of(expr, a, b, false);
    std::optional<Bound> other = bound_of(expr, b, a, false);
    if (!bound || !other) return {};
    return {*std::move(bound), *std::move(other)};
  }
  if (!bound) return {};
  return {*std::move(bound)};
}

void collect_conjuncts(const ScoreExpr& expr, int index, std::vector<int>& conjuncts) {
  const ScoreNode& node = expr.nodes[size_t(index)];
  if (node.op != ScoreOp::both) {
    conjuncts.push_back(index);
    return;
  }
  collect_conjuncts(expr, node.operands[0], conjuncts);
  collect_conjuncts(expr, node.operands[1], conjuncts);
}

std::vector<int> conjuncts_of(const ScoreExpr& predicate) {
  std::vector<int> conjuncts;
  if (!predicate.nodes.empty())
    collect_conjuncts(predicate, int(predicate.nodes.size()) - 1, conjuncts);
  return conjuncts;
}

// ---- mask ---------------------------------------------------------------------------------------

// query_pos // chunk * chunk: the first position of the query's chunk.
int chunk_start(ScoreExpr& expr, int chunk) {
  const int number =
      apply(expr, ScoreOp::quotient, leaf(expr, ScoreOp::query_pos), constant(expr, chunk));
  return apply(expr, ScoreOp::mul, number, constant(expr, chunk));
}

// Appends what causality, window and chunk say of a key.
void append_bounds(ScoreExpr& expr, const Problem& problem, std::vector<int>& parts) {
  const auto key = [&] { return leaf(expr, ScoreOp::key_pos); };
  const auto query = [&] { return leaf(expr, ScoreOp::query_pos); };
  if (problem.mask == Mask::causal) {
    const int newest = key();
    parts.push_back(apply(expr, ScoreOp::less_equal, newest, query()));
  }
  if (problem.window != 0) {
    // A query sees itself and the window - 1 keys before it.
    const int hidden = apply(expr, ScoreOp::sub, query(), constant(expr, problem.window));
    parts.push_back(apply(expr, ScoreOp::less, hidden, key()));
  }
  if (problem.chunk != 0) {
    const int start = chunk_start(expr, problem.chunk);
    parts.push_back(apply(expr, ScoreOp::less_equal, start, key()));
  }
}

ScoreExpr build_mask(const Problem& problem, bool with_bounds) {
  ScoreExpr expr;
  std::vector<int> parts;
  if (with_bounds) append_bounds(expr, problem, parts);
  if (problem.mask == Mask::tree) parts.push_back(leaf(expr, ScoreOp::tree_visible));
  for (int conjunct : conjuncts_of(problem.predicate)) {
    if (!with_bounds && !bounds_of(problem.predicate, conjunct).empty()) continue;
    parts.push_back(truth(expr, graft(expr, problem.predicate, conjunct)));
  }
  if (parts.empty()) {
    constant(expr, 1);
    return expr;
  }
  int all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) all = apply(expr, ScoreOp::both, all, parts[i]);
  return fold(expr);
}

}  // namespace

ScoreExpr mask_of(const Problem& problem) { return build_mask(problem, true); }

// The interval of several queries is that of none of them alone; of one it is exact.
ScoreExpr mask_within_interval_of(const Problem& problem) {
  return build_mask(problem, problem.query_len > 1);
}

KeyInterval key_interval_of(const Problem& problem) {
  KeyInterval interval;
  ScoreExpr& first = interval.first;
  ScoreExpr& end = interval.end;
  int low = constant(first, 0);
  if (problem.window != 0) {
    const int query = leaf(first, ScoreOp::query_pos);
    const int oldest = apply(first, ScoreOp::sub, query, constant(first, problem.window - 1));
    low = apply(first, ScoreOp::max, low, oldest);
  }
  if (problem.chunk != 0) {
    const int start = chunk_start(first, problem.chunk);
    low = apply(first, ScoreOp::max, low, start);
  }
  int high = leaf(end, problem.mask == Mask::causal ? ScoreOp::query_pos : ScoreOp::kv_len);
  if (problem.mask == Mask::causal) high = apply(end, ScoreOp::add, high, constant(end, 1));

  bool user_first = false, user_end = false;
  for (int conjunct : conjuncts_of(problem.predicate)) {
    for (const Bound& bound : bounds_of(problem.predicate, conjunct)) {
      const int result = int(bound.value.nodes.size()) - 1;
      if (bound.is_first) {
        low = apply(first, ScoreOp::max, low, graft(first, bound.value, result));
        user_first = true;
      } else {
        high = apply(end, ScoreOp::min, high, graft(end, bound.value, result));
        user_end = true;
      }
    }
  }
  // What users write may lie far outside the row; the ends themselves stay within it.
  if (user_first) apply(first, ScoreOp::min, low, leaf(first, ScoreOp::kv_len));
  if (user_end) apply(end, ScoreOp::max, high, constant(end, 0));
  first = fold(first);
  end = fold(end);
  return interval;
}

}  // namespace splitkv
