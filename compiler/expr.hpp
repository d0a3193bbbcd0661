// Expression graphs over (query row, key) coordinates: what happens between q.k and the softmax,
// and which keys take part. The same graph lowers to CUDA C++, to LLVM IR and to the host
// evaluator.
#pragma once

#include <string>
#include <vector>

namespace splitkv {

enum class ScoreOp {
  // leaves
  dot,           // q.k, unscaled (times k's scale where K has one)
  score,         // user expressions only: the score in natural units, before the user's word
  constant,      // `value`
  query_pos,     // position of the query token: kv_len - queries of the row + query index
  key_pos,       // position of the key
  kv_len,        // length of the batch row; of all shards where positions=strided
  q_head,        // query head index
  batch,         // batch row index
  param,         // parameter `index`, a device value: see Param
  bias,          // the additive tensor's element of (batch, q_head, query, key)
  tree_visible,  // 1 or 0: the tree mask of (batch, query) at the key; 1 before the tree's keys
  // one operand
  neg,
  abs,
  tanh,
  exp,
  log,
  sigmoid,
  invert,  // logical not of a 1/0 value
  // two operands
  add,
  sub,
  mul,
  div,
  min,
  max,
  quotient,    // floor(a / b) of whole numbers, b a constant above 0
  remainder,   // a - b * floor(a / b), likewise
  less,        // 1 or 0
  less_equal,  // 1 or 0
  equal,       // 1 or 0
  both,        // logical and of 1/0 values
  either,      // logical or of 1/0 values
  // three operands
  select,  // a != 0 ? b : c
};

constexpr int arity(ScoreOp op) {
  if (op <= ScoreOp::tree_visible) return 0;
  if (op <= ScoreOp::invert) return 1;
  return op == ScoreOp::select ? 3 : 2;
}

struct ScoreNode {
  ScoreOp op = ScoreOp::constant;
  double value = 0;                // constant only
  int operands[3] = {-1, -1, -1};  // indices of earlier nodes
  int index = 0;                   // param only: which of the problem's params

  bool operator==(const ScoreNode&) const = default;
};

// Nodes in topological order; the last one is the result.
struct ScoreExpr {
  std::vector<ScoreNode> nodes;

  bool operator==(const ScoreExpr&) const = default;
};

// What a parameter is indexed by. Values are fp32 on the device, read at every run.
enum class ParamScope {
  scalar,  // one value
  head,    // [q_heads]
  row,     // [batch]
};

struct Param {
  std::string name;
  ParamScope scope = ParamScope::scalar;

  bool operator==(const Param&) const = default;
};

inline constexpr int kMaxParams = 8;

// Builders append to `expr` and return the new node's index.
int leaf(ScoreExpr& expr, ScoreOp op);
int constant(ScoreExpr& expr, double value);
int param(ScoreExpr& expr, int index);
int apply(ScoreExpr& expr, ScoreOp op, int a, int b = -1, int c = -1);

}  // namespace splitkv
