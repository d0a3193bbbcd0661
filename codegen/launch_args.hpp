// The one argument of every emitted kernel, split and reduce, on both targets. CUDA kernels take it
// by value; CPU kernels take a pointer to it. templates/args.cuh declares the same struct for
// device code; emitted source asserts its size, and a test (tests/golden) that every offset agrees.
//
// All strides are in elements of their tensor. The innermost dimension is contiguous.
#pragma once

#include <cstddef>
#include <cstdint>

namespace splitkv {

struct LaunchArgs {
  const void* q = nullptr;  // [batch, query_len, q_heads, dim_qk]
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;                  // [batch, query_len, q_heads, dim_v]
  float* lse = nullptr;                 // [batch, query_len, q_heads]; null when lse=none
  const int32_t* kv_len = nullptr;      // [batch]
  const int32_t* page_table = nullptr;  // paged: page ids
  const int64_t* page_offset =
      nullptr;                   // paged: row r's list starts at page_table + page_offset[r];
                                 // null: at page_table + r * page_table_stride
  float* partials = nullptr;     // scratch: first all statistics, then all o (see below)
  uint32_t* arrivals = nullptr;  // state: one counter a sequence, zero between runs

  int64_t q_stride_batch = 0;
  int64_t q_stride_query = 0;
  int64_t q_stride_head = 0;
  int64_t k_stride_block = 0;  // block: a batch row, or a page when paged
  int64_t k_stride_head = 0;
  int64_t k_stride_token = 0;
  int64_t v_stride_block = 0;
  int64_t v_stride_head = 0;
  int64_t v_stride_token = 0;
  int64_t out_stride_batch = 0;
  int64_t out_stride_query = 0;
  int64_t out_stride_head = 0;
  int64_t lse_stride_batch = 0;
  int64_t lse_stride_query = 0;
  int64_t lse_stride_head = 0;
  int64_t page_table_stride = 0;
  int64_t partial_o_offset = 0;  // floats from `partials` to the o region

  int32_t batch = 0;
  int32_t splits = 0;  // fixed, strided
  int32_t blocks = 0;  // flat
  int32_t reserved = 0;
};

static_assert(sizeof(LaunchArgs) == 10 * 8 + 17 * 8 + 4 * 4);

}  // namespace splitkv
