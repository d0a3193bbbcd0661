// Which tiles a block takes. The rules are those of codegen/launch_shape.hpp: sequences are (batch
// row, kv head, row block); pieces of a sequence are numbered in key order (fixed, flat) or by
// stream (strided), and piece i has one slot for its partial.
#pragma once

#include "rows.cuh"

namespace splitkv {

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
};

template <Config C>
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

// False when this block has nothing to do.
template <Config C, class Score>
__device__ inline bool split_piece(const LaunchArgs& args, u32 block, Piece& piece) {
  static_assert(C.partition != Partition::flat, "flat blocks take pieces from the line");
  place_sequence<C>(piece, block / u32(args.splits));
  const i32 split = block % u32(args.splits);
  piece.row = row_tiles<C, Score>(args, piece.batch_row);
  piece.pieces = active_pieces(args.splits, piece.row.tiles);
  if (split >= piece.pieces) return false;
  if constexpr (C.partition == Partition::fixed) {
    // split * tiles / pieces, of 32-bit numbers: a 64-bit division is a hundred instructions.
    const u32 each = u32(piece.row.tiles) / u32(piece.pieces);
    const u32 rest = u32(piece.row.tiles) % u32(piece.pieces);
    piece.tile_begin = split * each + split * rest / u32(piece.pieces);
    piece.tile_end = (split + 1) * each + (split + 1) * rest / u32(piece.pieces);
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

template <Config C, class Score>
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

// By one warp, as all below that take a lane.
template <Config C, class Score>
__device__ inline Line whole_line(const LaunchArgs& args, int lane) {
  i64 total = 0;
#pragma unroll 1
  for (i32 base = 0; base < args.batch; base += 32) {
    total += units_of_row<C, Score>(args, base + lane);
  }
  total = sum_over_warp(total);
  return {total, smaller(i64(args.blocks), total)};
}

// A batch row and its first unit in the line.
struct RowPlace {
  i32 batch_row;
  i64 first_unit;
};

// The batch row that owns `unit`.
template <Config C, class Score>
__device__ inline RowPlace find_unit(const LaunchArgs& args, i64 unit, int lane) {
  i64 before = 0;
#pragma unroll 1
  for (i32 base = 0; base < args.batch; base += 32) {
    const i64 own = units_of_row<C, Score>(args, base + lane);
    const i64 end = before + inclusive_scan_over_warp(own, lane);
    const u32 holds = __ballot_sync(all_lanes, unit < end);
    if (holds != 0) {
      const int owner = __ffs(holds) - 1;
      return {base + owner, __shfl_sync(all_lanes, end - own, owner)};
    }
    before = __shfl_sync(all_lanes, end, 31);
  }
  return {args.batch, before};
}

template <Config C, class Score>
__device__ inline i64 first_unit_of_row(const LaunchArgs& args, i32 batch_row, int lane) {
  i64 before = 0;
#pragma unroll 1
  for (i32 row = lane; row < batch_row; row += 32) before += units_of_row<C, Score>(args, row);
  return sum_over_warp(before);
}

// Which blocks hold a sequence whose units are [begin, end).
struct SequenceSpan {
  i64 first_block;
  i32 pieces;
  bool starts_late;  // the first block has units of an earlier sequence before it

  __device__ i64 slot(i32 piece) const {
    return 2 * (first_block + piece) + (piece == 0 && starts_late ? 1 : 0);
  }
};

__device__ inline SequenceSpan sequence_span(const Line& line, i64 begin, i64 end) {
  const i64 first = line.block_of(begin);
  return {first, i32(line.block_of(end - 1) - first + 1), begin > line.first_unit(first)};
}

// Hands out the pieces of one block in turn. Every warp of the block walks its own copy.
template <Config C, class Score>
struct LineWalk {
  Line line;
  i64 first;  // units [first, end) are the block's; `unit` is the next of them
  i64 unit;
  i64 end;
  i32 sequence;        // that owns `unit`
  i64 sequence_begin;  // its first unit

  __device__ LineWalk(const LaunchArgs& args, i64 block, int lane) {
    line = whole_line<C, Score>(args, lane);
    first = unit = end = line.total;
    if (block >= line.used_blocks) return;
    first = unit = line.first_unit(block);
    end = line.first_unit(block + 1);
    const RowPlace place = find_unit<C, Score>(args, unit, lane);
    const i64 units = larger(row_tiles<C, Score>(args, place.batch_row).tiles, 1);
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
      piece.pieces = sequence_span(line, sequence_begin, sequence_end).pieces;
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

// Where the partials of one sequence lie.
template <Config C>
struct Slots {
  i64 first;          // fixed, strided
  SequenceSpan span;  // flat
  i32 pieces;

  __device__ i64 operator()(i32 piece) const {
    if constexpr (C.partition == Partition::flat) {
      return span.slot(piece);
    } else {
      return first + piece;
    }
  }
};

template <Config C, class Score>
__device__ inline Slots<C> slots_of(const LaunchArgs& args, i32 sequence, const RowTiles& row,
                                    int lane) {
  Slots<C> slots = {};
  const i32 batch_row = u32(sequence) / sequences_per_row(C);
  if constexpr (C.partition == Partition::flat) {
    const Line line = whole_line<C, Score>(args, lane);
    const i64 units = larger(row.tiles, 1);
    const i64 begin = first_unit_of_row<C, Score>(args, batch_row, lane) +
                      sequence % sequences_per_row(C) * units;
    slots.span = sequence_span(line, begin, begin + units);
    slots.pieces = slots.span.pieces;
  } else {
    slots.first = i64(sequence) * args.splits;
    slots.pieces = active_pieces(args.splits, row.tiles);
  }
  return slots;
}

}  // namespace splitkv
