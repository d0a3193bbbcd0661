// The running rows of a block's streams, joined through shared memory: what every kernel family
// does when a piece's keys are done.
#pragma once

#include "arrive.cuh"
#include "reduce_cluster.cuh"
#include "reduce_rows.cuh"

namespace splitkv {

// Shared memory: unnormalised accumulators [streams][rows][pitch], statistics [streams][rows], a
// flag.
template <const Config& C>
struct BlockRows {
  // Lanes that hold neighbouring rows at one dim store into different banks.
  static constexpr int pitch = ceil_div(C.dim_v, 16) * 16 + 4;
  static constexpr int statistics_bytes = ceil_div(C.rows * streams(C), 2) * 16;
  static constexpr int bytes = 4 * C.rows * streams(C) * pitch + statistics_bytes + 16;

  float* acc;
  Statistics* statistics;
  u32* flag;
  float* beyond;  // what the blocks of a cluster give each other
  float v_scale;  // that all keys share: the accumulators are still to be multiplied by it

  __device__ BlockRows(float* shared, int own_bytes, float scale)
      : acc(shared),
        statistics(reinterpret_cast<Statistics*>(shared + streams(C) * C.rows * pitch)),
        flag(reinterpret_cast<u32*>(statistics) + statistics_bytes / 4),
        beyond(shared + own_bytes / 4),
        v_scale(scale) {}

  __device__ float* row(int stream, int r) const { return acc + (stream * C.rows + r) * pitch; }

  // Lanes that hold vectors of one row; each brings the statistics of one stream.
  static constexpr int lanes =
      larger(power_of_two(streams(C)), smaller(power_of_two(RowVector<C>::a_row), 32));
  static_assert(lanes <= 32, "a warp's lanes bring the statistics of all streams");

  __device__ Statistics own_statistics(int r) const {
    const int stream = threadIdx.x % lanes;
    return stream < streams(C) ? statistics[stream * C.rows + r] : empty_statistics();
  }

  // `all` is the union of the row's keys and perhaps a sink.
  __device__ float share_of(const Statistics& own, const Statistics& all, float unit) const {
    return weight_of(own.m, all.m) * (unit * v_scale);
  }

  // A vector of a row, by a warp: `share` is that of the lane's stream.
  __device__ float4 join_vector(const LaneVector& at, float share) const {
    float4 sum = {-0.0f, -0.0f, -0.0f, -0.0f};
#pragma unroll
    for (int w = 0; w < streams(C); ++w) {
      const float weight = __shfl_sync(all_lanes, share, w, lanes);
      add_vector<C>(sum, weight, load_vector<C>(row(w, at.row) + at.dim));
    }
    return sum;
  }
};

// By a warp: its vectors of rows that have only one piece, or of their partials.
template <const Config& C>
__device__ inline void finish_vector(const LaunchArgs& args, const Piece& piece,
                                     const BlockRows<C>& rows, const LaneVector& at) {
  const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, at.row);
  const bool finishes = piece.pieces == 1;
  const Statistics own = rows.own_statistics(at.row);
  Statistics all = join_over_lanes<BlockRows<C>::lanes>(own);
  if (finishes) all = with_sink<C>(args, all, row.q_head);
  const float unit = finishes ? row_unit(all) : partial_unit(all);
  const float4 joined = rows.join_vector(at, rows.share_of(own, all, unit));
  if (!at.is_used || !row.exists) return;
  if (finishes) {
    store_finished<C>(args, finished_row<C>(args, piece.row, piece.batch_row, row), at.dim, joined,
                      all);
  } else {
    const i64 slot_row = piece.slot * C.rows + at.row;
    store_partial<C>(args, slot_row * C.dim_v + at.dim, joined);
    if (at.dim == 0) store_statistics<C.merge>(args.partials, slot_row, all);
  }
}

// By the whole block: its joined rows go to the blocks that own their slices.
template <const Config& C>
__device__ inline void give_to_cluster(const BlockRows<C>& rows, const ClusterRows<C>& joined) {
  constexpr int lanes = BlockRows<C>::lanes;
  const u32 own_rank = blockIdx.x % C.cluster;
  for_each_vector<C, lanes>(0, RowVector<C>::count, [&](const LaneVector& at) {
    const Statistics own = rows.own_statistics(at.row);
    const Statistics all = join_over_lanes<lanes>(own);
    const float4 o = rows.join_vector(at, rows.share_of(own, all, partial_unit(all)));
    if (at.is_used) joined.give(own_rank, at.index, o);
    if (at.is_used && at.dim == 0) joined.give_statistics(own_rank, at.row, all);
  });
}

// By the whole block, after every warp stored its rows: they are joined and written, and the last
// block of a sequence to arrive, or its clusters, join its partials. Afterwards shared memory is
// free.
template <const Config& C, class Score>
__device__ inline void finish_piece(const LaunchArgs& args, const Piece& piece,
                                    const BlockRows<C>& rows) {
  __syncthreads();
  start_what_follows<C>();
  if constexpr (C.reduce == Reduce::cluster) {
    const ClusterRows<C> joined(rows.beyond);
    wait_for_cluster();  // every block runs, and its memory can be written
    give_to_cluster<C>(rows, joined);
    arrive_at_cluster();
    wait_for_cluster();
    reduce_cluster<C, Score>(args, piece, joined, rows.flag);
  } else {
    for_each_vector<C, BlockRows<C>::lanes>(0, RowVector<C>::count, [&](const LaneVector& at) {
      finish_vector<C>(args, piece, rows, at);
    });
    if constexpr (C.reduce == Reduce::last_block) {
      if (piece.pieces > 1 &&
          arrive_last(args.arrivals + piece.sequence, piece.pieces, rows.flag)) {
        reduce_rows<C>(args, piece, piece.slots, threadIdx.x / 32, C.warps);
      }
    }
    __syncthreads();
  }
}

// Runs `attend(piece)`, by the whole block, for every piece the block takes, and finishes each. A
// batch row without queries has one piece, which nobody attends.
template <const Config& C, class Score, class Attend>
__device__ inline void for_each_piece(const LaunchArgs& args, const Attend& attend) {
  const i32 block = blockIdx.x;
  wait_for_stream<C>();
  clear_tokens_beyond<C>(args);
  Piece piece;
  if constexpr (C.partition == Partition::flat) {
    LineWalk<C, Score> walk(args, block, threadIdx.x % 32);
    while (walk.next(args, block, piece)) {
      if (!C.ragged || piece.row.queries > 0) attend(piece);
    }
  } else {
    if (split_piece<C, Score>(args, block, piece) && (!C.ragged || piece.row.queries > 0)) {
      if constexpr (C.reduce == Reduce::cluster) arrive_at_cluster();
      attend(piece);
    }
  }
}

}  // namespace splitkv
