// The simt split kernel: fused multiply-adds in registers, no tensor cores, every architecture.
//
// A block holds `rows` query rows of one kv head. A lane group of `lanes` lanes holds one key at a
// time: lane i of it holds vectors i, i + lanes, ... of the key's row, and of every query row and
// accumulator. Keys of a tile are dealt to the block's lane groups in turn, `unroll` at a time, so
// that neighbouring lane groups read neighbouring rows; the loads of all `unroll` keys, K and V,
// are issued before the first is used. Lane groups keep separate running rows, joined once at the
// end: over the warp by shuffles, over the block through shared memory.
#pragma once

#include "arrive.cuh"
#include "convert.cuh"
#include "coordinates.cuh"
#include "kv_walk.cuh"
#include "lane_sums.cuh"
#include "partition.cuh"
#include "reduce_rows.cuh"
#include "score_math.cuh"
#include "softmax.cuh"

namespace splitkv {

template <Config C>
struct Simt {
  static constexpr int groups = 32 / C.lanes;  // of a warp
  static constexpr int bytes_k = C.vector_k * size_bytes(C.k_dtype);
  static constexpr int bytes_v = C.vector_v * size_bytes(C.v_dtype);
  static constexpr int loads_k = C.slice_qk / C.vector_k;
  static constexpr int loads_v = C.slice_v / C.vector_v;

  static_assert(32 % C.lanes == 0, "lane groups divide a warp");
  static_assert(C.lanes * C.slice_qk >= C.dim_qk && C.lanes * C.slice_v >= C.dim_v,
                "a lane group holds a whole row");
  static_assert(C.dim_qk % C.vector_k == 0 && C.dim_v % C.vector_v == 0,
                "no vector crosses a row's end");

  float q[C.rows][C.slice_qk];
  RunningRow<C.slice_v> run[C.rows];
};

// Dim of element `i` of a lane's slice.
__device__ inline int slice_dim(int lane_in_group, int i, int lanes, int vector) {
  return (i / vector * lanes + lane_in_group) * vector + i % vector;
}

// By the whole block, through shared memory [rows][dim_qk]: every warp needs all of it, and a
// rolled loop compiles faster than a lane's own scattered loads. Rows beyond the group repeat its
// last one; nothing of theirs is written.
template <Config C>
__device__ inline void load_query(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                  float* shared, int lane) {
#pragma unroll 1
  for (int i = threadIdx.x; i < C.rows * C.dim_qk; i += 32 * C.warps) {
    const QueryRow row = query_row<C>(piece.kv_head, piece.row_block, i / C.dim_qk);
    const i64 start = piece.batch_row * args.q_stride_batch + row.query * args.q_stride_query +
                      row.q_head * args.q_stride_head;
    shared[i] = load_scalar<C.q_dtype>(args.q, start + i % C.dim_qk);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
#pragma unroll
    for (int i = 0; i < C.slice_qk; ++i) {
      const int dim = slice_dim(lane % C.lanes, i, C.lanes, C.vector_k);
      const bool inside = C.lanes * C.slice_qk == C.dim_qk || dim < C.dim_qk;
      state.q[r][i] = inside ? shared[r * C.dim_qk + dim] : 0.0f;
    }
    state.run[r].clear();
  }
  __syncthreads();  // the warps' rows will lie there
}

// One lane's vectors of one key's row. A vector beyond the row's end repeats the row's first: for K
// its query elements are 0, for V its accumulators are never stored.
template <int Bytes, int Loads>
struct KeySlice {
  Raw<Bytes> raw[Loads];

  template <int Lanes, int Dim>
  __device__ void load(const void* row, int element_bytes, int lane) {
#pragma unroll
    for (int j = 0; j < Loads; ++j) {
      const int first = (j * Lanes + lane % Lanes) * (Bytes / element_bytes);
      const bool inside = Lanes * Loads * Bytes == Dim * element_bytes || first < Dim;
      raw[j] =
          load_global<Bytes>(static_cast<const char*>(row) + (inside ? first : 0) * element_bytes);
    }
  }
};

template <DType T>
__device__ inline const void* element_address(const void* base, i64 index) {
  return static_cast<const char*>(base) + index * size_bytes(T);
}

// Moves every row to the maximum that `scores` [rows][unroll] bring. One branch for all rows: once
// the maxima have settled, most steps leave all of them as they are.
template <Config C>
__device__ inline void raise_maxima(Simt<C>& state, const ScoreReal<C>* scores) {
  float top[C.rows];
  bool any_raised = false;
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    top[r] = state.run[r].s.m;
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) top[r] = fmaxf(top[r], float(scores[r * C.unroll + u]));
    any_raised = any_raised || top[r] != state.run[r].s.m;
  }
  if (!any_raised) return;
#pragma unroll
  for (int r = 0; r < C.rows; ++r) state.run[r].raise_to(top[r]);
}

