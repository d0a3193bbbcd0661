// The wgmma split kernel: products of warp groups, sm_90a alone. A block takes 64 packed query rows
// (fewer are padded) and a tile of 64 keys at a time. Two warp groups divide V's columns, and take
// turns at the tiles' scores: the group whose tile it is multiplies S = q K^T, weighs, and writes
// the weights P into the tile's stage; then both do O += P V, each of its columns. While one group
// weighs its tile, the other multiplies. How tiles come is in tile_stage.cuh.
//
// Lane l of warp w of a group, g = l / 4 and t = l % 4, holds of rows 16 w + g and 8 more: scores
// of keys 8 j + 2 t and the next, accumulators of dims 8 j + 2 t and the next of the group's
// columns, the rows' maximum over all tiles, equal in both groups, and its own keys' share of the
// sum of weights of the group's own tiles.
#pragma once

#include "block_rows.cuh"
#include "queries.cuh"
#include "score_math.cuh"
#include "tile_stage.cuh"

namespace splitkv {

// Where a block's parts of shared memory lie.
struct WgmmaPlaces {
  u32 memory;    // queries, then stages
  u32 barriers;  // of the stages
  u32 maxima;    // floats [group][row]: of the last tile whose scores the group took
  u32 sums;      // floats [row]: of the second group
};

template <const Config& C>
struct WarpGroup {
  using Shape = WgmmaShape<C>;
  static constexpr int values = Shape::half_v * column_width / 2;

  int index;  // of the group
  int lane;
  int first_row;  // of the two that the lane holds, 8 apart
  float acc[values];
  float m[2];
  float l[2];

  __device__ WarpGroup()
      : index(__shfl_sync(all_lanes, threadIdx.x / group_lanes, 0)),
        lane(threadIdx.x % 32),
        first_row(threadIdx.x % group_lanes / 32 * 16 + threadIdx.x % 32 / 4) {
#pragma unroll
    for (int i = 0; i < values; ++i) acc[i] = 0.0f;
    m[0] = m[1] = negative_infinity();
    l[0] = l[1] = 0.0f;
  }

  // Of V's columns: the last half for the second group, which may hold some of the first.
  __device__ int first_column() const { return index == 0 ? 0 : Shape::columns_v - Shape::half_v; }

  __device__ void sync() const { sync_group(index); }
  // The weights of this group's tile are written; in the other group, until they are.
  __device__ void announce_weights() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + index), "n"(32 * C.warps) : "memory");
  }
  __device__ void await_weights() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + (index ^ 1)), "n"(32 * C.warps) : "memory");
  }

  // Moves both rows to maxima of at least m. Once maxima have settled, most tiles leave them.
  __device__ void raise(const float (&top)[2]) {
    const bool raised = top[0] != m[0] || top[1] != m[1];
    if (!__any_sync(all_lanes, raised)) return;
    const float factors[2] = {weight_of(m[0], top[0]), weight_of(m[1], top[1])};
#pragma unroll
    for (int i = 0; i < values; ++i) acc[i] *= factors[i / 2 % 2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m[r] = top[r];
      l[r] *= factors[r];
    }
  }
};

// Query rows into columns, by both groups; those beyond the block's last repeat it, and their
// scores are no one's. Chunks of 16 bytes, where they lie so.
template <const Config& C>
__device__ inline void store_queries(const LaunchArgs& args, const Piece& piece, u32 shared_q) {
  constexpr int chunks = C.dim_qk / 8;
  constexpr int latent = C.dim_qk - C.dim_rope;
#pragma unroll 2
  for (int index = threadIdx.x; index < column_rows * chunks; index += 32 * C.warps) {
    const int r = index / chunks;
    const int chunk = index % chunks;
    const QueryRow row =
        query_row<C>(piece.row, piece.kv_head, piece.row_block, smaller(r, C.rows - 1));
    const QueryPairs<C> pairs(args, piece.row, piece.batch_row, row);
    const u16* from = pairs.q + chunk * 8;
    if (C.dim_rope > 0 && chunk * 8 >= latent) from = pairs.q_rope + (chunk * 8 - latent);
    const u32 to = shared_q + chunk / 8 * column_bytes + turned<column_pitch>(r, chunk % 8 * 16);
    if (latent % 8 == 0 && reinterpret_cast<u64>(from) % 16 == 0) {
      copy_async<16>(to, from, true);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) store_shared(to + 4 * i, pairs(chunk * 4 + i));
    }
  }
  commit_copies();
  wait_copies<0>();
  order_before_copies();
  __syncthreads();
}

