// How rows of 16-bit or 8-bit elements lie in shared memory, so that eight neighbouring rows lie in
// different banks for every dim: the 16-byte chunks of a row change places by the row's number.
// Chunks of one sector stay in one sector: a copy whose chunks lie otherwise in shared memory than
// in global asks L2 for the sector twice. Copies by tensor map bring rows cut into columns of 128
// bytes, or of 64 or 32 where their length is no multiple, a column of all 16 rows in one place.
#pragma once

#include "types.cuh"

namespace splitkv {

constexpr int step_keys = 16;

__host__ __device__ constexpr int whole_sixteens(int dim) { return ceil_div(dim, 16) * 16; }

// Bytes a row takes in shared memory.
__host__ __device__ constexpr int pitch_of(int row_bytes) { return ceil_div(row_bytes, 32) * 32; }

// Bytes of the columns into which rows of a pitch are cut.
__host__ __device__ constexpr int column_of(int pitch) {
  if (pitch % 128 == 0) return 128;
  return pitch % 64 == 0 ? 64 : 32;
}

// Byte b of row r, rows lying at Pitch, is at r * Pitch + (b ^ turn_of<Pitch>(r)). Eight rows at
// Pitch begin in 1, 2 or 4 places among the 8 chunks of all banks; the turn spreads those that
// begin in one. Of columns it is what the copy engine calls a swizzle of that many bytes.
template <int Pitch>
__device__ constexpr u32 turn_of(u32 row) {
  static_assert(Pitch % 32 == 0, "rows are whole sectors");
  if constexpr (Pitch % 128 == 0) return row % 8 * 16;
  if constexpr (Pitch % 64 == 0) return row / 2 % 4 * 16;
  return row / 4 % 2 * 16;
}

template <int Pitch>
__device__ constexpr u32 turned(u32 row, u32 byte) {
  return row * Pitch + (byte ^ turn_of<Pitch>(row));
}

// Addresses of chunk `2 step + half` of one row, in rows at Pitch.
template <int Pitch>
struct TurnedRow {
  u32 row;
  u32 turn;

  __device__ TurnedRow(u32 rows, u32 number, u32 half)
      : row(rows + number * Pitch), turn(turn_of<Pitch>(number) ^ half * 16) {}
  __device__ u32 operator()(u32 step) const { return row + (step * 32 ^ turn); }
};

// A step's 16 rows of Pitch bytes, cut into columns of Column bytes. One column, rows as they are,
// is what asynchronous copies want: they ask again for what a cut divides.
template <int Pitch, int Column>
struct StageRows {
  static constexpr bool cut = Column != Pitch;

  TurnedRow<Column> row;

  // Addresses of chunk `2 step + half` of row `number`.
  __device__ StageRows(u32 rows, u32 number, u32 half) : row(rows, number, half) {}
  __device__ u32 operator()(u32 step) const {
    if constexpr (!cut) return row(step);
    constexpr u32 steps = Column / 32;
    return row(step % steps) + step / steps * (step_keys * Column);
  }

  // Where byte `byte` of a row lies.
  __device__ static u32 at(u32 row, u32 byte) {
    if constexpr (!cut) return turned<Pitch>(row, byte);
    return byte / Column * (step_keys * Column) + turned<Column>(row, byte % Column);
  }
};

}  // namespace splitkv
