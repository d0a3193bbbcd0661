// What is done with a query row once all its keys are in: the sink joins, and the row and its
// statistics go where the problem wants them.
#pragma once

#include "codegen/llvm/batch_row.hpp"

namespace splitkv::llvm_codegen {

// A row's result so far: o normalised, at `o` ([dim_v] floats); m in log2 units and l as the sum of
// 2^(s - m). A row without keys has m = -inf, l = 0, o = 0.
struct RowState {
  ir::Value m, l, o;
};

// log2 of the row's sum of 2^s.
ir::Value emit_log2_sum(ir::Writer& writer, const RowState& state);

// Writes row `row` of the row block to out and lse (or m and l).
void emit_finish_row(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                     const Sequence& sequence, const BatchRow& batch_row, ir::Value row,
                     const RowState& state);

// Defines @clear_tokens(args, block, blocks): ragged queries' token rows of out beyond the last
// query belong to no batch row; blocks deal them out among them, and write zeros and empty
// statistics.
void emit_clear_function(ir::Writer& writer, const KernelPlan& plan);

// Runs `body` for the chunks that cover [0, dim), each of `lanes` elements but for a narrower last.
void emit_chunks(ir::Writer& writer, int dim, int lanes,
                 const std::function<void(const ir::Value& first, int lanes)>& body);

}  // namespace splitkv::llvm_codegen
