// Which tiles a block takes. The rules are those of codegen/launch_shape.hpp: sequences are (batch
// row, kv head, row block); pieces of a sequence are numbered in key order (fixed, flat) or by
// stream (strided), and piece i has one slot for its partial.
#pragma once

#include "rows.cuh"

namespace splitkv {

// Where the partials of one sequence lie: in flat partitions the first block may have begun with an
// earlier sequence.
struct Slots {
  i64 first;
  i64 base;
  i32 step;
  i32 pieces;

  __device__ i64 operator()(i32 piece) const { return piece == 0 ? first : base + piece * step; }
};

// One piece of a sequence: tiles tile_begin, tile_begin + tile_step, ... below tile_end, counted
// from the row's first tile. An empty row is one piece without tiles.
struct Piece {
  i32 sequence;
  i32 batch_row;
  i32 kv_head;
  i32 row_block;
  RowTiles row;
  i32 tile_begin;
  i32 tile_end;
  i32 tile_step;
  i32 pieces;  // of the sequence; with 1 the block finishes the rows itself
  i64 slot;
  Slots slots;  // of all the sequence's pieces, where there are several
};

template <const Config& C>
__device__ inline void place_sequence(Piece& piece, i32 sequence) {
  const u32 number = sequence;  // unsigned divisions by constants are shorter
  piece.sequence = sequence;
  piece.row_block = number % C.row_blocks;
  piece.kv_head = number / C.row_blocks % C.kv_heads;
  piece.batch_row = number / sequences_per_row(C);
}

// ---- fixed and strided
// -----------------------------------------------------------------------------

__device__ inline i32 active_pieces(i32 splits, i32 tiles) {
  return smaller(splits, larger(tiles, 1));
}

__device__ inline Slots fixed_slots(const LaunchArgs& args, const Piece& piece) {
  const i64 first = i64(piece.sequence) * args.splits;
  return {first, first, 1, active_pieces(args.splits, piece.row.tiles)};
}

// False when this block has nothing to do.
template <const Config& C, class Score>
__device__ inline bool split_piece(const LaunchArgs& args, u32 block, Piece& piece) {
  static_assert(C.partition != Partition::flat, "flat blocks take pieces from the line");
  place_sequence<C>(piece, block / u32(args.splits));
  const i32 split = block % u32(args.splits);
  piece.row = row_tiles<C, Score>(args, piece.batch_row);
  piece.slots = fixed_slots(args, piece);
  piece.pieces = piece.slots.pieces;
  // The blocks of a cluster stay together: those beyond the last piece bring empty partials.
  if (split / C.cluster >= ceil_div(piece.pieces, C.cluster)) return false;
  if constexpr (C.partition == Partition::fixed) {
    // split * tiles / pieces, of 32-bit numbers: a 64-bit division is a hundred instructions.
    const u32 each = u32(piece.row.tiles) / u32(piece.pieces);
    const u32 rest = u32(piece.row.tiles) % u32(piece.pieces);
    const auto first_of = [&](u32 at) { return i32(at * each + at * rest / u32(piece.pieces)); };
    piece.tile_begin = first_of(smaller(split, piece.pieces));
    piece.tile_end = first_of(smaller(split + 1, piece.pieces));
    piece.tile_step = 1;
  } else {
    piece.tile_begin = split;
    piece.tile_end = piece.row.tiles;
    piece.tile_step = piece.pieces;
  }
  piece.slot = block;
  return true;
}

// ---- flat
// --------------------------------------------------------------------------------------------

// The line of all units and the blocks that share it: never more than units, so that every block
// that takes part has at least one.
struct Line {
  i64 total;
  i64 used_blocks;

