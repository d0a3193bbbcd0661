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
#include "softmax.cuh"

namespace splitkv {

template <Config C>
struct Simt {
  static constexpr int groups = 32 / C.lanes;  // of a warp
  static constexpr int bytes_k = C.vector_k * size_bytes(C.k_dtype);
  static constexpr int bytes_v = C.vector_v * size_bytes(C.v_dtype);
  static constexpr int loads_k = C.slice_qk / C.vector_k;
  static constexpr int loads_v = C.slice_v / C.vector_v;
  static constexpr int row_floats = C.dim_v + 2;  // acc, m, l in shared memory

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

template <Config C>
__device__ inline void load_query(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                  int lane) {
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    const QueryRow row = query_row<C>(piece.kv_head, piece.row_block, r);
    const i64 start = piece.batch_row * args.q_stride_batch + row.query * args.q_stride_query +
                      row.q_head * args.q_stride_head;
#pragma unroll
    for (int i = 0; i < C.slice_qk; ++i) {
      const int dim = slice_dim(lane % C.lanes, i, C.lanes, C.vector_k);
      const bool inside = row.exists && dim < C.dim_qk;
      state.q[r][i] = inside ? load_scalar<C.q_dtype>(args.q, start + dim) : 0.0f;
    }
    state.run[r].clear();
  }
}

// One lane's vectors of one key's row; absent where the key or the vector is.
template <int Bytes, int Loads>
struct KeySlice {
  Raw<Bytes> raw[Loads];

  template <Config C>
  __device__ void load(const void* base, i64 row, int vector, int dim, int element_bytes,
                       bool present, int lane) {
#pragma unroll
    for (int j = 0; j < Loads; ++j) {
      const int first = (j * C.lanes + lane % C.lanes) * vector;
      if (present && first < dim) {
        raw[j] = load_global<Bytes>(static_cast<const char*>(base) + (row + first) * element_bytes);
      } else {
        raw[j] = zero_raw<Bytes>();
      }
    }
  }
};

// Keys start, start + groups, ... of this lane group, `unroll` of them, those below `end` present.
template <Config C, class Score>
__device__ inline void add_keys(Simt<C>& state, const LaunchArgs& args, const Piece& piece,
                                const KvWalk<C>& walk, i32 start, i32 end, int lane) {
  using S = Simt<C>;
  KeySlice<S::bytes_k, S::loads_k> k[C.unroll];
  KeySlice<S::bytes_v, S::loads_v> v[C.unroll];
#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
    const i32 key = start + u * S::groups;
    const bool present = key < end;
    const auto at = walk.place(present ? key : end - 1);
    k[u].template load<C>(args.k, walk.k_row(args, at), C.vector_k, C.dim_qk, size_bytes(C.k_dtype),
                          present, lane);
    v[u].template load<C>(args.v, walk.v_row(args, at), C.vector_v, C.dim_v, size_bytes(C.v_dtype),
                          present, lane);
  }

  // Value r * unroll + u is the score of row r and key u.
  LaneSums<C.rows * C.unroll, C.lanes> dots;
#pragma unroll
  for (int u = 0; u < C.unroll; ++u) {
#pragma unroll
    for (int r = 0; r < C.rows; ++r) dots.values[r * C.unroll + u] = 0.0f;
#pragma unroll
    for (int i = 0; i < C.slice_qk; ++i) {
      const float key_element = element<C.k_dtype>(k[u].raw[i / C.vector_k], i % C.vector_k);
#pragma unroll
      for (int r = 0; r < C.rows; ++r) {
        float& dot = dots.values[r * C.unroll + u];
        dot = fmaf(state.q[r][i], key_element, dot);
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
    dots.values[i] = visible ? Score::log2_score(dots.values[i], at) : negative_infinity();
  }

  float weight[C.rows * C.unroll];
  dots.gather(weight, lane - lane % C.lanes);
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    float top = negative_infinity();
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) {
      top = fmaxf(top, weight[r * C.unroll + u]);
    }
    const float origin = state.run[r].raise_to(top);
#pragma unroll
    for (int u = 0; u < C.unroll; ++u) {
      float& w = weight[r * C.unroll + u];
      w = exp2(w - origin);
      state.run[r].s.l += w;
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
  for (i32 tile = piece.tile_begin; tile < piece.tile_end; tile += piece.tile_step) {
    const i32 tile_key = (piece.row.first_tile + tile) * C.tile_kv;
    const i32 begin = larger(tile_key, piece.row.first_key);
    const i32 end = smaller(tile_key + C.tile_kv, piece.row.kv_len);
    const i32 offset = warp * (S::groups * C.unroll) + lane / C.lanes;
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

// Shared memory: [warps][rows][dim_v + 2].
template <Config C>
__device__ inline void store_warp_rows(const Simt<C>& state, float* shared, int warp, int lane) {
  if (lane >= C.lanes) return;
#pragma unroll
  for (int r = 0; r < C.rows; ++r) {
    float* row = shared + (warp * C.rows + r) * Simt<C>::row_floats;
#pragma unroll
    for (int i = 0; i < C.slice_v; ++i) {
      const int dim = slice_dim(lane, i, C.lanes, C.vector_v);
      if (dim < C.dim_v) row[dim] = state.run[r].acc[i];
    }
    if (lane == 0) {
      row[C.dim_v] = state.run[r].s.m;
      row[C.dim_v + 1] = state.run[r].s.l;
    }
  }
}

// By one warp: joins the warps' rows `r`, normalises, and writes the output or the partial.
template <Config C>
__device__ inline void finish_row(const LaunchArgs& args, const Piece& piece, const float* shared,
                                  int r, int lane) {
  const QueryRow row = query_row<C>(piece.kv_head, piece.row_block, r);
  if (!row.exists) return;
  const float* rows = shared + r * Simt<C>::row_floats;
  constexpr int next_warp = C.rows * Simt<C>::row_floats;
  Statistics all = empty_statistics();
#pragma unroll
  for (int w = 0; w < C.warps; ++w) {
    const float* s = rows + w * next_warp + C.dim_v;
    all = join(all, {s[0], s[1]});
  }
  const float scale = all.l == 0.0f ? 0.0f : 1.0f / all.l;
  const i64 slot_row = piece.slot * C.rows + r;
  const i64 out = out_row<C>(args, piece.batch_row, row);
#pragma unroll 1
  for (int dim = lane; dim < C.dim_v; dim += 32) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C.warps; ++w) {
      const float* source = rows + w * next_warp;
      sum += weight_of(source[C.dim_v], all.m) * source[dim];
    }
    if (piece.pieces == 1) {
      store_scalar<C.out_dtype>(args.out, out + dim, sum * scale);
    } else {
      args.partials[args.partial_o_offset + slot_row * C.dim_v + dim] = sum * scale;
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
  {
    Simt<C> state;
    load_query(state, args, piece, lane);
    add_tiles<C, Score>(state, args, piece);
    join_lane_groups(state);
    store_warp_rows(state, shared, warp, lane);
  }
  __syncthreads();
  for (int r = warp; r < C.rows; r += C.warps) finish_row<C>(args, piece, shared, r, lane);
  if constexpr (C.reduce == Reduce::last_block) {
    u32* flag = reinterpret_cast<u32*>(shared + C.warps * C.rows * Simt<C>::row_floats);
    if (piece.pieces > 1 && arrive_last(args.arrivals + piece.sequence, piece.pieces, flag)) {
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
