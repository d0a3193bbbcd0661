// The simt split kernel: fused multiply-adds in registers, no tensor cores, every architecture.
//
// A block holds `rows` query rows of one kv head. A lane group of `lanes` lanes holds one key at a
// time: lane i of it holds vectors i, i + lanes, ... of the key's row, and of every query row and
// accumulator. Keys of a tile are dealt to the block's lane groups in turn, `unroll` at a time, so
// that neighbouring lane groups read neighbouring rows; the loads of all `unroll` keys, K and V,
// are issued before the first is used. Lane groups keep separate running rows, joined once at the
// end: over the warp by shuffles, over the block through shared memory.
#pragma once

#include "block_rows.cuh"
#include "coordinates.cuh"
#include "kv_walk.cuh"
#include "lane_sums.cuh"
#include "queries.cuh"
#include "score_math.cuh"
#include "softmax.cuh"

namespace splitkv {

template <const Config& C>
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
// rolled loop compiles faster than a lane's own scattered loads.
template <const Config& C>
__device__ inline void load_query(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                  float* shared, int lane) {
#pragma unroll 1
  for (int i = threadIdx.x; i < C.rows * C.dim_qk; i += 32 * C.warps) {
    const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, i / C.dim_qk);
    shared[i] = query_element<C>(args, piece.row, piece.batch_row, row, i % C.dim_qk);
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

  __device__ void clear() {
#pragma unroll
    for (Raw<Bytes>& vector : raw) vector = zero_raw<Bytes>();
  }
};

// Moves every row to the maximum that `scores` [rows][unroll] bring. One branch for all rows: once
// the maxima have settled, most steps leave all of them as they are.
template <const Config& C>
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

// The keys that a step of one lane group adds: where they lie, and their scales.
template <const Config& C>
struct StepKeys {
  KeySlice<Simt<C>::bytes_k, Simt<C>::loads_k> k[C.unroll];
  KeySlice<Simt<C>::bytes_v, Simt<C>::loads_v> v[C.unroll];
  float k_scale[C.unroll];
  float v_scale[C.unroll];
  u32 readable;  // bit u: a checked kernel may read key u

  // Keys start, start + groups, ... Where one is not below `end`, the last key is loaded instead.
  __device__ void load(const LaunchArgs& args, const KvWalk<C>& walk, i32 start, i32 end,
                       int lane) {
    readable = all_lanes;
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) {
      const auto at = walk.place(args, smaller(start + u * Simt<C>::groups, end - 1));
      if (C.checked && !at.readable) {
        readable &= ~(1u << u);
        k[u].clear();
        v[u].clear();
        k_scale[u] = v_scale[u] = 0.0f;
        continue;
      }
      k[u].template load<C.lanes, C.dim_qk>(walk.k_row(args, at), size_bytes(C.k_dtype), lane);
      v[u].template load<C.lanes, C.dim_v>(walk.v_row(args, at), size_bytes(C.v_dtype), lane);
      if constexpr (has_key_scale(C.k_scale)) k_scale[u] = *walk.k_scale(args, at);
      if constexpr (has_key_scale(C.v_scale)) v_scale[u] = *walk.v_scale(args, at);
    }
  }
};

// Scores of all rows and the step's keys, -inf where a key is masked: score r * unroll + u.
template <const Config& C, class Score>
__device__ inline void score_keys(const Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                  const StepKeys<C>& keys, i32 start, i32 end, float k_scale,
                                  int lane, ScoreReal<C> (&score)[C.rows * C.unroll]) {
  using Real = ScoreReal<C>;
  LaneSums<Real, C.rows * C.unroll, C.lanes> dots;
#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
#pragma unroll
    for (int r = 0; r < C.rows; ++r) dots.values[r * C.unroll + u] = Real(0);
#pragma unroll
    for (int i = 0; i < C.slice_qk; ++i) {
      const Real key_element = element<C.k_dtype>(keys.k[u].raw[i / C.vector_k], i % C.vector_k);
#pragma unroll
      for (int r = 0; r < C.rows; ++r) {
        Real& dot = dots.values[r * C.unroll + u];
        dot = fma(Real(state.q[r][i]), key_element, dot);
      }
    }
    if constexpr (has_key_scale(C.k_scale)) {
#pragma unroll
      for (int r = 0; r < C.rows; ++r) dots.values[r * C.unroll + u] *= keys.k_scale[u];
    }
  }
  const int first = dots.scatter(lane);
#pragma unroll
  for (int i = 0; i < dots.held(); ++i) {
    const int index = smaller(first + i, C.rows * C.unroll - 1);  // padding repeats the last
    const i32 key = start + index % C.unroll * Simt<C>::groups;
    Coordinates at = {};
    if constexpr (Score::asks_place) {
      const QueryRow row =
          query_row<C>(piece.row, piece.kv_head, piece.row_block, index / C.unroll);
      at = coordinates_of<C>(args, piece.row, piece.batch_row, row, key);
    }
    const bool readable = !C.checked || (keys.readable >> index % C.unroll & 1) != 0;
    const bool visible = key < end && readable && Score::visible(at, args);
    dots.values[i] = visible ? settled(Score::log2_score(dots.values[i] * Real(k_scale), at, args))
                             : Real(negative_infinity());
  }
  dots.gather(score, lane - lane % C.lanes);
}

