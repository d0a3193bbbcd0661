// Joins the partials of one query row and finishes it: the body of the reduce kernel and of the
// last arriving block.
#pragma once

#include "finish.cuh"
#include "partition.cuh"

namespace splitkv {

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

// Adds weight * value. Where the weight is 0 the value's bits become those of -0, whose product
// with 0 is -0 and leaves every sum as it was: an empty partial is passed over by selection.
struct Passing {
  float weight;
  u32 keep;
  u32 fill;

  __device__ explicit Passing(float w)
      : weight(w), keep(w != 0.0f ? all_lanes : 0u), fill(w != 0.0f ? 0u : 0x80000000u) {}

  __device__ void add(float& sum, float value) const {
    sum = fmaf(weight, __uint_as_float((__float_as_uint(value) & keep) | fill), sum);
  }
};

// By one warp. Entry: the partials of all pieces are written and visible. Exit: out and lse of the
// row are written. Lane i holds dims 4 i .. 4 i + 3, and those 128 further. Partials are added in
// slot order, whatever order they arrived in.
template <Config C>
__device__ inline void reduce_row(const LaunchArgs& args, const Slots<C>& slots,
                                  const FinishedRow& place, int row_in_block, int lane) {
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
  all = with_sink<C>(args, all, place.q_head);

  constexpr bool fours = C.dim_v % 4 == 0;
  constexpr int width = fours ? 4 : 2;
  constexpr int vectors = ceil_div(C.dim_v, width * 32);
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
    // Partials have their loads in flight together; beyond the last, its own with weight 0.
    constexpr int at_once = vectors > 2 ? 2 : 4;
    const i32 count = smaller(32, slots.pieces - base);
#pragma unroll 1
    for (i32 first = 0; first < count; first += at_once) {
#pragma unroll
      for (i32 i = first; i < first + at_once; ++i) {
        const Passing passing(__shfl_sync(all_lanes, weight, i));
        const i64 slot = slots(base + smaller(i, count - 1));
        const float* source =
            args.partials + args.partial_o_offset + (slot * C.rows + row_in_block) * C.dim_v;
#pragma unroll
        for (int j = 0; j < vectors; ++j) {
          const int dim = width * (lane + 32 * j);
          const bool inside = C.dim_v % (width * 32) == 0 || dim < C.dim_v;
          const float4 value = load_shared_global_four<width>(source + (inside ? dim : 0));
          passing.add(o[j].x, value.x);
          passing.add(o[j].y, value.y);
          if constexpr (width == 4) {
            passing.add(o[j].z, value.z);
            passing.add(o[j].w, value.w);
          }
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < vectors; ++j) {
    const int dim = width * (lane + 32 * j);
    if (dim < C.dim_v) store_four<C.out_dtype, width>(args.out, place.out + dim, o[j]);
  }
  if (lane == 0) store_row_statistics<C>(args, place, all);
}

// By a whole block of `warps` warps: every row of one sequence.
template <Config C, class Score>
__device__ inline void reduce_sequence(const LaunchArgs& args, i32 sequence, int warps) {
  const int lane = threadIdx.x % 32;
  Piece at;
  place_sequence<C>(at, sequence);
  at.row = row_tiles<C, Score>(args, at.batch_row);
  const Slots<C> slots = slots_of<C, Score>(args, sequence, at.row, lane);
  if (slots.pieces == 1) return;  // its split block finished it
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < C.rows; r += warps) {
    const QueryRow row = query_row<C>(at.row, at.kv_head, at.row_block, r);
    if (!row.exists) continue;
    reduce_row<C>(args, slots, finished_row<C>(args, at.row, at.batch_row, row), r, lane);
  }
}

}  // namespace splitkv
