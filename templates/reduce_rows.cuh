// Joins the partials of one query row and finishes it: the body of the reduce kernel and of the
// last arriving block.
#pragma once

#include "finish.cuh"
#include "partition.cuh"
#include "stream_order.cuh"
#include "sum_partials.cuh"

namespace splitkv {

// What a warp knows of one row whose partials it joins. Lane i holds vectors i, i + 32, ... of it.
template <const Config& C>
struct ReducedRow {
  using Vector = RowVector<C>;
  static constexpr int vectors = ceil_div(Vector::a_row, 32);
  static constexpr bool fits_a_warp = false;

  const LaunchArgs& args;
  const Slots& slots;
  int row_in_block;
  int lane;

  __device__ i32 count() const { return slots.pieces; }

  // Of `piece`; beyond the last, of no keys.
  __device__ Statistics statistics_of(i32 piece) const {
    return piece < slots.pieces ? load_statistics<C>(args, slots(piece) * C.rows + row_in_block)
                                : empty_statistics();
  }

  // The lane's vector j of `piece`.
  __device__ float4 vector_of(i32 piece, int j) const {
    const i64 slot_row = slots(piece) * C.rows + row_in_block;
    const int dim = Vector::width * (lane + 32 * j);
    const bool inside = Vector::a_row % 32 == 0 || dim < C.dim_v;
    return load_partial<C>(args, slot_row * C.dim_v + (inside ? dim : 0));
  }
};

// sum_partials in a kernel of its own, which has registers for loads that run ahead of the sums:
// the first partials are on their way while the statistics are joined. They come in two groups; of
// a group that has any, those beyond the last are the last again, with share 0.
template <const Config& C>
__device__ inline Statistics sum_partials_ahead(const ReducedRow<C>& row,
                                                float4 (&o)[ReducedRow<C>::vectors], i32 q_head) {
  constexpr int vectors = ReducedRow<C>::vectors;
  constexpr int group = vectors == 1 ? 8 : vectors == 2 ? 4 : 2;
  constexpr int at_once = 2 * group;
  static_assert(32 % at_once == 0, "a lane's statistics are those of one of 32 partials");
  float4 values[at_once][vectors];
  Statistics own = row.statistics_of(row.lane);
  Statistics all = empty_statistics();
  float unit = 0.0f;
  float shares = 0.0f;
#pragma unroll 1
  for (i32 first = -at_once; first < row.count(); first += at_once) {
    if (first > 0 && first % 32 == 0) own = row.statistics_of(first + row.lane);
    if (first >= 0 && first % 32 == 0) shares = share_of(own, all, unit);
#pragma unroll
    for (i32 i = 0; i < at_once; ++i) {
      if (first < 0 || first + i / group * group >= row.count()) break;
      const float share = __shfl_sync(all_lanes, shares, first % 32 + i);
#pragma unroll
      for (int j = 0; j < vectors; ++j) add_vector<C>(o[j], share, values[i][j]);
    }
#pragma unroll
    for (i32 i = 0; i < at_once; ++i) {
      if (first + at_once + i / group * group >= row.count()) break;
      const i32 piece = smaller(first + at_once + i, row.count() - 1);
#pragma unroll
      for (int j = 0; j < vectors; ++j) values[i][j] = row.vector_of(piece, j);
    }
    if (first >= 0) continue;
    all = with_sink<C>(row.args, join_all(row, own), q_head);
    unit = row_unit(all);
    const float start = initial_sum(all);
#pragma unroll
    for (float4& four : o) four = {start, start, start, start};
  }
  return all;
}

// By one warp. Entry: the partials of all pieces are written and visible. Exit: out and lse of the
// row are written.
template <const Config& C>
__device__ inline void reduce_row(const LaunchArgs& args, const Slots& slots,
                                  const FinishedRow& place, int row_in_block, int lane) {
  const ReducedRow<C> row = {args, slots, row_in_block, lane};
  float4 o[ReducedRow<C>::vectors];
  Statistics all;
  if constexpr (C.reduce == Reduce::kernel) {
    all = sum_partials_ahead<C>(row, o, place.q_head);
  } else {
    all = sum_partials<C>(
        row, o, [&](const Statistics& keys) { return with_sink<C>(args, keys, place.q_head); });
  }
#pragma unroll
  for (int j = 0; j < ReducedRow<C>::vectors; ++j) {
    const int dim = RowVector<C>::width * (lane + 32 * j);
    if (dim < C.dim_v) store_finished<C>(args, place, dim, o[j], all);
  }
}

// By one warp: rows first, first + step, ... of a sequence that has several pieces.
template <const Config& C>
__device__ inline void reduce_rows(const LaunchArgs& args, const Piece& at, const Slots& slots,
                                   int first, int step) {
#pragma unroll 1
  for (int r = first; r < C.rows; r += step) {
    const QueryRow row = query_row<C>(at.row, at.kv_head, at.row_block, r);
    if (!row.exists) continue;
    reduce_row<C>(args, slots, finished_row<C>(args, at.row, at.batch_row, row), r,
                  threadIdx.x % 32);
  }
}

// Entry of the reduce kernel, of `Warps` warps: grid and threads as codegen/launch_shape.hpp says.
template <const Config& C, class Score, int Warps>
__device__ inline void reduce_sequence(const LaunchArgs& args, u32 block) {
  constexpr u32 blocks_a_sequence = ceil_div(C.rows, Warps);
  wait_for_stream<C>();
  start_what_follows<C>();
  Piece at;
  place_sequence<C>(at, block / blocks_a_sequence);
  at.row = row_tiles<C, Score>(args, at.batch_row);
  const Slots slots = slots_of<C, Score>(args, at, threadIdx.x % 32);
  if (slots.pieces == 1) return;  // its split block finished it
  reduce_rows<C>(args, at, slots, block % blocks_a_sequence * Warps + threadIdx.x / 32, C.rows);
}

}  // namespace splitkv
