// The score and the mask of a problem as expressions. Nothing about scale, softcap, ALiBi, window
// or causality is written anywhere else.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/expr.hpp"
#include "compiler/problem.hpp"

namespace splitkv {

// The natural-unit score, in this order: scale, softcap, ALiBi, bias tensor, the user's expression.
// ALiBi adds slope[q_head] * (key_pos - query_pos); its slopes are parameter alibi_param(problem).
ScoreExpr score_of(const Problem& problem);

// The score in log2 units, score_of * log2(e), folded: what kernels feed to exp2.
ScoreExpr log2_score_of(const Problem& problem);

// Index of the ALiBi slopes among the parameters of emitted code: after the user's own.
int alibi_param(const Problem& problem);

// The parameters of emitted code: the user's, then ALiBi's slopes (scope head) where alibi=on.
std::vector<Param> all_params(const Problem& problem);

// 1 where the key takes part, 0 where it is masked: causality or tree, window, chunk and the user's
// predicate. Only keys of the row's key interval are judged.
ScoreExpr mask_of(const Problem& problem);

// mask_of without what the key interval of a row with one query already says: what kernels test for
// every key of the interval. The constant 1 where the interval is the whole mask.
ScoreExpr mask_within_interval_of(const Problem& problem);

// The key interval of a row: positions [first, end) hold every key that any of its queries sees.
// Both are expressions of query_pos and kv_len, of whole numbers only; what the user's predicate
// brings needs 64 bits on the way, the results fit 32. `first` is to be evaluated at the position
// of the row's first query, `end` at that of its last; end is never above kv_len, first never below
// 0 (end may be below first: no key). Tiles outside are never loaded. Recognised are windows,
// chunks, causality, and conjuncts of the user's predicate that compare key_pos, or key_pos // C,
// with something that does not fall as query_pos rises: sums, differences, min, max, // by
// constants and products with constants of query_pos, kv_len and whole constants. A term may stand
// on either side, and ! before < and <= is seen through.
struct KeyInterval {
  ScoreExpr first;
  ScoreExpr end;
};
KeyInterval key_interval_of(const Problem& problem);

// Constants folded, x*1, x+0 and repeated multiplication by constants simplified, unused nodes
// dropped. Never changes a value by more than rounding.
ScoreExpr fold(const ScoreExpr& expr);

struct ScoreInputs {
  double dot = 0;
  double score = 0;
  double query_pos = 0;
  double key_pos = 0;
  double kv_len = 0;
  double q_head = 0;
  double batch = 0;
  double bias = 0;
  double tree_visible = 1;
  std::vector<double> params;
};

double evaluate(const ScoreExpr& expr, const ScoreInputs& inputs);

// True when the expression is the constant `value`.
bool is_constant(const ScoreExpr& expr, double value);

}  // namespace splitkv
