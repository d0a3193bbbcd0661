// Partials and their join: what a piece leaves in scratch, and what the last one to look makes of
// it. One emitter serves the reduce kernel and the last arriving block, in both variants.
#pragma once

#include "codegen/llvm/partition.hpp"

namespace splitkv::llvm_codegen {

// A row's result so far: o normalised, at `o` ([dim_v] floats); m in log2 units and l as the sum of
// 2^(s - m). A row without keys has m = -inf, l = 0, o = 0.
struct RowState {
  ir::Value m, l, o;
};

// log2 of the row's sum of 2^s.
ir::Value emit_log2_sum(ir::Writer& writer, const RowState& state);

// Writes row `row` of the row block to out and lse. `log2_sum` as above.
void emit_finish_row(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                     const Sequence& sequence, ir::Value row, ir::Value o, ir::Value log2_sum);

// Writes row `row` of partial `slot`.
void emit_store_partial(ir::Writer& writer, const KernelPlan& plan, ir::Value args, ir::Value slot,
                        ir::Value row, const RowState& state);

// Defines @join_sequence(args, batch_row, kv_head, row_block, slot parameters...): joins the
// partials of a sequence in slot order and writes its rows.
void emit_join_function(ir::Writer& writer, const KernelPlan& plan);
void emit_join_call(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                    const Sequence& sequence, const PieceSlots& slots);

// Runs `body` for the chunks that cover [0, dim), each of `lanes` elements but for a narrower last.
void emit_chunks(ir::Writer& writer, int dim, int lanes,
                 const std::function<void(const ir::Value& first, int lanes)>& body);

}  // namespace splitkv::llvm_codegen