// Keys start, start + groups, ... of this lane group, `unroll` of them. Where one is not below
// `end`, the last key is loaded in its place and its score masked.
template <Config C, class Score>
__device__ inline void add_keys(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                const KvWalk<C>& walk, i32 start, i32 end, int lane) {
  using S = Simt<C>;
  KeySlice<S::bytes_k, S::loads_k> k[C.unroll];
  KeySlice<S::bytes_v, S::loads_v> v[C.unroll];
#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
    const auto at = walk.place(smaller(start + u * S::groups, end - 1));
    k[u].template load<C.lanes, C.dim_qk>(element_address<C.k_dtype>(args.k, walk.k_row(args, at)),
                                          size_bytes(C.k_dtype), lane);
    v[u].template load<C.lanes, C.dim_v>(element_address<C.v_dtype>(args.v, walk.v_row(args, at)),
                                         size_bytes(C.v_dtype), lane);
  }

  // Value r * unroll + u is the score of row r and key u.
  using Real = ScoreReal<C>;
  LaneSums<Real, C.rows * C.unroll, C.lanes> dots;
#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
#pragma unroll
    for (int r = 0; r < C.rows; ++r) dots.values[r * C.unroll + u] = Real(0);
#pragma unroll
    for (int i = 0; i < C.slice_qk; ++i) {
      const Real key_element = element<C.k_dtype>(k[u].raw[i / C.vector_k], i % C.vector_k);
#pragma unroll
      for (int r = 0; r < C.rows; ++r) {
        Real& dot = dots.values[r * C.unroll + u];
        dot = fma(Real(state.q[r][i]), key_element, dot);
      }
    }
  }
  const int first = dots.scatter(lane);
#pragma unroll
  for (int i = 0; i < dots.held(); ++i) {
    const int index = smaller(first + i, C.rows * C.unroll - 1);  // padding repeats the last
    const QueryRow row = query_row<C>(piece.kv_head, piece.row_block, index / C.unroll);
    const Coordinates at = {piece.batch_row, row.q_head, row.query,
                            start + index % C.unroll * S::groups, piece.row.kv_len};
    const bool visible = at.key_pos < end && Score::visible(at);
    dots.values[i] =
        visible ? settled(Score::log2_score(dots.values[i], at)) : Real(negative_infinity());
  }

  Real score[C.rows * C.unroll];
  dots.gather(score, lane - lane % C.lanes);
  raise_maxima<C>(state, score);
  float weight[C.rows * C.unroll];
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    const Real origin = state.run[r].origin();
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) {
      const int index = r * C.unroll + u;
      weight[index] = exp2(float(score[index] - origin));
      state.run[r].s.l += weight[index];
    }
  }

#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
#pragma unroll
    for (int i = 0; i < C.slice_v; ++i) {
      const float value = element<C.v_dtype>(v[u].raw[i / C.vector_v], i % C.vector_v);
#pragma unroll
      for (int r = 0; r < C.rows; ++r) {
        state.run[r].acc[i] = fmaf(weight[r * C.unroll + u], value, state.run[r].acc[i]);
      }
    }
  }
}

template <Config C, class Score>
__device__ inline void add_tiles(Simt<C>& state, const LaunchArgs& args, const Piece& piece) {
  using S = Simt<C>;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const KvWalk<C> walk(args, piece.batch_row, piece.kv_head);
  constexpr int keys_per_step = C.warps * S::groups * C.unroll;
#pragma unroll 1
  for (i32 tile = piece.tile_begin; tile < piece.tile_end; tile += piece.tile_step) {
    const i32 tile_key = (piece.row.first_tile + tile) * C.tile_kv;
    const i32 begin = larger(tile_key, piece.row.first_key);
    const i32 end = smaller(tile_key + C.tile_kv, piece.row.kv_len);
    const i32 offset = warp * (S::groups * C.unroll) + lane / C.lanes;
#pragma unroll 1
    for (i32 base = begin; base < end; base += keys_per_step) {
      add_keys<C, Score>(state, args, piece, walk, base + offset, end, lane);
    }
  }
}

// Joins the lane groups of a warp: afterwards every lane group holds the warp's running rows.
template <Config C>
__device__ inline void join_lane_groups(Simt<C>& state) {
#pragma unroll
  for (int offset = C.lanes; offset < 32; offset *= 2) {
#pragma unroll
    for (int r = 0; r < C.rows; ++r) {
      auto& own = state.run[r];
      const Statistics other = {__shfl_xor_sync(all_lanes, own.s.m, offset),
                                __shfl_xor_sync(all_lanes, own.s.l, offset)};
      const float top = fmaxf(own.s.m, other.m);
      const float weight_own = weight_of(own.s.m, top);
      const float weight_other = weight_of(other.m, top);
#pragma unroll
      for (float& a : own.acc) {
        a = a * weight_own + __shfl_xor_sync(all_lanes, a, offset) * weight_other;
      }
      own.s = join(own.s, other);
    }
  }
}

