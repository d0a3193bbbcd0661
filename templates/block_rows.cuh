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

  // Row `r` of all streams; every thread computes the same bits.
  __device__ Statistics join_statistics(int r) const {
    Statistics all = statistics[r];
#pragma unroll
    for (int w = 1; w < streams(C); ++w) all.m = fmaxf(all.m, statistics[w * C.rows + r].m);
    all.l = 0.0f;
#pragma unroll
    for (int w = 0; w < streams(C); ++w) {
      const Statistics own = statistics[w * C.rows + r];
      all.l = fmaf(weight_of(own.m, all.m), own.l, all.l);
    }
    return all;
  }

  // A vector of row `r`; `all` is the union of the row's keys and perhaps a sink.
  __device__ float4 join_vector(int r, int dim, const Statistics& all, float unit) const {
    float4 sum = {-0.0f, -0.0f, -0.0f, -0.0f};
#pragma unroll
    for (int w = 0; w < streams(C); ++w) {
      const float weight = weight_of(statistics[w * C.rows + r].m, all.m) * (unit * v_scale);
      add_vector<C>(sum, weight, load_vector<C>(row(w, r) + dim));
    }
    return sum;
  }
};

// By one thread: a vector of a row that has only one piece, or of its partial.
template <const Config& C>
__device__ inline void finish_vector(const LaunchArgs& args, const Piece& piece,
                                     const BlockRows<C>& rows, const RowVector<C>& at) {
  const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, at.row);
  if (!row.exists) return;
  const bool finishes = piece.pieces == 1;
  Statistics all = rows.join_statistics(at.row);
  if (finishes) all = with_sink<C>(args, all, row.q_head);
  const float4 joined =
      rows.join_vector(at.row, at.dim, all, finishes ? row_unit(all) : partial_unit(all));
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
  const u32 own_rank = blockIdx.x % C.cluster;
#pragma unroll 1
  for (int i = threadIdx.x; i < RowVector<C>::count; i += 32 * C.warps) {
    const RowVector<C> at(i);
    const Statistics all = rows.join_statistics(at.row);
    joined.give(own_rank, i, rows.join_vector(at.row, at.dim, all, partial_unit(all)));
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < C.rows * C.cluster; i += 32 * C.warps) {
    const int row = i / C.cluster;
    joined.give_statistics(own_rank, i % C.cluster, row, rows.join_statistics(row));
  }
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
#pragma unroll 1
    for (int i = threadIdx.x; i < RowVector<C>::count; i += 32 * C.warps) {
      finish_vector<C>(args, piece, rows, RowVector<C>(i));
    }
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
