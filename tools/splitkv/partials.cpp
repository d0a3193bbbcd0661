#include "tools/splitkv/partials.hpp"

#include <algorithm>

#include "compiler/resources.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {
namespace {

int64_t tile_count(const Problem& problem, const Schedule& schedule, int32_t kv_len) {
  const int64_t first = first_visible(problem, kv_len) / schedule.tile_kv;
  return (kv_len + int64_t(schedule.tile_kv) - 1) / schedule.tile_kv - first;
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

PartialCount count_partials(const Problem& problem, const Schedule& schedule,
                            const std::vector<int32_t>& kv_len) {
  const int blocks_a_group = row_blocks(problem, schedule);
  const int rows_a_group = group_size(problem) * problem.query_len;
  const int64_t sequences_a_row = int64_t(problem.kv_heads) * blocks_a_group;
  std::vector<int64_t> units;  // of each batch row's sequences
  int64_t total = 0;
  for (const int32_t length : kv_len) {
    units.push_back(std::max<int64_t>(1, tile_count(problem, schedule, length)));
    total += units.back() * sequences_a_row;
  }

  const int64_t used_blocks = std::min<int64_t>(schedule.blocks, total);
  PartialCount count;
  int64_t first = 0;
  for (const int64_t row_units : units) {
    for (int64_t i = 0; i < sequences_a_row; ++i, first += row_units) {
      const int64_t pieces = schedule.partition == Partition::flat
                                 ? pieces_of_flat(first, row_units, total, used_blocks)
                                 : std::min<int64_t>(schedule.splits, row_units);
      ++count.sequences;
      if (pieces < 2) continue;
      const int first_row = int(i % blocks_a_group) * schedule.rows;
      const int rows = std::min(schedule.rows, rows_a_group - first_row);
      ++count.divided;
      count.partials += pieces;
      count.bytes += pieces * rows * partial_row_bytes(problem, schedule);
    }
  }
  return count;
}

}  // namespace splitkv::tool
