// The one argument of every emitted kernel, split and reduce, on both targets. CUDA kernels take it
// by value; CPU kernels take a pointer to it. templates/args.cuh declares the same struct for
// device code; emitted source asserts its size, and a test (tests/golden) that every offset agrees.
//
// All strides are in elements of their tensor unless they say bytes. The innermost dimension is
// contiguous. What a problem does not use is null or 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/expr.hpp"

namespace splitkv {

// What a checked kernel or a merge found wrong, first come. The host polls `code`; the other words
// are written before it. Lies in memory that host and device both see.
struct ErrorRecord {
  int32_t code = 0;     // a FaultCode; 0: nothing
  int32_t row = 0;      // batch row; of a merge: query row
  int32_t slot = 0;     // of the row's page list, 0 where no page takes part; of a merge: part
  int32_t claimed = 0;  // 1 once somebody writes the record
  int64_t value = 0;    // the bad page id or length; the bits of a bad statistic
};

enum FaultCode : int32_t {
  kNoFault = 0,
  kBadPageId = 1,       // a used slot holds an id outside [0, page_count)
  kLengthTooLong = 2,   // kv_len is above kv_capacity
  kBadQueryOffset = 3,  // a row has more queries than query_len
  kBadStatistic = 4,    // a merge was given statistics that no partial has
};

// How the copy engine sees a tensor, as the driver encodes it (loads=tensor): opaque, CUtensorMap.
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};

struct LaunchArgs {
  // [batch, query_len, q_heads, dim_qk - dim_rope]; with q_offset [tokens, q_heads, ...]
  const void* q = nullptr;
  const void* q_rope = nullptr;  // [batch, query_len, q_heads, dim_rope]
  const void* k = nullptr;
  const void* v = nullptr;     // v_in_k: the same as k
  void* out = nullptr;         // [batch, query_len, q_heads, dim_v]
  float* lse = nullptr;        // [batch, query_len, q_heads]; out=partial of mlo: m
  float* partial_l = nullptr;  // out=partial of mlo: l, strides of lse
  // [batch] int32 or int64 (kv_len_bytes); null: kv_len_host for every row
  const void* kv_len = nullptr;
  const int32_t* kv_begin = nullptr;  // [batch] first key that counts; null: 0
  // ragged: [batch + 1]; row r has queries [q_offset[r], q_offset[r + 1]), none where they fall
  const int32_t* q_offset = nullptr;
  const int32_t* total_len = nullptr;   // strided positions: [batch] keys of all shards
  const int32_t* page_table = nullptr;  // paged: page ids
  // row r's list starts at page_table + page_offset[r]; null: r * page_table_stride
  const int64_t* page_offset = nullptr;
  const int32_t* v_page_table = nullptr;  // separate tables
  const int64_t* v_page_offset = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  const float* sink = nullptr;  // [q_heads]
  const void* bias = nullptr;   // [batch, q_heads, query, key]
  // [batch][query] packed bits, lowest first: bit j is the row's key kv_len - queries + j
  const uint8_t* tree = nullptr;
  // scratch: first all statistics, then all o (codegen/launch_shape.hpp)
  float* partials = nullptr;
  uint32_t* arrivals = nullptr;              // state: one counter a sequence, zero between runs
  ErrorRecord* errors = nullptr;             // checked
  const float* params[kMaxParams + 1] = {};  // user parameters, then ALiBi slopes

  int64_t q_stride_batch = 0;
  // with q_offset the stride of tokens; q_stride_batch is not used then
  int64_t q_stride_query = 0;
  int64_t q_stride_head = 0;
  int64_t q_rope_stride_batch = 0;
  int64_t q_rope_stride_query = 0;
  int64_t q_rope_stride_head = 0;
  int64_t k_stride_block = 0;  // block: a batch row, or a page when paged
  int64_t k_stride_head = 0;
  int64_t k_stride_token = 0;
  int64_t v_stride_block = 0;
  int64_t v_stride_head = 0;
  int64_t v_stride_token = 0;
  int64_t k_scale_stride_block = 0;
  int64_t k_scale_stride_head = 0;
  int64_t k_scale_stride_token = 0;
  int64_t v_scale_stride_block = 0;
  int64_t v_scale_stride_head = 0;
  int64_t v_scale_stride_token = 0;
  int64_t out_stride_batch = 0;
  int64_t out_stride_query = 0;
  int64_t out_stride_head = 0;
  int64_t lse_stride_batch = 0;
  int64_t lse_stride_query = 0;
  int64_t lse_stride_head = 0;
  int64_t bias_stride_batch = 0;
  int64_t bias_stride_head = 0;
  int64_t bias_stride_query = 0;
  int64_t bias_stride_key = 0;
  int64_t tree_stride_batch = 0;  // bytes
  int64_t tree_stride_query = 0;  // bytes
  int64_t page_table_stride = 0;
  int64_t v_page_table_stride = 0;
  int64_t partial_o_offset = 0;  // floats from `partials` to the o region
  int64_t pos0 = 0;              // strided positions: of key 0
  int64_t pos_step = 0;
  int64_t query_rows = 0;   // q_offset: token rows of out; those beyond the last query are zeroed
  int64_t page_count = 0;   // checked: pages there are
  int64_t kv_capacity = 0;  // checked: keys a row can hold

  int32_t batch = 0;
  int32_t splits = 0;        // fixed, strided
  int32_t blocks = 0;        // flat
  int32_t kv_len_bytes = 0;  // 4 or 8
  int32_t kv_len_host = 0;   // every row's length where kv_len is null
  int32_t reserved = 0;

  TensorMap k_map;
  TensorMap v_map;
};

static_assert(offsetof(LaunchArgs, reserved) + 4 == 32 * 8 + 38 * 8 + 6 * 4);
static_assert(sizeof(LaunchArgs) % 64 == 0 &&
              sizeof(LaunchArgs) == offsetof(LaunchArgs, k_map) + 2 * sizeof(TensorMap));

}  // namespace splitkv