// S of the tile: started as its columns come.
template <const Config& C>
__device__ inline void multiply_keys(const WgmmaPlaces& at, const Ring<C>& ring,
                                     float (&scores)[tile_keys / 2]) {
  using Shape = WgmmaShape<C>;
#pragma unroll
  for (int i = 0; i < tile_keys / 2; ++i) scores[i] = 0.0f;
  settle(scores);
  const u64 q = operand_at(at.memory);
  const u64 k = operand_at(ring.rows(at.memory));
#pragma unroll 1
  for (int column = 0; column < Shape::columns_k; ++column) {
    if (column % Shape::copied_k == 0) {
      wait_phase(ring.filled(at.barriers, column / Shape::copied_k), ring.parity);
    }
    begin_products();  // at each turn of the loop: the compiler may move registers there
#pragma unroll
    for (int step = 0; step < column_width / 16; ++step) {
      const u32 bytes = column * column_bytes + step * 32;
      multiply_group<C.q_dtype, false>(scores, moved(q, bytes), moved(k, bytes));
    }
  }
  end_products();
}

// O += P V, of the group's columns.
template <const Config& C>
__device__ inline void multiply_values(WarpGroup<C>& group, const WgmmaPlaces& at,
                                       const Ring<C>& ring) {
  using Shape = WgmmaShape<C>;
  settle(group.acc);
  begin_products();
  const u32 stage = ring.rows(at.memory);
  const u64 weights = operand_at(stage + Shape::weights_offset);
  const u64 v = operand_at(stage + Shape::v_offset + group.first_column() * column_bytes);
#pragma unroll
  for (int step = 0; step < tile_keys / 16; ++step) {
    multiply_group<C.v_dtype, true>(group.acc, moved(weights, step * 32),
                                    moved(v, step * 16 * column_pitch));
  }
  end_products();
}

// Log2 scores from products, -inf where a key is masked.
template <const Config& C, class Score>
__device__ inline void score_tile(const WarpGroup<C>& group, const LaunchArgs& args,
                                  const Piece& piece, const PieceTiles<C>& tiles, i32 tile_key,
                                  float (&scores)[tile_keys / 2]) {
  const float k_scale = head_scale<C.k_scale>(args.k_scale, piece.kv_head);
  bool readable = true;
  if constexpr (C.checked && C.page_size > 0) {
    readable = KvWalk<C>(args, piece.batch_row, piece.kv_head).place(args, tile_key).readable;
  }
  QueryRow rows[2] = {};
  if constexpr (Score::asks_place) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows[r] = query_row<C>(piece.row, piece.kv_head, piece.row_block,
                             smaller(group.first_row + 8 * r, C.rows - 1));
    }
  }
#pragma unroll
  for (int i = 0; i < tile_keys / 2; ++i) {
    const i32 key = tile_key + i / 4 * 8 + 2 * (group.lane % 4) + i % 2;
    Coordinates at = {};
    if constexpr (Score::asks_place) {
      at = coordinates_of<C>(args, piece.row, piece.batch_row, rows[i / 2 % 2], key);
    }
    scores[i] = readable && tiles.counts(key) && Score::visible(at, args)
                    ? Score::log2_score(scores[i] * k_scale, at, args)
                    : negative_infinity();
  }
}

// The rows' maxima with the tile's.
template <const Config& C>
__device__ inline void maxima_with(const WarpGroup<C>& group, const float (&scores)[tile_keys / 2],
                                   float (&top)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = group.m[r];
#pragma unroll
  for (int i = 0; i < tile_keys / 2; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(all_lanes, top[r], offset));
    }
  }
}

