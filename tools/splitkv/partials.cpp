#include "tools/splitkv/partials.hpp"

#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"

namespace splitkv::tool {
namespace {

int64_t tile_count(const Schedule& schedule, const KeyRange& range) {
  if (range.first == range.end) return 0;
  const int64_t tile = schedule.tile_kv;
  return ceil_div(range.end, tile) - range.first / tile;
}

// Rows of a row block that some query of the batch row has.
int real_rows(const Problem& problem, const Schedule& schedule, int queries, int block) {
  const int first = block * schedule.rows;
  const int rows = group_size(problem) * queries;
  return std::clamp(rows - first, 0, schedule.rows);
}

// flat: into how many blocks do the units [first, first + units) fall.
int64_t pieces_of_flat(int64_t first, int64_t units, int64_t total, int64_t blocks) {
  const auto owner = [&](int64_t unit) { return ((unit + 1) * blocks - 1) / total; };
  const int64_t last_block = owner(first + units - 1);
  int64_t pieces = 0;
  for (int64_t block = owner(first); block <= last_block; ++block) {
    const int64_t begin = std::max(first, block * total / blocks);
    const int64_t end = std::min(first + units, (block + 1) * total / blocks);
    pieces += begin < end;
  }
  return pieces;
}

}  // namespace

PartialCount count_partials(const Problem& problem, const Schedule& schedule, const Rows& rows) {
  const int blocks_a_group = row_blocks(problem, schedule);
  const int64_t sequences_a_row = int64_t(problem.kv_heads) * blocks_a_group;
  std::vector<int64_t> units;  // of each batch row's sequences
  int64_t total = 0;
  for (size_t row = 0; row < rows.kv_len.size(); ++row) {
    const KeyRange range = key_range(problem, rows, int64_t(row));
    units.push_back(std::max<int64_t>(1, tile_count(schedule, range)));
    total += units.back() * sequences_a_row;
  }

  const int64_t used_blocks = std::min<int64_t>(schedule.blocks, total);
  PartialCount count;
  int64_t first = 0;
  for (size_t row = 0; row < units.size(); ++row) {
    const int queries = queries_of(problem, rows, int64_t(row));
    for (int64_t i = 0; i < sequences_a_row; ++i, first += units[row]) {
      const int64_t pieces = schedule.partition == Partition::flat
                                 ? pieces_of_flat(first, units[row], total, used_blocks)
                                 : std::min<int64_t>(schedule.splits, units[row]);
      ++count.sequences;
      if (pieces > 1) count.pieces += pieces;
      const int64_t partials = ceil_div(pieces, int64_t(schedule.cluster));
      if (partials < 2) continue;
      ++count.divided;
      count.partials += partials;
      count.bytes += partials * real_rows(problem, schedule, queries, int(i % blocks_a_group)) *
                     partial_row_bytes(problem, schedule);
    }
  }
  return count;
}

PartialCount count_partials(const Problem& problem, const Schedule& schedule,
                            const std::vector<int32_t>& kv_len) {
  Rows rows;
  rows.kv_len = kv_len;
  if (problem.strided_positions) rows.total_len = kv_len;
  return count_partials(problem, schedule, rows);
}

}  // namespace splitkv::tool
