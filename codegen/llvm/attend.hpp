// The split kernel's work: one piece of a sequence, tile after tile, with a running unnormalised
// (m, l, acc) for every row of the row block.
#pragma once

#include "codegen/llvm/merge.hpp"

namespace splitkv::llvm_codegen {

// Stack memory of a piece. Rows are the `rows` of a row block; rows that do not exist repeat the
// last that does and are never written out.
struct PieceState {
  ir::Value q;          // [rows][padded_qk] of plan.real, zeros from dim_qk on
  ir::Value m, l, acc;  // [rows], [rows], [rows][padded_v]
  ir::Value rescale;    // [rows]: what the block's new maximum does to l and acc
  ir::Value scores;     // [rows][padded_keys] of plan.real: q.k, then the log2 score
  ir::Value weights;    // [rows][padded_keys]: 2^(s - m), times the value's scale
  ir::Value bias;       // [padded_keys]: the additive tensor, of one row at a time
  ir::Value tree;       // [padded_keys] i8: the tree mask, of one row at a time
  KeyTables keys;
};

// A run of keys whose scores are held at once.
struct KeyBlock {
  ir::Value first_key, count;
};

struct AttendContext {
  ir::Writer& w;
  const KernelPlan& plan;
  ir::Value args;
  Sequence sequence;
  BatchRow row;
  KeyValueCache cache;
  PieceState state;
};

// The three passes over a block of keys (attend_dots.cpp, attend_softmax.cpp, attend_values.cpp).
// Each element of K and V is loaded and converted once, for all rows of the row block.
void emit_dots(const AttendContext& context, const KeyBlock& block);
void emit_softmax(const AttendContext& context, const KeyBlock& block);
void emit_accumulate(const AttendContext& context, const KeyBlock& block);

// Log2 scores of the `lanes` keys from `index` on, -inf where a key is masked or beyond the block
// (attend_scores.cpp). What does not change from key to key is found by emit_scored_row, once a row
// and block.
struct ScoredRow {
  QueryRow asked;
  ir::Value query_pos;
  std::vector<ir::Value> params;
};
ScoredRow emit_scored_row(const AttendContext& context, const KeyBlock& block, ir::Value row);
ir::Value emit_masked_scores(const AttendContext& context, const KeyBlock& block,
                             const ScoredRow& scored, ir::Value index, ir::Value dots);

// Defines @attend_piece; after it a piece is one call.
void emit_attend_function(ir::Writer& writer, const KernelPlan& plan);
void emit_attend_call(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                      const Piece& piece);

// Row `row` of an array of `stride` elements a row.
ir::Value emit_row_at(ir::Writer& writer, ir::Value array, ir::Type type, ir::Value row, int stride,
                      std::string_view hint);

// Key `index` of the block: through the table of addresses when paged, else by its stride.
ir::Value emit_key_at(const AttendContext& context, const Cache& cache, const ir::Value& addresses,
                      const KeyBlock& block, const ir::Value& index, const std::string& name);

// What `lanes` elements of K or V may be assumed aligned to, where they start at a multiple of that
// many elements in their row.
int chunk_align(const KernelPlan& plan, DType dtype, int lanes);

std::string numbered(const std::string& name, int number);  // "name_3"

}  // namespace splitkv::llvm_codegen