// Weights against the maxima `top` go to where both groups read them, the maxima too; `sums` are
// what the lane's keys weigh. A row without keys so far weighs with 0, never with NaN.
template <const Config& C>
__device__ inline void publish_weights(const WarpGroup<C>& group, const WgmmaPlaces& at,
                                       const Ring<C>& ring, const float (&top)[2],
                                       float (&scores)[tile_keys / 2], float (&sums)[2]) {
  sums[0] = sums[1] = 0.0f;
#pragma unroll
  for (int i = 0; i < tile_keys / 2; ++i) {
    scores[i] = exp2(scores[i] - finite_top(top[i / 2 % 2]));
    sums[i / 2 % 2] += scores[i];
  }
  group.sync();  // all its warps' products have read what the weights take the place of
  const u32 column = ring.rows(at.memory) + WgmmaShape<C>::weights_offset;
  const int t = group.lane % 4;
#pragma unroll
  for (int i = 0; i < tile_keys / 2; i += 2) {
    const u32 row = group.first_row + i / 2 % 2 * 8;
    store_shared(column + turned<column_pitch>(row, i / 4 * 16 + 4 * t),
                 pack_two<C.v_dtype>(scores[i], scores[i + 1]));
  }
  if (t == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 row = group.index * column_rows + group.first_row + 8 * r;
      store_shared(at.maxima + 4 * row, __float_as_uint(top[r]));
    }
  }
  order_before_copies();
  group.announce_weights();
  group.sync();
}

// The group is done with a stage; each of its warps says so.
template <const Config& C>
__device__ inline void leave(const WarpGroup<C>& group, const WgmmaPlaces& at,
                             const Ring<C>& ring) {
  if (group.lane == 0) arrive(ring.emptied(at.barriers));
  __syncwarp();
}

// The maxima with a tile of the other group's, whose weights are there then.
template <const Config& C>
__device__ inline void await_others(const WarpGroup<C>& group, const WgmmaPlaces& at,
                                    const Ring<C>& ring, float (&top)[2]) {
#pragma unroll 1
  for (int part = 0; part < WgmmaShape<C>::full; ++part) {
    wait_phase(ring.filled(at.barriers, part), ring.parity);
  }
  group.await_weights();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const u32 row = (group.index ^ 1) * column_rows + group.first_row + 8 * r;
    top[r] = load_shared_float(at.maxima + 4 * row);
  }
}

// The maxima with a tile of the group's own, whose weights both groups find then.
template <const Config& C, class Score>
__device__ inline void weigh_own(const WarpGroup<C>& group, TileLoader<C>& loader,
                                 const LaunchArgs& args, const Piece& piece, const WgmmaPlaces& at,
                                 const Ring<C>& ring, i32 tile, float (&top)[2], float (&sums)[2]) {
  float scores[tile_keys / 2];
  multiply_keys(at, ring, scores);
  wait_products<0>();
  settle(scores);
  loader.announce();
  score_tile<C, Score>(group, args, piece, loader.tiles, loader.tiles.key_of(tile), scores);
  maxima_with(group, scores, top);
  publish_weights(group, at, ring, top, scores, sums);
  if constexpr (WgmmaShape<C>::own_v) {
    wait_phase(ring.filled(at.barriers, WgmmaShape<C>::copies_k), ring.parity);
  }
}

// Both groups' share of asking for the tiles that the empty ring has room for.
template <const Config& C>
__device__ inline void start_tiles(TileLoader<C>& loader, i32 group, Ring<C> ring) {
#pragma unroll 1
  for (i32 tile = 0; tile < C.stages; ++tile) {
    if (loader.loads(group, tile)) loader.start(ring, tile);
    ring = ring.next();
  }
}

// All tiles of the piece. A tile's room is given up as soon as its values have been added, and by
// the group that did not score it, who is the later one, the tile in its place is asked for.
template <const Config& C, class Score>
__device__ inline void add_tiles(WarpGroup<C>& group, TileLoader<C>& loader, const LaunchArgs& args,
                                 const Piece& piece, const WgmmaPlaces& at, Ring<C> ring) {
  const i32 count = __shfl_sync(all_lanes, loader.tiles.count, 0);
#pragma unroll 1
  for (i32 tile = 0; tile < count; ++tile) {
    const bool is_own = tile % groups == group.index;
    float top[2];
    float sums[2] = {0.0f, 0.0f};
    if (is_own) {
      weigh_own<C, Score>(group, loader, args, piece, at, ring, tile, top, sums);
    } else {
      await_others(group, at, ring, top);
    }
    group.raise(top);
#pragma unroll
    for (int r = 0; r < 2; ++r) group.l[r] += sums[r];
    multiply_values(group, at, ring);
    wait_products<0>();
    settle(group.acc);
    leave(group, at, ring);
    if (!is_own) loader.start(ring.after(C.stages), tile + C.stages);
    ring = ring.next();
  }
}

