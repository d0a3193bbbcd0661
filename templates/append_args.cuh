// The argument of the KV writer, on the device.
#pragma once

#include "args.cuh"
#include "types.cuh"

namespace splitkv {

// The kernel's only parameter; the host holds the same struct. Strides in elements. What a call
// does not use is null or 0.
struct AppendArgs {
  const void* k_new;  // [tokens, kv_heads, dim]
  const void* v_new;
  void* k;
  void* v;
  float* k_scale;  // tensor, head: read; token: written
  float* v_scale;
  const i64* slots;
  const i64* v_slots;
  const void* kv_len;  // [batch] after the append
  const i32* q_offset;
  const i32* page_table;
  const i64* page_offset;
  const i32* v_page_table;
  const i64* v_page_offset;
  const i32* token_count;
  ErrorRecord* errors;

  i64 k_new_stride_token;
  i64 k_new_stride_head;
  i64 v_new_stride_token;
  i64 v_new_stride_head;
  i64 k_stride_block;
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
  i64 page_table_stride;
  i64 v_page_table_stride;
  i64 tokens;
  i64 slots_a_row;
  i64 slot_count;
  i64 batch;
  i64 tokens_a_row;
  i64 page_count;
  i64 kv_capacity;

  i32 kv_len_bytes;
  i32 kv_len_host;
};

// Code of a record: slot `value` of token `row` is outside [0, slot_count).
constexpr i32 kBadSlot = 5;

}  // namespace splitkv
