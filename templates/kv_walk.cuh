// Where a key's K and V rows and scales lie. All arithmetic that a page id, a batch row or a stride
// takes part in is 64-bit.
#pragma once

#include "config.cuh"
#include "faults.cuh"
#include "load.cuh"

namespace splitkv {

// Entry: one (batch row, kv head). `key` must lie in the row's key interval, so that only page ids
// in use are ever read.
template <const Config& C>
struct KvWalk {
  const i32* k_pages;  // of this batch row; unused when contiguous
  const i32* v_pages;
  i64 k_base;  // elements from args.k
  i64 v_base;
  i64 k_scale_base;  // token scales: floats from args.k_scale
  i64 v_scale_base;
  i32 batch_row;

  __device__ KvWalk(const LaunchArgs& args, i32 row, i32 kv_head) : batch_row(row) {
    const i64 block = C.page_size == 0 ? row : 0;
    k_base = kv_head * args.k_stride_head + block * args.k_stride_block;
    v_base = kv_head * args.v_stride_head + block * args.v_stride_block;
    k_scale_base = kv_head * args.k_scale_stride_head + block * args.k_scale_stride_block;
    v_scale_base = kv_head * args.v_scale_stride_head + block * args.v_scale_stride_block;
    k_pages = v_pages = nullptr;
    if constexpr (C.page_size > 0) {
      k_pages = args.page_table +
                (args.page_offset ? args.page_offset[row] : row * args.page_table_stride);
      v_pages = k_pages;
      if constexpr (C.separate_tables) {
        v_pages = args.v_page_table +
                  (args.v_page_offset ? args.v_page_offset[row] : row * args.v_page_table_stride);
      }
    }
  }

  // `k_block`, `v_block`: the page (0 when contiguous); `token`: the place in it. `readable` is
  // false where a checked kernel found the id out of range.
  struct Place {
    i64 k_block;
    i64 v_block;
    i64 token;
    bool readable;
  };

  // Ids of the pages that hold a key.
  struct Pages {
    i32 k;
    i32 v;
  };

  __device__ Pages pages_of(i32 key) const {
    if constexpr (C.page_size == 0) {
      return {0, 0};
    } else {
      const i32 slot = key / C.page_size;
      const i32 k = k_pages[slot];
      return {k, C.separate_tables ? v_pages[slot] : k};
    }
  }

  __device__ Place place_in(const LaunchArgs& args, const Pages& pages, i32 key) const {
    if constexpr (C.page_size == 0) {
      return {0, 0, key, true};
    } else {
      Place at = {pages.k, pages.v, key % C.page_size, true};
      if constexpr (C.checked) {
        const i32 slot = key / C.page_size;
        at.readable = known(args, at.k_block, slot) && known(args, at.v_block, slot);
      }
      return at;
    }
  }

  __device__ Place place(const LaunchArgs& args, i32 key) const {
    return place_in(args, pages_of(key), key);
  }

  __device__ bool known(const LaunchArgs& args, i64 page, i32 slot) const {
    if (args.page_count <= 0 || (page >= 0 && page < args.page_count)) return true;
    report_fault(args, kBadPageId, batch_row, slot, page);
    return false;
  }

  __device__ const char* k_row(const LaunchArgs& args, const Place& at) const {
    const i64 element = k_base + at.k_block * args.k_stride_block + at.token * args.k_stride_token;
    return static_cast<const char*>(args.k) + element * size_bytes(C.k_dtype);
  }

  __device__ const char* v_row(const LaunchArgs& args, const Place& at) const {
    if constexpr (C.v_in_k) return k_row(args, at);
    const i64 element = v_base + at.v_block * args.v_stride_block + at.token * args.v_stride_token;
    return static_cast<const char*>(args.v) + element * size_bytes(C.v_dtype);
  }

  // Of scales that each key has.
  __device__ const float* k_scale(const LaunchArgs& args, const Place& at) const {
    if constexpr (C.k_scale == KvScale::inl) {
      return reinterpret_cast<const float*>(k_row(args, at) + C.dim_qk * size_bytes(C.k_dtype));
    }
    return args.k_scale + k_scale_base + at.k_block * args.k_scale_stride_block +
           at.token * args.k_scale_stride_token;
  }

  __device__ const float* v_scale(const LaunchArgs& args, const Place& at) const {
    if constexpr (C.v_in_k) return k_scale(args, at);
    if constexpr (C.v_scale == KvScale::inl) {
      return reinterpret_cast<const float*>(v_row(args, at) + C.dim_v * size_bytes(C.v_dtype));
    }
    return args.v_scale + v_scale_base + at.v_block * args.v_scale_stride_block +
           at.token * args.v_scale_stride_token;
  }
};

// A scale that all keys of a kv head share; 1 where there is none, or each key has its own.
template <KvScale S>
__device__ inline float head_scale(const float* scales, i32 kv_head) {
  if constexpr (S == KvScale::tensor) return scales[0];
  if constexpr (S == KvScale::head) return scales[kv_head];
  return 1.0f;
}

template <const Config& C>
__device__ inline float shared_v_scale(const LaunchArgs& args, i32 kv_head) {
  if constexpr (C.v_in_k) return head_scale<C.k_scale>(args.k_scale, kv_head);
  return head_scale<C.v_scale>(args.v_scale, kv_head);
}

}  // namespace splitkv
