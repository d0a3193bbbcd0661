// How a kernel pair is launched and how its scratch and state are laid out; shared by the emitters,
// which write code that follows it, and by the runtime, which obeys it.
//
// Sequence: one (batch row, kv head, row block), numbered
//   seq = (batch_row * kv_heads + kv_head) * row_blocks + row_block.
// Row r of row block b is query row b * rows + r of the group; query row x is query x / group_size,
// head kv_head * group_size + x % group_size. Rows of queries that a ragged batch row lacks do not
// exist.
//
// Tiles: the key interval of a row, [first, end), holds every key that any of its queries sees
// (compiler/score.hpp, key_interval_of; kv_begin and kv_len cut it). Its tiles are the absolute
// tiles [first / tile_kv, ceil(end / tile_kv)), `tiles` many, 0 where the interval is empty.
//
// fixed, strided: grid = sequences * splits, block = seq * splits + s. `active` = min(splits,
//   max(1, tiles)) pieces take part, the others leave at once. Piece s takes tiles
//   [s * tiles / active, (s + 1) * tiles / active) (fixed) or s, s + active, ... (strided), counted
//   from the first tile. Its partial slot is block.
// flat: grid = blocks. A sequence owns max(1, tiles) units; all units in sequence order form a line
//   of `total` units. used = min(blocks, total) blocks take part, so that none is without a unit,
//   the others leave at once; block b takes units [b * total / used, (b + 1) * total / used). A
//   sequence whose units lie in one block has one piece. Its partial slot in block b is 2 b when
//   the sequence starts at or before the block's first unit, else 2 b + 1. Unit u belongs to block
//   ((u + 1) * used - 1) / total.
//
// A sequence with one piece is finished by its block: output written, no partial. Otherwise every
// piece writes a partial, and the reduce kernel (on CUDA a warp a row, at most four rows a block;
// on the CPU block = seq) or the last arriving block joins them in slot order. Arrival counters are
// set back to zero by the last arriver.
//
// reduce=cluster (fixed, strided): there is no reduce kernel. The blocks of cluster k of a
// sequence,
//   k < splits / cluster, hold its pieces k * cluster ... k * cluster + cluster - 1;
//   ceil(active / cluster) clusters take part. A cluster joins its pieces through shared memory,
//   block b of it slice b of the rows' outputs. Where one cluster takes part, that is the result.
//   With more, the slot of cluster k is seq * (splits / cluster) + k, and the last block to arrive
//   at counter seq * cluster + b joins slice b of the slots, in slot order, and writes it.
//
// Scratch (floats): statistics [slots][cluster][rows][2 (m, l) or 1 (S)], with clusters a set for
// each slice, then, at partial_o_offset, o [slots][rows][dim_v], normalised, of the schedule's
// partial_dtype. m and S are in log2 units (natural * log2 e).
#pragma once

#include <cstdint>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"

namespace splitkv {

// loads=tensor: how rows of K or V are cut for the copy engine.
struct TensorBox {
  int element_bytes = 0;
  int column = 0;   // elements of a column
  int columns = 0;  // of a row; 0: no tensor map is needed
  int heads = 0;
  int copied_keys = 0;     // that one copy brings
  int copied_columns = 0;  // of each of them

  bool operator==(const TensorBox&) const = default;
};

struct LaunchShape {
  int64_t sequences = 0;      // batch * kv_heads * row_blocks
  int64_t split_blocks = 0;   // grid.x of the split kernel
  int64_t reduce_blocks = 0;  // grid.x of the reduce kernel; 0 when there is none
  int split_threads = 0;      // 1 on the CPU
  int reduce_threads = 0;
  int64_t split_smem_bytes = 0;
  int cluster = 1;   // blocks of a cluster; the code says so itself
  bool pdl = false;  // both kernels are launched with programmatic stream serialization
  TensorBox k_box;
  TensorBox v_box;

  bool operator==(const LaunchShape&) const = default;
};

struct BufferSizes {
  int64_t scratch_bytes = 0;
  int64_t state_bytes = 0;       // 0 with reduce=kernel
  int64_t partial_o_offset = 0;  // floats; a multiple of 4

  bool operator==(const BufferSizes&) const = default;
};

LaunchShape launch_shape(const Problem& problem, const Schedule& schedule, int64_t batch);
BufferSizes buffer_sizes(const Problem& problem, const Schedule& schedule, int64_t batch);

}  // namespace splitkv
