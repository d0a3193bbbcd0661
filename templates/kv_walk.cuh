// Where a key's K and V rows lie. All arithmetic that a page id, a batch row or a stride takes part
// in is 64-bit.
#pragma once

#include "args.cuh"
#include "config.cuh"

namespace splitkv {

// Entry: one (batch row, kv head). k_row(key) and v_row(key) give element offsets from args.k,
// args.v of the first element of that key's row; `key` must lie in the row's key interval, so that
// only page ids in use are ever read.
template <Config C>
struct KvWalk {
  const i32* pages;  // of this batch row; unused when contiguous
  i64 k_base;
  i64 v_base;

  __device__ KvWalk(const LaunchArgs& args, i32 batch_row, i32 kv_head) {
    k_base = i64(kv_head) * args.k_stride_head;
    v_base = i64(kv_head) * args.v_stride_head;
    if constexpr (C.page_size == 0) {
      pages = nullptr;
      k_base += i64(batch_row) * args.k_stride_block;
      v_base += i64(batch_row) * args.v_stride_block;
    } else {
      const i64 start =
          args.page_offset ? args.page_offset[batch_row] : i64(batch_row) * args.page_table_stride;
      pages = args.page_table + start;
    }
  }

  // Where a key lies: `block` is the page (0 when contiguous), `token` the place in it.
  struct Place {
    i64 block;
    i64 token;
  };

  __device__ Place place(i32 key) const {
    if constexpr (C.page_size == 0) {
      return {0, key};
    } else {
      return {pages[key / C.page_size], key % C.page_size};
    }
  }

  __device__ i64 k_row(const LaunchArgs& args, const Place& at) const {
    return k_base + at.block * args.k_stride_block + at.token * args.k_stride_token;
  }

  __device__ i64 v_row(const LaunchArgs& args, const Place& at) const {
    return v_base + at.block * args.v_stride_block + at.token * args.v_stride_token;
  }
};

}  // namespace splitkv
