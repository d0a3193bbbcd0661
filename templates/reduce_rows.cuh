// Joins the partials of one query row and finishes it: the body of the reduce kernel and of the
// last arriving block.
#pragma once

#include "finish.cuh"
#include "partition.cuh"
#include "stream_order.cuh"

namespace splitkv {

// By one warp. Entry: the partials of all pieces are written and visible. Exit: out and lse of the
// row are written. Lane i holds vectors i, i + 32, ... of the row. Partials are added in slot
// order, whatever order they arrived in.
template <const Config& C>
__device__ inline void reduce_row(const LaunchArgs& args, const Slots& slots,
                                  const FinishedRow& place, int row_in_block, int lane) {
  using Vector = RowVector<C>;
  const auto statistics_of = [&](i32 piece) {
    return piece < slots.pieces ? load_statistics<C>(args, slots(piece) * C.rows + row_in_block)
                                : empty_statistics();
  };
  const Statistics first_own = statistics_of(lane);
  Statistics all = join_over_warp(first_own);
#pragma unroll 1
  for (i32 base = 32; base < slots.pieces; base += 32) {
    all = join(all, join_over_warp(statistics_of(base + lane)));
  }
  all = with_sink<C>(args, all, place.q_head);

  constexpr int vectors = ceil_div(Vector::a_row, 32);
  float4 o[vectors];
  const float unit = row_unit(all);
  const float start = initial_sum(all);
#pragma unroll
  for (float4& four : o) four = {start, start, start, start};
#pragma unroll 1
  for (i32 base = 0; base < slots.pieces; base += 32) {
    const Statistics own = base == 0 ? first_own : statistics_of(base + lane);
    const float weight = share_of(own, all, unit);
    // Partials have their loads in flight together; beyond the last, its own with weight 0.
    constexpr int at_once = larger(8 / vectors, 2);
    const i32 count = smaller(32, slots.pieces - base);
#pragma unroll 1
    for (i32 first = 0; first < count; first += at_once) {
#pragma unroll
      for (i32 i = first; i < first + at_once; ++i) {
        const float share = __shfl_sync(all_lanes, weight, i);
        const i64 slot_row = slots(base + smaller(i, count - 1)) * C.rows + row_in_block;
#pragma unroll
        for (int j = 0; j < vectors; ++j) {
          const int dim = Vector::width * (lane + 32 * j);
          const bool inside = Vector::a_row % 32 == 0 || dim < C.dim_v;
          const i64 index = slot_row * C.dim_v + (inside ? dim : 0);
          add_vector<C>(o[j], share, load_partial<C>(args, index));
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < vectors; ++j) {
    const int dim = Vector::width * (lane + 32 * j);
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
