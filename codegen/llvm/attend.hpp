// The split kernel's work: one piece of a sequence, tile after tile, with a running unnormalised
// (m, l, acc) for every row of the row block.
#pragma once

#include "codegen/llvm/merge.hpp"

namespace splitkv::llvm_codegen {

// Stack memory of a piece. Rows are the `rows` of a row block; rows beyond the group repeat its
// last row and are never written out.
struct PieceState {
  ir::Value q;           // [rows][padded_qk] of plan.real, zeros from dim_qk on
  ir::Value m, l, acc;   // [rows], [rows], [rows][padded_v]
  ir::Value rescale;     // [rows]: what the block's new maximum does to l and acc
  ir::Value scores;      // [rows][padded_keys] of plan.real: q.k, then the log2 score
  ir::Value weights;     // [rows][padded_keys]: 2^(s - m)
  ir::Value k_at, v_at;  // paged: [padded_keys] addresses
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
  RowInterval interval;
  KeyValueCache cache;
  PieceState state;
};

// The three passes over a block of keys (attend_block.cpp).
void emit_dots(const AttendContext& context, const KeyBlock& block);
void emit_softmax(const AttendContext& context, const KeyBlock& block);
void emit_accumulate(const AttendContext& context, const KeyBlock& block);

// Defines @attend_piece; after it a piece is one call.
void emit_attend_function(ir::Writer& writer, const KernelPlan& plan);
void emit_attend_call(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                      const Piece& piece);

// Row `row` of an array of `stride` elements a row.
ir::Value emit_row_at(ir::Writer& writer, ir::Value array, ir::Type type, ir::Value row, int stride,
                      std::string_view hint);

}  // namespace splitkv::llvm_codegen
