// The wgmma family's way of K and V into shared memory: a ring of stages, a stage holding a tile of
// 64 keys. A whole tile comes by tensor map, in several copies, each with a barrier, so that
// products begin before all of it is there; the tiles in which a row begins or ends come by
// asynchronous copies of 16 bytes, zeros in place of keys that do not count. How columns lie is in
// warp_group.cuh.
#pragma once

#include "copy_async.cuh"
#include "kv_walk.cuh"
#include "partition.cuh"
#include "tensor_copy.cuh"
#include "warp_group.cuh"

namespace splitkv {

constexpr int tile_keys = 64;
constexpr int group_lanes = 128;
constexpr int groups = 2;

// Columns that one copy brings of a row of so many.
__host__ __device__ constexpr int columns_of_a_copy(int columns) {
  int copied = 4;
  while (columns % copied != 0) --copied;
  return copied;
}

// Accumulators are a power of two of columns; where two groups hold more than there are, both hold
// some.
__host__ __device__ constexpr int half_of(int columns) {
  return power_of_two(ceil_div(columns, 2));
}

// Where the warps of a group meet.
__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(3 + group), "n"(group_lanes) : "memory");
}

// Where things lie in a block's shared memory: the query rows' columns, then the stages. A stage
// holds K's columns, V's where it has rows of its own, and a column of weights: where V has rows of
// its own in K's first, which has done its part by then, else in the first that is no part of V.
template <const Config& C>
struct WgmmaShape {
  static constexpr bool own_v = !C.v_in_k;
  static constexpr int columns_k = C.dim_qk / column_width;
  static constexpr int columns_v = C.dim_v / column_width;
  static constexpr int half_v = half_of(columns_v);  // that a group multiplies
  static constexpr int copied_k = columns_of_a_copy(columns_k);
  static constexpr int copied_v = columns_of_a_copy(columns_v);
  static constexpr int copies_k = columns_k / copied_k;
  static constexpr int copies_v = columns_v / copied_v;
  static constexpr int v_bytes = columns_v * column_bytes;
  static constexpr int v_offset = own_v ? columns_k * column_bytes : 0;
  static constexpr int weights_offset = own_v ? 0 : v_bytes;
  static constexpr int stage_columns =
      own_v ? columns_k + columns_v : larger(columns_k, columns_v + 1);
  static constexpr int stage_bytes = stage_columns * column_bytes;
  static constexpr int query_bytes = columns_k * column_bytes;
  static constexpr int loop_bytes = query_bytes + C.stages * stage_bytes;
  // Of a stage: a barrier of each copy of K, one of V, and one of the room it is.
  static constexpr int full = copies_k + (own_v ? 1 : 0);
  static constexpr int barriers = C.stages * (full + 1);
  // Floats after the barriers: the maxima of two tiles, sums of one group.
  static constexpr int exchanged = 3 * column_rows;
  static constexpr int barrier_bytes = 8 * barriers + 4 * exchanged;
  static_assert(C.dim_qk % column_width == 0 && C.dim_v % column_width == 0,
                "rows are whole columns");
  static_assert(C.dim_v <= 512, "a group's accumulators fit its registers");
  static_assert(C.tile_kv == tile_keys, "a tile is what a product takes");
  static_assert(C.page_size % tile_keys == 0, "a tile lies in one page");
  static_assert(C.warps == groups * group_lanes / 32, "a block is two warp groups");
};

// A tile's place in the ring, and the parity of its round.
template <const Config& C>
struct Ring {
  using Shape = WgmmaShape<C>;

  u32 stage;
  u32 parity;

  __device__ Ring next() const {
    return stage + 1 == C.stages ? Ring{0, parity ^ 1} : Ring{stage + 1, parity};
  }
  __device__ Ring after(u32 tiles) const {
    const u32 at = stage + tiles;
    return {at % C.stages, parity ^ (at / C.stages & 1)};
  }
  __device__ u32 rows(u32 shared) const {
    return shared + Shape::query_bytes + stage * Shape::stage_bytes;
  }
  // Of copy `part` of K; copies_k: of V.
  __device__ u32 filled(u32 barriers, u32 part) const {
    return barriers + 8 * (stage * (Shape::full + 1) + part);
  }
  __device__ u32 emptied(u32 barriers) const { return filled(barriers, Shape::full); }
};

// The tiles of a piece, all of which hold keys of the row.
template <const Config& C>
struct PieceTiles {
  i32 first_key;  // of the row
  i32 end_key;
  i32 first_tile;
  i32 tile_step;
  i32 count;

  __device__ explicit PieceTiles(const Piece& piece)
      : first_key(piece.row.first_key),
        end_key(piece.row.end_key),
        first_tile(piece.row.first_tile + piece.tile_begin),
        tile_step(piece.tile_step),
        count(ceil_div(larger(piece.tile_end - piece.tile_begin, 0), piece.tile_step)) {}

  __device__ i32 key_of(i32 tile) const { return (first_tile + tile * tile_step) * tile_keys; }
  __device__ bool counts(i32 key) const { return u32(key - first_key) < u32(end_key - first_key); }
  __device__ bool is_whole(i32 key) const { return key >= first_key && key + tile_keys <= end_key; }
};

// Fills stages: by a warp group. Two of them take turns: the one that left a tile another group
// scored asks for the tile that comes in its place.
template <const Config& C>
struct TileLoader {
  using Shape = WgmmaShape<C>;
  using Pages = typename KvWalk<C>::Pages;