// Shared memory of a block: accumulators [warps][rows][dim_v], statistics [warps][rows], a flag.
// Before them the query rows lie there, [rows][dim_qk].
template <Config C>
struct BlockRows {
  float* acc;
  Statistics* statistics;
  u32* flag;

  static constexpr int bytes = 4 * C.rows * larger(C.warps * (C.dim_v + 2), C.dim_qk) + 16;

  __device__ explicit BlockRows(float* shared)
      : acc(shared),
        statistics(reinterpret_cast<Statistics*>(shared + C.warps * C.rows * C.dim_v)),
        flag(reinterpret_cast<u32*>(statistics + C.warps * C.rows)) {}
};

template <Config C>
__device__ inline void store_warp_rows(const Simt<C>& state, const BlockRows<C>& rows, int warp,
                                       int lane) {
  if (lane >= C.lanes) return;
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    float* acc = rows.acc + (warp * C.rows + r) * C.dim_v;
#pragma unroll
    for (int j = 0; j < Simt<C>::loads_v; ++j) {
      const int first = slice_dim(lane, j * C.vector_v, C.lanes, C.vector_v);
      if (C.lanes * C.slice_v != C.dim_v && first >= C.dim_v) continue;
#pragma unroll
      for (int i = 0; i < C.vector_v; ++i) acc[first + i] = state.run[r].acc[j * C.vector_v + i];
    }
    if (lane == 0) rows.statistics[warp * C.rows + r] = state.run[r].s;
  }
}

// By one warp: joins the warps' rows `r`, normalises, and writes the output or the partial.
template <Config C>
__device__ inline void finish_row(const LaunchArgs& args, const Piece& piece,
                                  const BlockRows<C>& rows, int r, int lane) {
  const QueryRow row = query_row<C>(piece.kv_head, piece.row_block, r);
  if (!row.exists) return;
  Statistics all = empty_statistics();
#pragma unroll
  for (int w = 0; w < C.warps; ++w) all = join(all, rows.statistics[w * C.rows + r]);
  const float scale = all.l == 0.0f ? 0.0f : reciprocal(all.l);
  float weight[C.warps];
#pragma unroll
  for (int w = 0; w < C.warps; ++w) {
    weight[w] = weight_of(rows.statistics[w * C.rows + r].m, all.m) * scale;
  }
  const i64 slot_row = piece.slot * C.rows + r;
  const i64 out = out_row<C>(args, piece.batch_row, row);
#pragma unroll 1
  for (int dim = lane; dim < C.dim_v; dim += 32) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C.warps; ++w) {
      sum += weight[w] * rows.acc[(w * C.rows + r) * C.dim_v + dim];
    }
    if (piece.pieces == 1) {
      store_scalar<C.out_dtype>(args.out, out + dim, sum);
    } else {
      args.partials[args.partial_o_offset + slot_row * C.dim_v + dim] = sum;
    }
  }
  if (lane != 0) return;
  if (piece.pieces == 1) {
    store_lse<C>(args, piece.batch_row, row, log2_sum(all));
  } else {
    store_statistics<C.merge>(args.partials, slot_row, all);
  }
}

template <Config C, class Score>
__device__ inline void split_one(const LaunchArgs& args, const Piece& piece, float* shared) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const BlockRows<C> rows(shared);
  {
    Simt<C> state;
    load_query(state, args, piece, shared, lane);
    add_tiles<C, Score>(state, args, piece);
    join_lane_groups(state);
    store_warp_rows(state, rows, warp, lane);
  }
  __syncthreads();
#pragma unroll 1
  for (int r = warp; r < C.rows; r += C.warps) finish_row<C>(args, piece, rows, r, lane);
  if constexpr (C.reduce == Reduce::last_block) {
    if (piece.pieces > 1 && arrive_last(args.arrivals + piece.sequence, piece.pieces, rows.flag)) {
      reduce_sequence<C, Score>(args, piece.sequence, C.warps);
    }
  }
  __syncthreads();  // shared memory is free for the next piece
}

// Entry: grid and shared memory as codegen/launch_shape.hpp says.
template <Config C, class Score>
__device__ inline void split(const LaunchArgs& args, float* shared) {
  const i64 block = blockIdx.x;
  Piece piece;
  if constexpr (C.partition == Partition::flat) {
    LineWalk<C, Score> walk(args, block, threadIdx.x % 32);
    while (walk.next(args, block, piece)) split_one<C, Score>(args, piece, shared);
  } else {
    if (split_piece<C, Score>(args, block, piece)) split_one<C, Score>(args, piece, shared);
  }
}

}  // namespace splitkv
