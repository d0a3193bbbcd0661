// What is done with a query row once all its keys are in: the sink joins, and the row's statistics
// become the log-sum-exp or the partial that the problem asks for.
#pragma once

#include "convert.cuh"
#include "partials.cuh"
#include "rows.cuh"

namespace splitkv {

// Where a query row's results go.
struct FinishedRow {
  i64 out;  // elements
  i64 lse;
  i32 q_head;
};

template <const Config& C>
__device__ inline FinishedRow finished_row(const LaunchArgs& args, const RowTiles& row,
                                           i32 batch_row, const QueryRow& at) {
  return {query_offset<C>(args, row, batch_row, at, args.out_stride_batch, args.out_stride_query,
                          args.out_stride_head),
          query_offset<C>(args, row, batch_row, at, args.lse_stride_batch, args.lse_stride_query,
                          args.lse_stride_head),
          at.q_head};
}

// A sink is one more partial, (m = sink, l = 1, o = 0). In log2 units it is held below infinity, so
// that a huge one outweighs everything and gives no NaN; an infinite negative one is none.
template <const Config& C>
__device__ inline Statistics with_sink(const LaunchArgs& args, const Statistics& all, i32 q_head) {
  if constexpr (!C.sink) return all;
  const float sink = args.sink[q_head];
  if (sink == negative_infinity()) return all;
  const float m = fminf(fmaxf(sink * 1.44269504088896340736f, -largest_float), largest_float);
  return join(all, {m, 1.0f});
}

// The unit of m and S that leave: 1 in base 2, ln 2 for the natural base.
template <const Config& C>
__device__ inline float outward(float log2_value) {
  return C.lse == LseOutput::base2 ? log2_value : log2_value * 0.693147180559945309f;
}

// One lane calls it. A log-sum-exp at the bound of a sink is the sink itself.
template <const Config& C>
__device__ inline void store_row_statistics(const LaunchArgs& args, const FinishedRow& place,
                                            const Statistics& all) {
  if constexpr (C.out_partial && C.out_form == Merge::mlo) {
    args.lse[place.lse] = outward<C>(all.m);
    args.partial_l[place.lse] = all.l;
  } else if constexpr (C.lse != LseOutput::none) {
    const float log2_lse = log2_sum(all);
    const bool is_sink = C.sink && C.lse == LseOutput::natural && fabsf(log2_lse) == largest_float;
    args.lse[place.lse] = is_sink ? args.sink[place.q_head] : outward<C>(log2_lse);
  }
}

// One vector of a row whose keys and sink are all in; the thread of the row's first vector stores
// its statistics too.
template <const Config& C>
__device__ inline void store_finished(const LaunchArgs& args, const FinishedRow& place, int dim,
                                      const float4& o, const Statistics& all) {
  store_four<C.out_dtype, RowVector<C>::width>(args.out, place.out + dim, o);
  if (dim == 0) store_row_statistics<C>(args, place, all);
}

// Token rows of out beyond the last query belong to no batch row: all blocks zero them together.
template <const Config& C>
__device__ inline void clear_tokens_beyond(const LaunchArgs& args) {
  if constexpr (!C.ragged) return;
  i32 last = -1;  // the last offset that is one
  for (i32 row = args.batch; row >= 0 && last < 0; --row) last = args.q_offset[row];
  const i64 first = larger(last, 0);
  constexpr int heads = C.kv_heads * C.group_size;
  const i64 rows = (args.query_rows - first) * heads;
  for (i64 index = blockIdx.x; index < rows; index += gridDim.x) {
    const i64 token = first + index / heads;
    const i64 head = index % heads;
    const i64 out = token * args.out_stride_query + head * args.out_stride_head;
    for (int dim = threadIdx.x; dim < C.dim_v; dim += blockDim.x) {
      store_scalar<C.out_dtype>(args.out, out + dim, 0.0f);
    }
    if (threadIdx.x != 0) continue;
    store_row_statistics<C>(
        args, {out, token * args.lse_stride_query + head * args.lse_stride_head, i32(head)},
        empty_statistics());
  }
}

}  // namespace splitkv
