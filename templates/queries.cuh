// Elements of query rows, from one tensor or two.
#pragma once

#include "convert.cuh"
#include "rows.cuh"

namespace splitkv {

// Element `dim` of a query row, as the number it is stored as.
template <Config C>
__device__ inline float query_element(const LaunchArgs& args, const RowTiles& row, i32 batch_row,
                                      const QueryRow& at, int dim) {
  if (C.dim_rope > 0 && dim >= C.dim_qk - C.dim_rope) {
    const i64 start = query_offset<C>(args, row, batch_row, at, args.q_rope_stride_batch,
                                      args.q_rope_stride_query, args.q_rope_stride_head);
    return load_scalar<C.q_dtype>(args.q_rope, start + dim - (C.dim_qk - C.dim_rope));
  }
  const i64 start = query_offset<C>(args, row, batch_row, at, args.q_stride_batch,
                                    args.q_stride_query, args.q_stride_head);
  return load_scalar<C.q_dtype>(args.q, start + dim);
}

// Two neighbours from an even `dim`, as a word of 16-bit elements.
template <Config C>
__device__ inline u32 query_pair(const LaunchArgs& args, const RowTiles& row, i32 batch_row,
                                 const QueryRow& at, int dim) {
  static_assert(size_bytes(C.q_dtype) == 2, "a pair is a word");
  const bool in_rope = C.dim_rope > 0 && dim >= C.dim_qk - C.dim_rope;
  const u16* base = static_cast<const u16*>(in_rope ? args.q_rope : args.q);
  const u16* from =
      base + (in_rope ? query_offset<C>(args, row, batch_row, at, args.q_rope_stride_batch,
                                        args.q_rope_stride_query, args.q_rope_stride_head) +
                            dim - (C.dim_qk - C.dim_rope)
                      : query_offset<C>(args, row, batch_row, at, args.q_stride_batch,
                                        args.q_stride_query, args.q_stride_head) +
                            dim);
  return from[0] | u32(from[1]) << 16;
}

}  // namespace splitkv
