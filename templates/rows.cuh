// What a batch row is: its queries, its keys, and which of them any of its queries can see.
#pragma once

#include "coordinates.cuh"
#include "faults.cuh"

namespace splitkv {

// Keys [first_key, end_key) lie in tiles [first_tile, first_tile + tiles).
struct RowTiles {
  i32 kv_len;       // keys of all shards: where the last query stands, plus one
  i32 queries;      // query tokens the row has
  i32 first_token;  // ragged queries: the row's first token of q and out
  i32 first_key;
  i32 end_key;
  i32 first_tile;
  i32 tiles;
};

// Stored keys of a batch row.
template <const Config& C>
__device__ inline i32 stored_keys(const LaunchArgs& args, i32 batch_row) {
  i64 length = args.kv_len_host;
  if (args.kv_len != nullptr) {
    length = args.kv_len_bytes == 8 ? static_cast<const i64*>(args.kv_len)[batch_row]
                                    : i64(static_cast<const i32*>(args.kv_len)[batch_row]);
  }
  if constexpr (C.checked) {
    if (args.kv_capacity > 0 && length > args.kv_capacity) {
      report_fault(args, kLengthTooLong, batch_row, 0, length);
      length = args.kv_capacity;
    }
  }
  return i32(larger(length, i64(0)));
}

template <const Config& C>
__device__ inline void set_queries(const LaunchArgs& args, i32 batch_row, RowTiles& row) {
  row.queries = C.query_len;
  row.first_token = 0;
  if constexpr (!C.ragged) return;
  const i32 begin = args.q_offset[batch_row];
  const i32 end = args.q_offset[batch_row + 1];
  const i32 count = begin < 0 || end < begin ? 0 : end - begin;
  if constexpr (C.checked) {
    if (count > C.query_len) report_fault(args, kBadQueryOffset, batch_row, 0, count);
  }
  row.queries = smaller(count, C.query_len);
  row.first_token = begin;
}

// The key index at or after a position; positions before the first key give 0.
template <const Config& C>
__device__ inline i32 key_at(const LaunchArgs& args, i32 position) {
  if constexpr (!C.strided_positions) return larger(position, 0);
  const i64 ahead = position - args.pos0;
  return ahead <= 0 ? 0 : i32((ahead + args.pos_step - 1) / args.pos_step);
}

template <const Config& C, class Score>
__device__ inline RowTiles row_tiles(const LaunchArgs& args, i32 batch_row) {
  RowTiles row;
  const i32 stored = stored_keys<C>(args, batch_row);
  row.kv_len = stored;
  if constexpr (C.strided_positions) row.kv_len = args.total_len[batch_row];
  set_queries<C>(args, batch_row, row);
  row.first_key = key_at<C>(args, Score::first_key(row.kv_len - row.queries, row.kv_len));
  row.end_key = smaller(stored, key_at<C>(args, Score::end_key(row.kv_len - 1, row.kv_len)));
  if (args.kv_begin != nullptr) row.first_key = larger(row.first_key, args.kv_begin[batch_row]);
  const bool is_empty = row.first_key >= row.end_key || (C.ragged && row.queries == 0);
  if (is_empty) row.end_key = 0;
  row.first_tile = row.first_key / C.tile_kv;
  row.tiles = is_empty ? 0 : ceil_div(row.end_key, C.tile_kv) - row.first_tile;
  return row;
}

// A query row of a sequence: which element of q, out and lse it is.
struct QueryRow {
  bool exists;  // rows beyond the group's or the batch row's last query repeat the last
  i32 query;
  i32 q_head;
};

template <const Config& C>
__device__ inline QueryRow query_row(const RowTiles& row, i32 kv_head, i32 row_block, int r) {
  const int x = smaller(row_block * C.rows + r, head_rows(C) - 1);
  const int query = x / C.group_size;
  const bool in_group = head_rows(C) % C.rows == 0 || row_block * C.rows + r == x;
  return {in_group && query < row.queries, smaller(query, row.queries - 1),
          kv_head * C.group_size + x % C.group_size};
}

// Element offset of a query row in a tensor of these strides.
template <const Config& C>
__device__ inline i64 query_offset(const LaunchArgs& args, const RowTiles& row, i32 batch_row,
                                   const QueryRow& at, i64 stride_batch, i64 stride_query,
                                   i64 stride_head) {
  const i64 start = C.ragged ? i64(0) : batch_row * stride_batch;
  const i64 token = C.ragged ? i64(row.first_token) + at.query : i64(at.query);
  return start + (C.query_len == 1 && !C.ragged ? i64(0) : token * stride_query) +
         at.q_head * stride_head;
}

template <const Config& C>
__device__ inline Coordinates coordinates_of(const LaunchArgs& args, const RowTiles& row,
                                             i32 batch_row, const QueryRow& at, i32 key) {
  i32 key_pos = key;
  if constexpr (C.strided_positions) key_pos = i32(args.pos0 + key * args.pos_step);
  return {batch_row, at.q_head, at.query,   row.kv_len - row.queries + at.query,
          key,       key_pos,   row.kv_len, row.queries};
}

}  // namespace splitkv
