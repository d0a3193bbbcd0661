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

}  // namespace splitkv
