// The running rows of a block's warps, joined through shared memory: what every kernel family does
// when a piece's keys are done.
#pragma once

#include "arrive.cuh"
#include "reduce_rows.cuh"

namespace splitkv {

// Shared memory: accumulators [warps][rows][dim_v], statistics [warps][rows], a flag.
template <Config C>
struct BlockRows {
  float* acc;
  Statistics* statistics;
  u32* flag;

  static constexpr int bytes = 4 * C.rows * C.warps * (C.dim_v + 2) + 16;

  __device__ explicit BlockRows(float* shared)
      : acc(shared),
        statistics(reinterpret_cast<Statistics*>(shared + C.warps * C.rows * C.dim_v)),
        flag(reinterpret_cast<u32*>(statistics + C.warps * C.rows)) {}

  __device__ float* row(int warp, int r) const { return acc + (warp * C.rows + r) * C.dim_v; }
};

// By one warp: joins the warps' rows `r`, normalises, and writes the result or the partial.
template <Config C>
__device__ inline void finish_row(const LaunchArgs& args, const Piece& piece,
                                  const BlockRows<C>& rows, int r, int lane) {
  const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, r);
  if (!row.exists) return;
  const FinishedRow place = finished_row<C>(args, piece.row, piece.batch_row, row);
  static_assert(C.warps <= 32, "a lane looks after one warp's row");
  Statistics own = empty_statistics();
  if (lane < C.warps) own = rows.statistics[lane * C.rows + r];
  Statistics all = join_over_warp(own);
  const bool whole = piece.pieces == 1;
  if (whole) all = with_sink<C>(args, all, row.q_head);
  const float weight = all.l == 0.0f ? 0.0f : weight_of(own.m, all.m) * reciprocal(all.l);
  const i64 slot_row = piece.slot * C.rows + r;
#pragma unroll 1
  for (int base = 0; base < C.dim_v; base += 32) {
    const int dim = base + lane;
    const bool inside = C.dim_v % 32 == 0 || dim < C.dim_v;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C.warps; ++w) {
      sum += __shfl_sync(all_lanes, weight, w) * rows.row(w, r)[inside ? dim : 0];
    }
    if (!inside) continue;
    if (whole) {
      store_scalar<C.out_dtype>(args.out, place.out + dim, sum);
    } else {
      args.partials[args.partial_o_offset + slot_row * C.dim_v + dim] = sum;
    }
  }
  if (lane != 0) return;
  if (whole) {
    store_row_statistics<C>(args, place, all);
  } else {
    store_statistics<C.merge>(args.partials, slot_row, all);
  }
}

// By the whole block, after every warp stored its rows: they are joined and written, and the last
// block of a sequence to arrive joins its partials. Afterwards shared memory is free.
template <Config C, class Score>
__device__ inline void finish_piece(const LaunchArgs& args, const Piece& piece,
                                    const BlockRows<C>& rows) {
  __syncthreads();
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < C.rows; r += C.warps) {
    finish_row<C>(args, piece, rows, r, threadIdx.x % 32);
  }
  if constexpr (C.reduce == Reduce::last_block) {
    if (piece.pieces > 1 && arrive_last(args.arrivals + piece.sequence, piece.pieces, rows.flag)) {
      reduce_sequence<C, Score>(args, piece.sequence, C.warps);
    }
  }
  __syncthreads();
}

// Runs `attend(piece)`, by the whole block, for every piece the block takes, and finishes each. A
// batch row without queries has one piece, which nobody attends.
template <Config C, class Score, class Attend>
__device__ inline void for_each_piece(const LaunchArgs& args, const Attend& attend) {
  const i32 block = blockIdx.x;
  clear_tokens_beyond<C>(args);
  Piece piece;
  if constexpr (C.partition == Partition::flat) {
    LineWalk<C, Score> walk(args, block, threadIdx.x % 32);
    while (walk.next(args, block, piece)) {
      if ((!C.ragged || piece.row.queries > 0)) attend(piece);
    }
  } else {
    if (split_piece<C, Score>(args, block, piece) && (!C.ragged || piece.row.queries > 0))
      attend(piece);
  }
}

}  // namespace splitkv
