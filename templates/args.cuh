// The kernels' only parameter; the host holds the same struct, and generated source asserts that
// both agree. Strides are in elements of their tensor unless they say bytes; the innermost
// dimension is contiguous. What a problem does not use is null or 0.
#pragma once

#include "types.cuh"

namespace splitkv {

constexpr int kMaxParams = 8;

// Host and device both see it; the host polls `code`.
struct ErrorRecord {
  i32 code;
  i32 row;
  i32 slot;
  i32 claimed;
  i64 value;
};

enum FaultCode { kNoFault = 0, kBadPageId = 1, kLengthTooLong = 2, kBadQueryOffset = 3 };

// How the copy engine sees a tensor, as the driver encodes it (loads=tensor).
struct alignas(64) TensorMap {
  u64 words[16];
};

struct LaunchArgs {
  // [batch, query_len, q_heads, dim_qk - dim_rope]; with q_offset [tokens, q_heads, ...]
  const void* q;
  const void* q_rope;  // [batch, query_len, q_heads, dim_rope]
  const void* k;
  const void* v;        // v_in_k: the same as k
  void* out;            // [batch, query_len, q_heads, dim_v]
  float* lse;           // [batch, query_len, q_heads]; out=partial of mlo: m
  float* partial_l;     // out=partial of mlo: l, strides of lse
  const void* kv_len;   // [batch] int32 or int64 (kv_len_bytes); null: kv_len_host for every row
  const i32* kv_begin;  // [batch] first key that counts; null: 0
  // ragged: [batch + 1]; row r has queries [q_offset[r], q_offset[r + 1]), none where they fall
  const i32* q_offset;
  const i32* total_len;   // strided positions: [batch] keys of all shards
  const i32* page_table;  // paged: page ids
  // row r's list starts at page_table + page_offset[r]; null: r * page_table_stride
  const i64* page_offset;
  const i32* v_page_table;  // separate tables
  const i64* v_page_offset;
  const float* k_scale;
  const float* v_scale;
  const float* sink;  // [q_heads]
  const void* bias;   // [batch, q_heads, query, key]
  // [batch][query] packed bits, lowest first: bit j is the row's key kv_len - queries + j
  const u8* tree;
  float* partials;      // scratch: first all statistics, then all o (codegen/launch_shape.hpp)
  u32* arrivals;        // state: one counter a sequence, zero between runs
  ErrorRecord* errors;  // checked
  const float* params[kMaxParams + 1];  // user parameters, then ALiBi slopes

  i64 q_stride_batch;
  i64 q_stride_query;  // with q_offset the stride of tokens; q_stride_batch is not used then
  i64 q_stride_head;
  i64 q_rope_stride_batch;
  i64 q_rope_stride_query;
  i64 q_rope_stride_head;
  i64 k_stride_block;  // block: a batch row, or a page when paged
  i64 k_stride_head;
  i64 k_stride_token;
  i64 v_stride_block;
  i64 v_stride_head;
  i64 v_stride_token;
  i64 k_scale_stride_block;
  i64 k_scale_stride_head;
  i64 k_scale_stride_token;
  i64 v_scale_stride_block;
  i64 v_scale_stride_head;
  i64 v_scale_stride_token;
  i64 out_stride_batch;
  i64 out_stride_query;
  i64 out_stride_head;
  i64 lse_stride_batch;
  i64 lse_stride_query;
  i64 lse_stride_head;
  i64 bias_stride_batch;
  i64 bias_stride_head;
  i64 bias_stride_query;
  i64 bias_stride_key;
  i64 tree_stride_batch;  // bytes
  i64 tree_stride_query;  // bytes
  i64 page_table_stride;
  i64 v_page_table_stride;
  i64 partial_o_offset;  // floats from `partials` to the o region
  i64 pos0;              // strided positions: of key 0
  i64 pos_step;
  i64 query_rows;   // q_offset: token rows of out; those beyond the last query are zeroed
  i64 page_count;   // checked: pages there are
  i64 kv_capacity;  // checked: keys a row can hold

  i32 batch;
  i32 splits;        // fixed, strided
  i32 blocks;        // flat
  i32 kv_len_bytes;  // 4 or 8
  i32 kv_len_host;   // every row's length where kv_len is null
  i32 reserved;

  TensorMap k_map;
  TensorMap v_map;
};

}  // namespace splitkv
