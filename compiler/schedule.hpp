// Schedule: how a problem is run on a target. Two schedules of one problem give the same result
// within the accuracy contract; they differ in speed only.
#pragma once

#include "compiler/arithmetic.hpp"
#include "compiler/problem.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// simt: CUDA, plain fused multiply-adds, every architecture from sm_80 up.
// mma: CUDA, tensor cores (m16n8k16 with K as the 16-row operand), 16-bit q, 16-bit or 8-bit K and
// V. wgmma: CUDA, products of warp groups (sm_90a alone), one 16-bit type. vector: CPU, LLVM
// vectors.
enum class Family { simt, mma, wgmma, vector };

// How the KV tiles of a sequence (one batch row, kv head and row block) are dealt out.
enum class Partition {
  fixed,    // `splits` contiguous ranges of the row's own tiles
  flat,     // all tiles of all sequences in one line, cut evenly among `blocks` blocks
  strided,  // `splits` streams; stream s takes tiles s, s + splits, s + 2 splits, ...
};

// The way of K and V into shared memory, of the mma family; wgmma takes `tensor` alone.
enum class Loads {
  copy,    // asynchronous copies of up to 16 bytes, by all lanes: any layout
  tensor,  // sm_90 and newer: copies by tensor map of a step of 16 keys, or of a tile (wgmma);
           // those in which a row begins or ends are copied as above
};

// Who joins the partials of a sequence.
enum class Reduce {
  kernel,      // a second launch
  last_block,  // the block that arrives last at the sequence's counter
  cluster,     // CUDA: the blocks of a cluster through their shared memory; where a sequence has
               // several clusters, the last arriving block of each slice joins what they wrote
};

struct Schedule {
  Family family = Family::simt;
  int tile_kv = 64;   // keys in a tile, the unit that partitions deal out
  int rows = 4;       // query rows (heads of one group) a block holds; a group makes
                      // ceil(group_size / rows) row blocks, each of which reads K and V
  int warps = 4;      // warps a block; each takes its own keys of a tile, or
                      // shares them with row_warps - 1 others. wgmma: 8, all of which share them.
                      // vector: 1
  int row_warps = 1;  // mma: warps that take the same keys and divide the block's rows
  int unroll = 4;     // keys whose K and V are in flight at once, per lane group (simt) or loop
                      // (vector); mma, wgmma: 1
  int stages = 1;     // mma: steps of 16 keys whose loads a stream has in flight; wgmma: tiles;
                      // others: 1
  Loads loads = Loads::copy;
  Partition partition = Partition::fixed;
  int splits = 1;  // fixed, strided: pieces a sequence; a launch-time value, not in the code
  int blocks = 0;  // flat: blocks of the grid; a launch-time value, not in the code
  Reduce reduce = Reduce::kernel;
  int cluster = 1;                    // reduce=cluster: blocks of a cluster; others: 1
  DType partial_dtype = DType::fp32;  // of the outputs in exchanged partials; statistics are fp32
  Merge merge = Merge::automatic;     // the choice where the problem says auto; auto here means mlo
  bool pdl = false;  // CUDA: kernels are launched before what precedes them in the stream has
                     // ended, and wait for that themselves (programmatic dependent launch)

  bool operator==(const Schedule&) const = default;
};

// The variant that kernels of this pair exchange: the problem's word, else the schedule's, else
// mlo.
constexpr Merge exchanged_merge(const Problem& problem, const Schedule& schedule) {
  if (problem.merge != Merge::automatic) return problem.merge;
  return schedule.merge != Merge::automatic ? schedule.merge : Merge::mlo;
}

// Partials that a sequence of a fixed or strided partition can have: one of each piece, or of each
// cluster of pieces (`cluster` divides `splits`, and is 1 without clusters).
constexpr int partials_of_sequence(const Schedule& schedule) {
  return schedule.splits / schedule.cluster;
}

// Whether any sequence can have two or more partials. One alone is finished where it is made.
constexpr bool exchanges_partials(const Schedule& schedule) {
  return (schedule.partition == Partition::flat ? schedule.blocks
                                                : partials_of_sequence(schedule)) > 1;
}

// Warps, or groups of row_warps of them, that take keys of their own.
constexpr int streams(const Schedule& schedule) {
  return schedule.family == Family::wgmma ? 1 : schedule.warps / schedule.row_warps;
}

// Row blocks a group is divided into.
constexpr int row_blocks(const Problem& problem, const Schedule& schedule) {
  return ceil_div(query_rows(problem), schedule.rows);
}

}  // namespace splitkv
