// Partials and their join: what a piece leaves in scratch, and what the last one to look makes of
// it. One emitter serves the reduce kernel and the last arriving block, in both variants.
#pragma once

#include "codegen/llvm/finish.hpp"
#include "codegen/llvm/partition.hpp"

namespace splitkv::llvm_codegen {

// Writes row `row` of partial `slot`.
void emit_store_partial(ir::Writer& writer, const KernelPlan& plan, ir::Value args, ir::Value slot,
                        ir::Value row, const RowState& state);

// Defines @join_sequence(args, batch_row, kv_head, row_block, slot parameters...): joins the
// partials of a sequence in slot order and writes its rows.
void emit_join_function(ir::Writer& writer, const KernelPlan& plan);
void emit_join_call(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                    const Sequence& sequence, const PieceSlots& slots);

}  // namespace splitkv::llvm_codegen
