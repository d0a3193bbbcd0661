// Where things are: fields of the launch arguments, the coordinates of a sequence, the keys a batch
// row sees, and the addresses of its K and V. Every position, page id and stride is 64 bits wide.
#pragma once

#include <cstddef>

#include "codegen/launch_args.hpp"
#include "codegen/llvm/kernel_plan.hpp"

namespace splitkv::llvm_codegen {

// Loads fields of LaunchArgs by their offset; `args` is the pointer every function is given.
ir::Value emit_pointer_arg(ir::Writer& writer, ir::Value args, size_t offset,
                           std::string_view name);
ir::Value emit_i64_arg(ir::Writer& writer, ir::Value args, size_t offset, std::string_view name);
ir::Value emit_i32_arg(ir::Writer& writer, ir::Value args, size_t offset,
                       std::string_view name);  // widened to i64

struct Sequence {
  ir::Value batch_row, kv_head, row_block;
};
Sequence emit_sequence(ir::Writer& writer, const KernelPlan& plan, ir::Value number);

// Rows of the row block that are rows of the group: fewer than `rows` in a last block.
ir::Value emit_valid_rows(ir::Writer& writer, const KernelPlan& plan, ir::Value row_block);

// Row r of a row block: which query it is and which head asks.
struct QueryRow {
  ir::Value query, head;
};
QueryRow emit_query_row(ir::Writer& writer, const KernelPlan& plan, const Sequence& sequence,
                        ir::Value row_in_group);

// The keys [first_visible, kv_len) of a batch row, and the absolute tiles that hold them.
struct RowInterval {
  ir::Value kv_len, first_visible, first_tile, tiles;
};
RowInterval emit_row_interval(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                              ir::Value batch_row);

// K or V of one kv head. Contiguous: `base` is the batch row's first token. Paged: `base` is page
// 0's.
struct Cache {
  DType dtype;
  ir::Value base, block_bytes, token_bytes;
};
struct KeyValueCache {
  Cache k, v;
  ir::Value page_list;  // paged: the row's page ids
};
KeyValueCache emit_cache(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                         const Sequence& sequence);

// Paged: stores the addresses of `count` keys from `first_key` on. A page id is read for exactly
// these keys.
void emit_key_addresses(ir::Writer& writer, const KernelPlan& plan, const KeyValueCache& cache,
                        ir::Value first_key, ir::Value count, ir::Value k_addresses,
                        ir::Value v_addresses);

}  // namespace splitkv::llvm_codegen