  const LaunchArgs& args;
  const KvWalk<C> walk;
  const PieceTiles<C> tiles;
  const i32 kv_head;
  const u32 shared;
  const u32 barriers;
  const i32 group_lane;
  u32 unannounced;  // the first barrier of a stage that the lanes' copies are filling, or 0
  Pages pages;      // lane l holds those of tile l of the 32 that the next one is of
  Pages further;    // and of the 32 after them

  __device__ TileLoader(const LaunchArgs& launch, const Piece& piece, u32 memory, u32 all_barriers)
      : args(launch),
        walk(launch, piece.batch_row, piece.kv_head),
        tiles(piece),
        kv_head(piece.kv_head),
        shared(memory),
        barriers(all_barriers),
        group_lane(threadIdx.x % group_lanes),
        unannounced(0),
        pages(pages_from(0)),
        further(pages_from(32)) {}

  // Whether a group loads a tile.
  static __device__ bool loads(i32 group, i32 tile) {
    return (tile + C.stages + group) % groups != 0;
  }

  // Tile `tile` into its place, which both groups have left or will.
  __device__ void start(const Ring<C>& ring, i32 tile) {
    if (tile >= tiles.count) return;
    if (tile % 32 < groups && tile >= 32) {
      pages = further;
      further = pages_from(tile / 32 * 32 + 32);
    }
    Pages own = {__shfl_sync(all_lanes, pages.k, tile % 32), 0};
    own.v = C.separate_tables ? __shfl_sync(all_lanes, pages.v, tile % 32) : own.k;
    const i32 key = tiles.key_of(tile);
    const auto at = walk.place_in(args, own, key);
    if (tiles.is_whole(key) && at.readable) {
      if (group_lane == 0) {
        wait_phase(ring.emptied(barriers), ring.parity ^ 1);
        copy_tile(ring, at);
      }
      __syncwarp();
    } else {
      wait_phase(ring.emptied(barriers), ring.parity ^ 1);
      copy_keys(ring.rows(shared), key, at);
      unannounced = ring.filled(barriers, 0);
    }
  }

  // The lanes' copies are there, and products may read them; by the group, before it waits for a
  // tile that it loads.
  __device__ void announce() {
    if (unannounced == 0) return;
    wait_copies<0>();
    order_before_copies();
    sync_group(threadIdx.x / group_lanes);
    if (group_lane < Shape::full) arrive(unannounced + 8 * group_lane);
    unannounced = 0;
  }

 private:
  __device__ Pages pages_from(i32 first) const {
    const i32 tile = first + group_lane % 32;
    return C.page_size > 0 && tile < tiles.count ? walk.pages_of(tiles.key_of(tile)) : Pages{0, 0};
  }

  __device__ void copy_tile(const Ring<C>& ring, const typename KvWalk<C>::Place& at) const {
    const u32 rows = ring.rows(shared);
    const i32 k_block = C.page_size == 0 ? walk.batch_row : i32(at.k_block);
#pragma unroll 1
    for (int part = 0; part < Shape::copies_k; ++part) {
      constexpr int bytes = Shape::copied_k * column_bytes;
      const u32 barrier = ring.filled(barriers, part);
      arrive_expecting(barrier, bytes);
      copy_columns(rows + part * bytes, args.k_map, part * Shape::copied_k, i32(at.token), kv_head,
                   k_block, barrier);
    }
    if constexpr (Shape::own_v) {
      const i32 v_block = C.page_size == 0 ? walk.batch_row : i32(at.v_block);
      const u32 barrier = ring.filled(barriers, Shape::copies_k);
      arrive_expecting(barrier, Shape::v_bytes);
#pragma unroll 1
      for (int part = 0; part < Shape::copies_v; ++part) {
        constexpr int bytes = Shape::copied_v * column_bytes;
        copy_columns(rows + Shape::v_offset + part * bytes, args.v_map, part * Shape::copied_v,
                     i32(at.token), kv_head, v_block, barrier);
      }
    }
  }

  __device__ void copy_keys(u32 rows, i32 key, const typename KvWalk<C>::Place& at) const {
    const char* k = static_cast<const char*>(args.k);
    const char* v = static_cast<const char*>(args.v);
    if (at.readable) {
      k = walk.k_row(args, at);
      v = walk.v_row(args, at);
    }
    copy_rows<Shape::columns_k>(rows, k, args.k_stride_token * 2, key, at.readable);
    if constexpr (Shape::own_v) {
      copy_rows<Shape::columns_v>(rows + Shape::v_offset, v, args.v_stride_token * 2, key,
                                  at.readable);
    }
    commit_copies();
  }

  // 64 rows from even strides into columns.
  template <int Columns>
  __device__ void copy_rows(u32 to, const char* from, i64 stride, i32 key, bool readable) const {
    constexpr int chunks = Columns * (column_pitch / 16);
#pragma unroll 2
    for (int index = group_lane; index < tile_keys * chunks; index += group_lanes) {
      const u32 row = u32(index) / chunks;
      const u32 chunk = u32(index) % chunks;
      const u32 place = chunk / 8 * column_bytes + turned<column_pitch>(row, chunk % 8 * 16);
      copy_async<16>(to + place, from + row * stride + chunk * 16,
                     readable && tiles.counts(key + i32(row)));
    }
  }
};

}  // namespace splitkv