  __device__ i64 first_unit(i64 block) const { return block * total / used_blocks; }
  __device__ i64 block_of(i64 unit) const { return ((unit + 1) * used_blocks - 1) / total; }
};

template <const Config& C, class Score>
__device__ inline i64 units_of_row(const LaunchArgs& args, i32 batch_row) {
  if (batch_row >= args.batch) return 0;
  return i64(larger(row_tiles<C, Score>(args, batch_row).tiles, 1)) * sequences_per_row(C);
}

__device__ inline i64 inclusive_scan_over_warp(i64 value, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const i64 other = __shfl_up_sync(all_lanes, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

__device__ inline i64 sum_over_warp(i64 value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(all_lanes, value, offset);
  }
  return value;
}

// What the rows' lengths make of the line. By one warp, as all below that take a lane. Of the first
// 32 rows the units are kept.
template <const Config& C, class Score>
struct RowUnits {
  const LaunchArgs& args;
  const int lane;
  i64 of_first_rows;
  i64 total;

  __device__ RowUnits(const LaunchArgs& launch, int lane_index)
      : args(launch), lane(lane_index), of_first_rows(0), total(0) {
#pragma unroll 1
    for (i32 base = 0; base < args.batch; base += 32) {
      const i64 own = units_of_row<C, Score>(args, base + lane);
      if (base == 0) of_first_rows = own;
      total += own;
    }
    total = sum_over_warp(total);
  }

  __device__ Line line() const { return {total, smaller(i64(args.blocks), total)}; }

  // Of row base + lane.
  __device__ i64 at(i32 base) const {
    return base == 0 ? of_first_rows : units_of_row<C, Score>(args, base + lane);
  }

  // The batch row that owns `unit`, the row's first unit in the line, and its units.
  struct RowPlace {
    i32 batch_row;
    i64 first_unit;
    i64 units;
  };
  __device__ RowPlace find(i64 unit) const {
    i64 before = 0;
#pragma unroll 1
    for (i32 base = 0; base < args.batch; base += 32) {
      const i64 own = at(base);
      const i64 end = before + inclusive_scan_over_warp(own, lane);
      const u32 holds = __ballot_sync(all_lanes, unit < end);
      if (holds != 0) {
        const int owner = __ffs(holds) - 1;
        return {base + owner, __shfl_sync(all_lanes, end - own, owner),
                __shfl_sync(all_lanes, own, owner)};
      }
      before = __shfl_sync(all_lanes, end, 31);
    }
    return {args.batch, before, 0};
  }

  __device__ i64 first_unit_of(i32 batch_row) const {
    i64 before = 0;
#pragma unroll 1
    for (i32 base = 0; base < batch_row; base += 32) {
      const i64 own = at(base);
      if (base + lane < batch_row) before += own;
    }
    return sum_over_warp(before);
  }
};

// Slots of a sequence whose units are [begin, end): block b has slots 2 b and, for a sequence that
// does not begin with the block's units, 2 b + 1.
__device__ inline Slots slots_in_line(const Line& line, i64 begin, i64 end) {
  const i64 block = line.block_of(begin);
  const bool starts_late = begin > line.first_unit(block);
  return {2 * block + (starts_late ? 1 : 0), 2 * block, 2, i32(line.block_of(end - 1) - block + 1)};
}

// Hands out the pieces of one block in turn. Every warp of the block walks its own copy.
template <const Config& C, class Score>
struct LineWalk {
  Line line;
  i64 first;  // units [first, end) are the block's; `unit` is the next of them
  i64 unit;
  i64 end;
  i32 sequence;        // that owns `unit`
  i64 sequence_begin;  // its first unit

  __device__ LineWalk(const LaunchArgs& args, i64 block, int lane) {
    const RowUnits<C, Score> rows(args, lane);
    line = rows.line();
    first = unit = end = line.total;
    if (block >= line.used_blocks) return;
    first = unit = line.first_unit(block);
    end = line.first_unit(block + 1);
    const auto place = rows.find(unit);
    const i64 units = place.units / sequences_per_row(C);
    const i32 index = i32((unit - place.first_unit) / units);
    sequence = place.batch_row * sequences_per_row(C) + index;
    sequence_begin = place.first_unit + index * units;
  }

  __device__ bool next(const LaunchArgs& args, i64 block, Piece& piece) {
    if (unit >= end) return false;
    place_sequence<C>(piece, sequence);
    piece.row = row_tiles<C, Score>(args, piece.batch_row);
    const i64 sequence_end = sequence_begin + larger(piece.row.tiles, 1);
    const i64 piece_end = smaller(end, sequence_end);
    piece.tile_begin = i32(unit - sequence_begin);
    piece.tile_end = smaller(i32(piece_end - sequence_begin), piece.row.tiles);
    piece.tile_step = 1;
    piece.slot = 2 * block + (sequence_begin > first ? 1 : 0);
    piece.pieces = 1;
    if (piece_end - unit < sequence_end - sequence_begin) {
      piece.slots = slots_in_line(line, sequence_begin, sequence_end);
      piece.pieces = piece.slots.pieces;
    }
    unit = piece_end;
    if (unit == sequence_end) {
      sequence += 1;
      sequence_begin = unit;
    }
    return true;
  }
};

// ---- the reduce's view
// -------------------------------------------------------------------------------

template <const Config& C, class Score>
__device__ inline Slots slots_of(const LaunchArgs& args, const Piece& at, int lane) {
  if constexpr (C.partition == Partition::flat) {
    const RowUnits<C, Score> rows(args, lane);
    const i64 units = larger(at.row.tiles, 1);
    const i64 begin = rows.first_unit_of(at.batch_row) + at.sequence % sequences_per_row(C) * units;
    return slots_in_line(rows.line(), begin, begin + units);
  } else {
    return fixed_slots(args, at);
  }
}

}  // namespace splitkv
