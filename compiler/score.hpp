// Score expressions: what happens between q.k and the softmax, as a small expression graph over
// (query row, key) coordinates. The same graph lowers to CUDA C++, to LLVM IR and to the host
// evaluator; nothing about scale, softcap or window is written anywhere else.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/problem.hpp"

namespace splitkv {

enum class ScoreOp {
  // leaves
  dot,        // q.k, fp32, unscaled
  constant,   // `value`
  query_pos,  // position of the query token: kv_len - query_len + query index
  key_pos,    // position of the key
  kv_len,     // length of the batch row
  q_head,     // query head index
  batch,      // batch row index
  // one operand
  neg,
  abs,
  tanh,
  exp,
  log,
  // two operands
  add,
  sub,
  mul,
  div,
  min,
  max,
  less,        // 1 or 0
  less_equal,  // 1 or 0
  both,        // logical and of 1/0 values
  // three operands
  select,  // a != 0 ? b : c
};

constexpr int arity(ScoreOp op) {
  if (op <= ScoreOp::batch) return 0;
  if (op <= ScoreOp::log) return 1;
  return op == ScoreOp::select ? 3 : 2;
}

struct ScoreNode {
  ScoreOp op = ScoreOp::constant;
  double value = 0;                // constant only
  int operands[3] = {-1, -1, -1};  // indices of earlier nodes

  bool operator==(const ScoreNode&) const = default;
};

// Nodes in topological order; the last one is the result.
struct ScoreExpr {
  std::vector<ScoreNode> nodes;

  bool operator==(const ScoreExpr&) const = default;
};

// Builders append to `expr` and return the new node's index.
int leaf(ScoreExpr& expr, ScoreOp op);
int constant(ScoreExpr& expr, double value);
int apply(ScoreExpr& expr, ScoreOp op, int a, int b = -1, int c = -1);

// The natural-unit score: scale, then softcap (DESIGN: scale, softcap, ALiBi, user, mask).
ScoreExpr score_of(const Problem& problem);

// The score in log2 units, score_of * log2(e), folded: what kernels feed to exp2.
ScoreExpr log2_score_of(const Problem& problem);

// 1 where the key takes part, 0 where it is masked. Every key of [0, kv_len) is judged; keys beyond
// kv_len never get here. A problem without a mask gives the constant 1.
ScoreExpr mask_of(const Problem& problem);

// First key position that any query of the row can see, as an expression of kv_len (0 without a
// window): tiles wholly before it are never loaded.
ScoreExpr first_visible_key_of(const Problem& problem);

// Constants folded, x*1, x+0 and repeated multiplication by constants simplified, unused nodes
// dropped. Never changes a value by more than rounding.
ScoreExpr fold(const ScoreExpr& expr);

struct ScoreInputs {
  double dot = 0;
  double query_pos = 0;
  double key_pos = 0;
  double kv_len = 0;
  double q_head = 0;
  double batch = 0;
};

double evaluate(const ScoreExpr& expr, const ScoreInputs& inputs);

// True when the expression is the constant `value`.
bool is_constant(const ScoreExpr& expr, double value);

}  // namespace splitkv
