#include "compiler/space.hpp"

#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

// Numbers of rows that divide the group into equally full row blocks: ceil(group / n) for every n.
std::vector<int> rows_options(const Problem& problem) {
  const int rows = group_size(problem) * problem.query_len;
  std::vector<int> options;
  for (int blocks = 1; blocks <= rows; ++blocks) {
    const int each = (rows + blocks - 1) / blocks;
    if (each <= 8 && (options.empty() || options.back() != each)) options.push_back(each);
  }
  return options;
}

// What is launched: partition with its splits or blocks, and how partials are joined.
std::vector<Schedule> launch_options(const Problem& problem, const std::vector<int>& splits,
                                     const std::vector<int>& blocks) {
  std::vector<Schedule> partitions;
  for (Partition partition : {Partition::fixed, Partition::strided})
    for (int count : splits) partitions.push_back({.partition = partition, .splits = count});
  for (int count : blocks) partitions.push_back({.partition = Partition::flat, .blocks = count});

  // Where the problem names the merge, the schedule has nothing to choose.
  std::vector<Merge> merges = {Merge::mlo, Merge::lse};
  if (problem.merge != Merge::automatic) merges = {Merge::automatic};

  std::vector<Schedule> options;
  for (Schedule option : partitions)
    for (Reduce reduce : {Reduce::kernel, Reduce::last_block})
      for (Merge merge : merges) {
        option.reduce = reduce;
        option.merge = merge;
        options.push_back(option);
      }
  return options;
}

}  // namespace

std::vector<Schedule> schedule_space(const Problem& problem, const Target& target,
                                     const std::vector<int>& splits,
                                     const std::vector<int>& blocks) {
  const Family family = target.kind == TargetKind::cuda ? Family::simt : Family::vector;
  std::vector<Schedule> space;
  if (verify(problem, target)) return space;
  for (Schedule schedule : launch_options(problem, splits, blocks))
    for (int rows : rows_options(problem))
      for (int tile : {32, 64, 128, 256})
        for (int warps : {1, 2, 4, 8})
          for (int unroll : {1, 2, 4, 8}) {
            schedule.family = family;
            schedule.rows = rows;
            schedule.tile_kv = tile;
            schedule.warps = warps;
            schedule.unroll = unroll;
            if (!verify(problem, schedule, target)) space.push_back(schedule);
          }
  return space;
}

}  // namespace splitkv
