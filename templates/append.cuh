// The KV writer: a step's new keys and values, into the cache in the form that attention reads. One
// warp writes one row, the elements of one token and kv head of K or V; a row's elements lie in its
// lanes' registers between the load and the store. What each number becomes is said in
// compiler/append.hpp.
#pragma once

#include "append_args.cuh"
#include "config.cuh"
#include "quantise.cuh"
#include "types.cuh"

namespace splitkv {

struct AppendSide {
  DType dtype;
  int dim;
  KvScale scale;
  int width;  // elements that are stored at once
};

struct AppendConfig {
  DType new_dtype;
  bool by_rows;  // places from kv_len, not from slots
  AppendSide k;
  AppendSide v;
  bool v_in_k;  // only K is written
  int kv_heads;
  int page_size;  // tokens a page; 0: contiguous
  bool separate_tables;
  bool checked;
};

// The first fault is kept. `code` is written last, past a fence, so that whoever sees it sees all.
__device__ inline void report_append(const AppendArgs& args, i32 code, i64 row, i64 slot,
                                     i64 value) {
  if (args.errors == nullptr || atomicCAS_system(&args.errors->claimed, 0, 1) != 0) return;
  volatile ErrorRecord* record = args.errors;
  record->row = i32(row);
  record->slot = i32(slot);
  record->value = value;
  __threadfence_system();
  record->code = code;
}

// Where a token's rows lie. `exists` is false for tokens that go nowhere.
struct AppendPlace {
  i64 block;
  i64 token;
  bool exists;
};

template <const AppendConfig& C, bool OfV>
__device__ inline AppendPlace place_of_slot(const AppendArgs& args, i64 token) {
  constexpr bool own = OfV && C.separate_tables;
  const i64 slot = own ? args.v_slots[token] : args.slots[token];
  if (slot < 0) return {0, 0, false};
  if constexpr (C.checked) {
    if (args.slot_count > 0 && slot >= args.slot_count) {
      if (threadIdx.x % 32 == 0) report_append(args, kBadSlot, token, own ? 1 : 0, slot);
      return {0, 0, false};
    }
  }
  const i64 a_block = C.page_size > 0 ? i64(C.page_size) : args.slots_a_row;
  return {slot / a_block, slot % a_block, true};
}

// The batch row that brings a token, which is token `number` of its `count`. No row: count is 0.
struct AppendRow {
  i64 row;
  i64 number;
  i64 count;
};

// Whether row `row` brings the token; a row whose offsets are negative or fall brings none.
__device__ inline bool brings(const AppendArgs& args, i64 row, i64 token) {
  const i32 begin = args.q_offset[row];
  return begin >= 0 && begin <= token && token < args.q_offset[row + 1];
}

// By a whole warp.
__device__ inline AppendRow row_of_token(const AppendArgs& args, i64 token) {
  if (args.q_offset == nullptr) {
    return {token / args.tokens_a_row, token % args.tokens_a_row, args.tokens_a_row};
  }
  // A step that decodes brings one token a row.
  i64 row = smaller(token, args.batch - 1);
  if (!brings(args, row, token)) {
    row = args.batch;
    const i64 lane = threadIdx.x % 32;
    for (i64 first = 0; first < args.batch; first += 32) {
      const bool here = first + lane < args.batch && brings(args, first + lane, token);
      const u32 found = __ballot_sync(all_lanes, here);
      if (found == 0) continue;
      row = first + __ffs(int(found)) - 1;
      break;
    }
  }
  if (row == args.batch) return {0, 0, 0};
  const i64 begin = args.q_offset[row];
  return {row, token - begin, args.q_offset[row + 1] - begin};
}

__device__ inline i64 length_after(const AppendArgs& args, i64 row) {
  if (args.kv_len == nullptr) return args.kv_len_host;
  if (args.kv_len_bytes == 8) return static_cast<const i64*>(args.kv_len)[row];
  return static_cast<const i32*>(args.kv_len)[row];
}

template <const AppendConfig& C, bool OfV>
__device__ inline AppendPlace place_in_pages(const AppendArgs& args, i64 row, i64 position) {
  constexpr bool own = OfV && C.separate_tables;
  const i32* table = own ? args.v_page_table : args.page_table;
  const i64* offset = own ? args.v_page_offset : args.page_offset;
  const i64 stride = own ? args.v_page_table_stride : args.page_table_stride;
  const i64 slot = position / C.page_size;
  const i64 page = table[(offset != nullptr ? offset[row] : row * stride) + slot];
  bool exists = page >= 0;
  if constexpr (C.checked) {
    if (args.page_count > 0 && (page < 0 || page >= args.page_count)) {
      if (threadIdx.x % 32 == 0) report_append(args, kBadPageId, row, slot, page);
      exists = false;
    }
  }
  return {page, position % C.page_size, exists};
}

template <const AppendConfig& C, bool OfV>
__device__ inline AppendPlace place_of_row(const AppendArgs& args, i64 token) {
  const AppendRow at = row_of_token(args, token);
  if (at.count == 0) return {0, 0, false};
  const i64 length = length_after(args, at.row);
  const i64 position = length - at.count + at.number;
  if (position < 0) return {0, 0, false};
  if constexpr (C.checked) {
    if (args.kv_capacity > 0 && position >= args.kv_capacity) {
      if (threadIdx.x % 32 == 0) report_append(args, kLengthTooLong, at.row, 0, length);
      return {0, 0, false};
    }
  }
  if constexpr (C.page_size > 0) return place_in_pages<C, OfV>(args, at.row, position);
  return {at.row, position, true};
}

// One row of K or V, by a warp.
template <const AppendConfig& C, bool OfV>
__device__ inline void append_row(const AppendArgs& args, i64 token, int head, int lane) {
  constexpr AppendSide side = OfV ? C.v : C.k;
  AppendPlace at;
  if constexpr (C.by_rows) {
    at = place_of_row<C, OfV>(args, token);
  } else {
    at = place_of_slot<C, OfV>(args, token);
  }
  if (!at.exists) return;

  const i64 from = token * (OfV ? args.v_new_stride_token : args.k_new_stride_token) +
                   head * (OfV ? args.v_new_stride_head : args.k_new_stride_head);
  const i64 to = at.block * (OfV ? args.v_stride_block : args.k_stride_block) +
                 head * (OfV ? args.v_stride_head : args.k_stride_head) +
                 at.token * (OfV ? args.v_stride_token : args.k_stride_token);
  using Row = NewRow<side.dtype, side.dim, side.width>;
  Row row;
  row.template load<C.new_dtype>(
      static_cast<const char*>(OfV ? args.v_new : args.k_new) + from * size_bytes(C.new_dtype),
      lane);
  char* stored = static_cast<char*>(OfV ? args.v : args.k) + to * size_bytes(side.dtype);
  float* scales = OfV ? args.v_scale : args.k_scale;

  float scale = 1.0f;
  if constexpr (side.scale == KvScale::tensor) scale = scales[0];
  if constexpr (side.scale == KvScale::head) scale = scales[head];
  if constexpr (has_key_scale(side.scale)) {
    scale = row.make_scale();
    float* place = reinterpret_cast<float*>(stored + side.dim * size_bytes(side.dtype));
    if constexpr (side.scale == KvScale::token) {
      place = scales + at.block * (OfV ? args.v_scale_stride_block : args.k_scale_stride_block) +
              head * (OfV ? args.v_scale_stride_head : args.k_scale_stride_head) +
              at.token * (OfV ? args.v_scale_stride_token : args.k_scale_stride_token);
    }
    if (lane == 0) *place = scale;
  }
  constexpr bool divides =
      side.scale != KvScale::none && !(has_key_scale(side.scale) && size_bytes(side.dtype) > 1);
  row.template store<divides>(stored, scale, lane);
}

// Entry: grid.x = ceil(rows / warps), `warps` warps a block; the rows of a token lie side by side,
// K's heads before V's.
template <const AppendConfig& C>
__device__ inline void append(const AppendArgs& args, int warps) {
  constexpr int rows = C.kv_heads * (C.v_in_k ? 1 : 2);
  const i64 number = i64(blockIdx.x) * warps + threadIdx.x / 32;
  const i64 token = number / rows;
  i64 tokens = args.tokens;
  if (args.token_count != nullptr) tokens = smaller(tokens, i64(*args.token_count));
  if (token >= tokens) return;
  const int row = int(number % rows);
  const int lane = threadIdx.x % 32;
  if (row < C.kv_heads) {
    append_row<C, false>(args, token, row, lane);
  } else if constexpr (!C.v_in_k) {
    append_row<C, true>(args, token, row - C.kv_heads, lane);
  }
}

}  // namespace splitkv
