// Elements of query rows, from one tensor or two.
#pragma once

#include "convert.cuh"
#include "rows.cuh"

namespace splitkv {

// Element `dim` of a query row, as the number it is stored as.
template <const Config& C>
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

// A query row by pairs of neighbours, each a word of two 16-bit elements.
template <const Config& C>
struct QueryPairs {
  static_assert(size_bytes(C.q_dtype) == 2, "a pair is a word");
  static constexpr int latent_pairs = (C.dim_qk - C.dim_rope) / 2;

  const u16* q;
  const u16* q_rope;  // where there is one

  __device__ QueryPairs(const LaunchArgs& args, const RowTiles& row, i32 batch_row,
                        const QueryRow& at)
      : q(static_cast<const u16*>(args.q) +
          query_offset<C>(args, row, batch_row, at, args.q_stride_batch, args.q_stride_query,
                          args.q_stride_head)),
        q_rope(nullptr) {
    if constexpr (C.dim_rope > 0) {
      q_rope = static_cast<const u16*>(args.q_rope) +
               query_offset<C>(args, row, batch_row, at, args.q_rope_stride_batch,
                               args.q_rope_stride_query, args.q_rope_stride_head);
    }
  }

  __device__ u32 operator()(int pair) const {
    const u16* from =
        C.dim_rope > 0 && pair >= latent_pairs ? q_rope + 2 * (pair - latent_pairs) : q + 2 * pair;
    return from[0] | u32(from[1]) << 16;
  }
};

}  // namespace splitkv
