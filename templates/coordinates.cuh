// Where a score stands, and what score and mask expressions may ask about it.
#pragma once

#include "args.cuh"
#include "config.cuh"
#include "types.cuh"

namespace splitkv {

struct Coordinates {
  i32 batch;
  i32 q_head;
  i32 query;      // query token of the row
  i32 query_pos;  // kv_len - queries + query
  i32 key;        // index of the key in its row
  i32 key_pos;    // its position: the same, or pos0 + key * pos_step
  i32 kv_len;     // keys of the row, of all shards
  i32 queries;    // query tokens the row has
};

// The additive tensor's element.
template <DType T>
__device__ inline float bias_at(const LaunchArgs& args, const Coordinates& at) {
  static_assert(T == DType::fp32 || T == DType::fp16, "a bias is fp32 or fp16");
  const i64 index = at.batch * args.bias_stride_batch + at.q_head * args.bias_stride_head +
                    at.query * args.bias_stride_query + at.key * args.bias_stride_key;
  if constexpr (T == DType::fp32) {
    return static_cast<const float*>(args.bias)[index];
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<const u16*>(args.bias)[index]));
    return value;
  }
}

// The tree mask: keys before the row's own queries are seen, of those the ones whose bit is set.
__device__ inline bool tree_visible(const LaunchArgs& args, const Coordinates& at) {
  const i32 bit = at.key - (at.kv_len - at.queries);
  if (bit < 0) return true;
  const u8* bits =
      args.tree + at.batch * args.tree_stride_batch + at.query * args.tree_stride_query;
  return (bits[bit / 8] >> (bit % 8) & 1) != 0;
}

}  // namespace splitkv
