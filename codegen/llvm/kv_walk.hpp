// Where the keys and values of a batch row lie, and what scales them. Every page id and stride is
// 64 bits wide.
#pragma once

#include "codegen/llvm/batch_row.hpp"

namespace splitkv::llvm_codegen {

// K or V of one kv head. Contiguous: `base` and `scales` are at the batch row's first token. Paged:
// at page 0's.
struct Cache {
  DType dtype = DType::bf16;
  int dim = 0;  // elements of a row in memory; an inline scale lies behind them
  KvScale scale = KvScale::none;
  ir::Value base, block_bytes, token_bytes;
  ir::Value scales, scale_block_bytes, scale_token_bytes;  // scale: token
  ir::Value shared_scale;                                  // scale: tensor, head; fp32
  ir::Value page_list;                                     // paged: the row's page ids
};
struct KeyValueCache {
  Cache k, v;  // v_in_k: alike
};
KeyValueCache emit_cache(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                         const Sequence& sequence);

// Stack memory with what is looked up once a block of keys, [padded_keys] each; only what the
// problem needs is there.
struct KeyTables {
  ir::Value k_at, v_at;          // paged: addresses of the rows
  ir::Value k_scales, v_scales;  // scales of keys: fp32
  ir::Value readable;            // checked pages: i8, 1 where the page ids are good
  ir::Value nothing;             // checked pages: zeros that stand in for a row
};
KeyTables emit_key_tables(ir::Writer& writer, const KernelPlan& plan);

// Fills the tables for `count` keys from `first_key` on, all inside the row's interval. A page id
// is read for exactly these keys.
void emit_look_up_keys(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                       const Sequence& sequence, const KeyValueCache& cache, ir::Value first_key,
                       ir::Value count, const KeyTables& tables);

}  // namespace splitkv::llvm_codegen