// Keys start, start + groups, ... of this lane group, `unroll` of them, those below `end`.
template <const Config& C, class Score>
__device__ inline void add_keys(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                const KvWalk<C>& walk, i32 start, i32 end, float k_scale,
                                int lane) {
  StepKeys<C> keys;
  keys.load(args, walk, start, end, lane);
  ScoreReal<C> score[C.rows * C.unroll];
  score_keys<C, Score>(state, args, piece, keys, start, end, k_scale, lane, score);
  raise_maxima<C>(state, score);
  float weight[C.rows * C.unroll];
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    const ScoreReal<C> origin = state.run[r].origin();
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) {
      const int index = r * C.unroll + u;
      weight[index] = exp2(float(score[index] - origin));
      state.run[r].s.l += weight[index];
      if constexpr (has_key_scale(C.v_scale)) weight[index] *= keys.v_scale[u];
    }
  }

#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
#pragma unroll
    for (int i = 0; i < C.slice_v; ++i) {
      const float value = element<C.v_dtype>(keys.v[u].raw[i / C.vector_v], i % C.vector_v);
#pragma unroll
      for (int r = 0; r < C.rows; ++r) {
        state.run[r].acc[i] = fmaf(weight[r * C.unroll + u], value, state.run[r].acc[i]);
      }
    }
  }
}

template <const Config& C, class Score>
__device__ inline void add_tiles(Simt<C>& state, const LaunchArgs& args, const Piece& piece) {
  using S = Simt<C>;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const KvWalk<C> walk(args, piece.batch_row, piece.kv_head);
  const float k_scale = head_scale<C.k_scale>(args.k_scale, piece.kv_head);
  constexpr int keys_per_step = C.warps * S::groups * C.unroll;
#pragma unroll 1
  for (i32 tile = piece.tile_begin; tile < piece.tile_end; tile += piece.tile_step) {
    const i32 tile_key = (piece.row.first_tile + tile) * C.tile_kv;
    const i32 begin = larger(tile_key, piece.row.first_key);
    const i32 end = smaller(tile_key + C.tile_kv, piece.row.end_key);
    const i32 offset = warp * (S::groups * C.unroll) + lane / C.lanes;
#pragma unroll 1
    for (i32 base = begin; base < end; base += keys_per_step) {
      add_keys<C, Score>(state, args, piece, walk, base + offset, end, k_scale, lane);
    }
  }
}

// Joins the lane groups of a warp: afterwards every lane group holds the warp's running rows.
template <const Config& C>
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

template <const Config& C>
__device__ inline void store_warp_rows(const Simt<C>& state, const BlockRows<C>& rows, int warp,
                                       int lane) {
  if (lane >= C.lanes) return;
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    float* acc = rows.row(warp, r);
#pragma unroll
    for (int j = 0; j < Simt<C>::loads_v; ++j) {
      const int first = slice_dim(lane, j * C.vector_v, C.lanes, C.vector_v);
      if (C.lanes * C.slice_v != C.dim_v && first >= C.dim_v) continue;
#pragma unroll
      for (int i = 0; i < C.vector_v; ++i) {
        acc[first + i] = state.run[r].acc[j * C.vector_v + i];
      }
    }
    if (lane == 0) rows.statistics[warp * C.rows + r] = state.run[r].s;
  }
}

// Shared memory of a block: first the query rows, [rows][dim_qk] floats, then the warps' rows.
template <const Config& C>
struct SimtMemory {
  static constexpr int own_bytes = larger(ceil_div(C.rows * C.dim_qk, 4) * 16, BlockRows<C>::bytes);
  static constexpr int bytes = own_bytes + ClusterRows<C>::bytes;
};

// Entry: grid and shared memory as codegen/launch_shape.hpp says.
template <const Config& C, class Score>
__device__ inline void split_simt(const LaunchArgs& args, float* shared) {
  for_each_piece<C, Score>(args, [&](const Piece& piece) {
    const int lane = threadIdx.x % 32;
    const BlockRows<C> rows(shared, SimtMemory<C>::own_bytes,
                            shared_v_scale<C>(args, piece.kv_head));
    {
      Simt<C> state;
      load_query(state, args, piece, shared, lane);
      add_tiles<C, Score>(state, args, piece);
      join_lane_groups(state);
      store_warp_rows(state, rows, threadIdx.x / 32, lane);
    }
    finish_piece<C, Score>(args, piece, rows);
  });
}

}  // namespace splitkv