// Sums over the lanes of a row; those of the second group go where the first finds them.
template <const Config& C>
__device__ inline void share_sums(WarpGroup<C>& group, const WgmmaPlaces& at) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) {
      group.l[r] += __shfl_xor_sync(all_lanes, group.l[r], offset);
    }
    if (group.index == 1 && group.lane % 4 == 0) {
      store_shared(at.sums + 4 * (group.first_row + 8 * r), __float_as_uint(group.l[r]));
    }
  }
}

template <const Config& C>
__device__ inline void store_group_rows(const WarpGroup<C>& group, const WgmmaPlaces& at,
                                        const BlockRows<C>& rows) {
  using Shape = WgmmaShape<C>;
  const int t = group.lane % 4;
  const int first_dim = group.first_column() * column_width;
  const int own_dim = group.index * (Shape::half_v * column_width);  // before it the other's
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = group.first_row + 8 * r;
    if (row >= C.rows) continue;
    if (group.index == 0 && t == 0) {
      rows.statistics[row] = {group.m[r], group.l[r] + load_shared_float(at.sums + 4 * row)};
    }
    float* acc = rows.row(0, row);
#pragma unroll
    for (int j = 0; j < WarpGroup<C>::values / 4; ++j) {
      const int dim = first_dim + 8 * j + 2 * t;
      if (dim < own_dim) continue;
      *reinterpret_cast<float2*>(acc + dim) = {group.acc[4 * j + 2 * r],
                                               group.acc[4 * j + 2 * r + 1]};
    }
  }
}

// Shared memory of a block: queries and stages, then, in the same place, the block's rows; what the
// blocks of a cluster give each other; barriers, and what groups exchange.
template <const Config& C>
struct WgmmaMemory {
  static constexpr int own_bytes = larger(WgmmaShape<C>::loop_bytes, BlockRows<C>::bytes);
  static constexpr int barriers = own_bytes + ceil_div(ClusterRows<C>::bytes, 8) * 8;
  static constexpr int bytes = barriers + WgmmaShape<C>::barrier_bytes;

  static __device__ WgmmaPlaces places(float* shared) {
    const u32 memory = shared_address(shared);
    const u32 maxima = memory + barriers + 8 * WgmmaShape<C>::barriers;
    return {memory, memory + barriers, maxima, maxima + 4 * groups * column_rows};
  }
};

// By one thread, once for all pieces: rounds of the ring go on from piece to piece.
template <const Config& C>
__device__ inline void start_ring(const WgmmaPlaces& at) {
  using Shape = WgmmaShape<C>;
#pragma unroll 1
  for (int i = 0; i < Shape::barriers; ++i) {
    const bool is_filled = i % (Shape::full + 1) != Shape::full;
    start_barrier(at.barriers + 8 * i, is_filled ? 1 : C.warps);
  }
  publish_barriers();
}

// Entry: grid and shared memory as codegen/launch_shape.hpp says.
template <const Config& C, class Score>
__device__ inline void split_wgmma(const LaunchArgs& args, float* shared) {
  using Memory = WgmmaMemory<C>;
  const WgmmaPlaces at = Memory::places(shared);
  if (threadIdx.x == 0) start_ring<C>(at);
  if (threadIdx.x == 32) prefetch(args.k_map);
  if (threadIdx.x == 64 && !C.v_in_k) prefetch(args.v_map);
  __syncthreads();
  Ring<C> ring = {0, 0};
  for_each_piece<C, Score>(args, [&](const Piece& piece) {
    const BlockRows<C> rows(shared, Memory::own_bytes, shared_v_scale<C>(args, piece.kv_head));
    if constexpr (C.partition == Partition::flat) {
      order_before_copies();  // the rows of the piece before
      __syncthreads();
    }
    {
      WarpGroup<C> group;
      TileLoader<C> loader(args, piece, at.memory, at.barriers);
      start_tiles(loader, group.index, ring);
      store_queries<C>(args, piece, at.memory);
      loader.announce();
      add_tiles<C, Score>(group, loader, args, piece, at, ring);
      share_sums(group, at);
      ring = ring.after(loader.tiles.count);
      __syncthreads();  // queries and stages make room for the block's rows
      store_group_rows(group, at, rows);
    }
    finish_piece<C, Score>(args, piece, rows);
  });
}

}  // namespace splitkv
