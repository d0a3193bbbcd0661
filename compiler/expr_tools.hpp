// What the compiler's own sources share about expression graphs. Private to compiler/.
#pragma once

#include <vector>

#include "compiler/expr.hpp"

namespace splitkv {

// Nodes a user's expression may have.
inline constexpr int kMaxExprNodes = 256;

// True for operations whose value is 1 or 0.
constexpr bool is_logical(ScoreOp op) {
  switch (op) {
    case ScoreOp::tree_visible:
    case ScoreOp::invert:
    case ScoreOp::less:
    case ScoreOp::less_equal:
    case ScoreOp::equal:
    case ScoreOp::both:
    case ScoreOp::either:
      return true;
    default:
      return false;
  }
}

// For every node whether its value is a whole number whatever the inputs are.
std::vector<bool> whole_nodes(const ScoreExpr& expr);

// True when node `node` or something it needs has operation `op`.
bool uses(const ScoreExpr& expr, int node, ScoreOp op);

// Appends node `node` of `from` with all it needs, `score` standing for its score leaves. What the
// logical operations take is made 1 or 0 first, where it is not. Returns the new node's index.
int graft(ScoreExpr& to, const ScoreExpr& from, int node, int score = -1);

// Node `node` of `expr` as 1 where it is not 0, else 0.
int truth(ScoreExpr& expr, int node);

}  // namespace splitkv
