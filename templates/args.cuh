// The kernels' only parameter; the host holds the same struct, and generated source asserts that
// both agree. Strides are in elements of their tensor; the innermost dimension is contiguous.
#pragma once

#include "types.cuh"

namespace splitkv {

struct LaunchArgs {
  const void* q;  // [batch, query_len, q_heads, dim_qk]
  const void* k;
  const void* v;
  void* out;          // [batch, query_len, q_heads, dim_v]
  float* lse;         // [batch, query_len, q_heads]
  const i32* kv_len;  // [batch]
  const i32* page_table;
  const i64* page_offset;  // null: row r's pages start at r * page_table_stride
  float* partials;         // statistics of all slots, then o of all slots
  u32* arrivals;           // one counter a sequence

  i64 q_stride_batch;
  i64 q_stride_query;
  i64 q_stride_head;
  i64 k_stride_block;  // block: a batch row, or a page
  i64 k_stride_head;
  i64 k_stride_token;
  i64 v_stride_block;
  i64 v_stride_head;
  i64 v_stride_token;
  i64 out_stride_batch;
  i64 out_stride_query;
  i64 out_stride_head;
  i64 lse_stride_batch;
  i64 lse_stride_query;
  i64 lse_stride_head;
  i64 page_table_stride;
  i64 partial_o_offset;  // floats

  i32 batch;
  i32 splits;
  i32 blocks;
  i32 reserved;
};

}  // namespace splitkv
