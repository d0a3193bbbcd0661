// What a batch row is: its queries, its keys, and which of them any of its queries can see; and
// which query a row of a sequence is. Every position, length and stride is 64 bits wide.
#pragma once

#include "codegen/llvm/fields.hpp"

namespace splitkv::llvm_codegen {

struct BatchRow {
  ir::Value queries;             // query tokens there are, at most query_len
  ir::Value first_token;         // ragged queries: the row's first token of q, out and lse; else 0
  ir::Value batch_index;         // what the batch strides of q, out and lse multiply; ragged: 0
  ir::Value total;               // keys of all shards: the last query stands at total - 1
  ir::Value kv_len;              // keys that are stored here
  ir::Value first_key, end_key;  // stored keys that count, [first_key, end_key)
  ir::Value tiles;               // 0 where that interval is empty
};

// Defines @find_row(args, batch row, where): a BatchRow as 8 numbers in the order above.
void emit_find_row_function(ir::Writer& writer, const KernelPlan& plan);
BatchRow emit_batch_row(ir::Writer& writer, ir::Value args, ir::Value number);

// The absolute tile that holds the row's first key.
ir::Value emit_first_tile(ir::Writer& writer, const KernelPlan& plan, const BatchRow& row);

struct Sequence {
  ir::Value batch_row, kv_head, row_block;
};
Sequence emit_sequence(ir::Writer& writer, const KernelPlan& plan, ir::Value number);

// Rows of the row block that exist: fewer than `rows` in a last block or a row with fewer queries,
// none below 1.
ir::Value emit_valid_rows(ir::Writer& writer, const KernelPlan& plan, const BatchRow& row,
                          ir::Value row_block);

// Row r of a row block: which query it is and which head asks. Rows that do not exist repeat the
// last that does; at least one must.
struct QueryRow {
  ir::Value query, head;
};
QueryRow emit_query_row(ir::Writer& writer, const KernelPlan& plan, const Sequence& sequence,
                        const BatchRow& row, ir::Value row_in_block);

// Elements from the start of q, out or lse to a query row, by that tensor's strides.
struct QueryStrides {
  size_t batch, query, head;  // offsets of fields
};
ir::Value emit_query_offset(ir::Writer& writer, ir::Value args, const BatchRow& row,
                            const QueryRow& asked, const QueryStrides& strides,
                            const std::string& name);

}  // namespace splitkv::llvm_codegen
