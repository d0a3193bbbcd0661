// Joins the partials of one query row and finishes it: the body of the reduce kernel and of the
// last arriving block.
#pragma once

#include "convert.cuh"
#include "merge.cuh"
#include "partition.cuh"

namespace splitkv {

// A query row of a sequence: which element of q, out and lse it is.
struct QueryRow {
  bool exists;  // the last row block of a group may have fewer rows; others repeat the group's last
  i32 query;
  i32 q_head;
};

template <Config C>
__device__ inline QueryRow query_row(i32 kv_head, i32 row_block, int row) {
  const int place = row_block * C.rows + row;
  const int x = smaller(place, head_rows(C) - 1);
  return {place == x, x / C.group_size, kv_head * C.group_size + x % C.group_size};
}

// Writes the log-sum-exp of a finished row; `log2_lse` is in log2 units. One lane calls it.
template <Config C>
__device__ inline void store_lse(const LaunchArgs& args, i32 batch_row, const QueryRow& row,
                                 float log2_lse) {
  if constexpr (C.lse != LseOutput::none) {
    constexpr float unit = C.lse == LseOutput::natural ? 0.693147180559945309f : 1.0f;
    args.lse[batch_row * args.lse_stride_batch + row.query * args.lse_stride_query +
             row.q_head * args.lse_stride_head] = log2_lse * unit;
  }
}

template <Config C>
__device__ inline i64 out_row(const LaunchArgs& args, i32 batch_row, const QueryRow& row) {
  return batch_row * args.out_stride_batch + row.query * args.out_stride_query +
         row.q_head * args.out_stride_head;
}

template <Config C>
__device__ inline Statistics load_statistics(const LaunchArgs& args, i64 index) {
  if constexpr (C.merge == Merge::mlo) {
    return {load_shared_global(args.partials + 2 * index),
            load_shared_global(args.partials + 2 * index + 1)};
  } else {
    const float s = load_shared_global(args.partials + index);
    return {s, s == negative_infinity() ? 0.0f : 1.0f};
  }
}

// A weight of 0 passes over the value by selection.
__device__ inline void add_weighted(float4& sum, float weight, const float4& value) {
  const bool counts = weight != 0.0f;
  sum.x = counts ? fmaf(weight, value.x, sum.x) : sum.x;
  sum.y = counts ? fmaf(weight, value.y, sum.y) : sum.y;
  sum.z = counts ? fmaf(weight, value.z, sum.z) : sum.z;
  sum.w = counts ? fmaf(weight, value.w, sum.w) : sum.w;
}

// By one warp. Entry: the partials of all pieces are written and visible. Exit: out and lse of the
// row are written. Lane i holds dims 4 i .. 4 i + 3, and those 128 further. Partials are added in
// slot order, whatever order they arrived in.
template <Config C>
__device__ inline void reduce_row(const LaunchArgs& args, const Slots<C>& slots, i32 batch_row,
                                  const QueryRow& row, int row_in_block, int lane) {
  Statistics all = empty_statistics();
#pragma unroll 1
  for (i32 base = 0; base < slots.pieces; base += 32) {
    const i32 piece = base + lane;
    Statistics own = empty_statistics();
    if (piece < slots.pieces) {
      own = load_statistics<C>(args, slots(piece) * C.rows + row_in_block);
    }
    all = join(all, join_over_warp(own));
  }

  constexpr int vectors = ceil_div(C.dim_v, 4 * 32);
  float4 o[vectors];
  // -0 is neutral in addition: with one partial that is not empty, o keeps its bits.
  const float start = all.l == 0.0f ? 0.0f : -0.0f;
#pragma unroll
  for (float4& four : o) four = {start, start, start, start};
#pragma unroll 1
  for (i32 base = 0; base < slots.pieces; base += 32) {
    const i32 piece = base + lane;
    float weight = 0.0f;
    if (piece < slots.pieces) {
      const Statistics own = load_statistics<C>(args, slots(piece) * C.rows + row_in_block);
      // A union of one gives l / l: exactly 1, so that joining empties changes no bit.
      if (own.l != 0.0f) weight = weight_of(own.m, all.m) * own.l / all.l;
    }
    // Four partials at a time have their loads in flight; beyond the last, its own with weight 0.
    const i32 count = smaller(32, slots.pieces - base);
#pragma unroll 1
    for (i32 first = 0; first < count; first += 4) {
#pragma unroll
      for (i32 i = first; i < first + 4; ++i) {
        const float w = __shfl_sync(all_lanes, weight, i);
        const i64 slot = slots(base + smaller(i, count - 1));
        const float* source =
            args.partials + args.partial_o_offset + (slot * C.rows + row_in_block) * C.dim_v;
#pragma unroll
        for (int j = 0; j < vectors; ++j) {
          const int dim = 4 * (lane + 32 * j);
          if (dim < C.dim_v) add_weighted(o[j], w, load_shared_global4(source + dim));
        }
      }
    }
  }

  const i64 out = out_row<C>(args, batch_row, row);
#pragma unroll
  for (int j = 0; j < vectors; ++j) {
    const int dim = 4 * (lane + 32 * j);
    if (dim < C.dim_v) store_four<C.out_dtype>(args.out, out + dim, o[j]);
  }
  if (lane == 0) store_lse<C>(args, batch_row, row, log2_sum(all));
}

// By a whole block of `warps` warps: every row of one sequence.
template <Config C, class Score>
__device__ inline void reduce_sequence(const LaunchArgs& args, i64 sequence, int warps) {
  const int lane = threadIdx.x % 32;
  const Slots<C> slots = slots_of<C, Score>(args, sequence, lane);
  if (slots.pieces == 1) return;  // its split block finished it
  Piece at;
  place_sequence<C>(at, sequence);
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < C.rows; r += warps) {
    const QueryRow row = query_row<C>(at.kv_head, at.row_block, r);
    if (row.exists) reduce_row<C>(args, slots, at.batch_row, row, r, lane);
  }
}

}  // namespace splitkv
