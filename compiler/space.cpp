#include "compiler/space.hpp"

#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr int kMostRowWarps = 8;

// Numbers of rows up to `most` that divide the group's query rows into equally full row blocks:
// ceil(rows / n) for every n.
std::vector<int> rows_options(const Problem& problem, int most) {
  const int rows = query_rows(problem);
  std::vector<int> options;
  for (int blocks = 1; blocks <= rows; ++blocks) {
    const int each = ceil_div(rows, blocks);
    if (each <= most && (options.empty() || options.back() != each)) options.push_back(each);
  }
  return options;
}

// How a partition's partials are joined and what form they have.
std::vector<Schedule> reduce_options(const Schedule& partition, const std::vector<Merge>& merges) {
  std::vector<Schedule> options;
  const auto add = [&](Reduce reduce, int cluster) {
    Schedule option = partition;
    option.reduce = reduce;
    option.cluster = cluster;
    for (Merge merge : merges)
      for (DType type : {DType::fp32, DType::bf16}) {
        option.merge = merge;
        option.partial_dtype = type;
        if (type == DType::fp32 || exchanges_partials(option)) options.push_back(option);
      }
  };
  add(Reduce::kernel, 1);
  add(Reduce::last_block, 1);
  for (int cluster : {2, 4, 8, 16})
    if (partition.partition != Partition::flat && partition.splits % cluster == 0)
      add(Reduce::cluster, cluster);
  return options;
}

// What is launched: partition with its splits or blocks, how partials are joined, and whether the
// kernels are launched early.
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
  for (const Schedule& partition : partitions)
    for (Schedule option : reduce_options(partition, merges))
      for (bool pdl : {false, true}) {
        option.pdl = pdl;
        options.push_back(option);
      }
  return options;
}

// Of the wgmma family rows and stages are all there is.
std::vector<Schedule> wgmma_options(const Problem& problem) {
  std::vector<Schedule> options;
  for (int rows : rows_options(problem, kWgmmaTile))
    for (int stages : {2, 3, 4, 6, 8})
      options.push_back({.family = Family::wgmma,
                         .tile_kv = kWgmmaTile,
                         .rows = rows,
                         .warps = kWgmmaWarps,
                         .unroll = 1,
                         .stages = stages,
                         .loads = Loads::tensor});
  return options;
}

// The blocks' code: rows, tile, warps, and unroll or stages of a family.
std::vector<Schedule> code_options(const Problem& problem, Family family) {
  if (family == Family::wgmma) return wgmma_options(problem);
  const bool mma = family == Family::mma;
  const std::vector<int> depths =
      mma ? std::vector<int>{2, 3, 4, 6, 8} : std::vector<int>{1, 2, 4, 8};
  std::vector<Schedule> options;
  const int most = mma ? kMostRowWarps * most_mma_rows(problem) : 8;
  for (int rows : rows_options(problem, most))
    for (int tile : {32, 64, 128, 256})
      for (int warps : {1, 2, 4, 8, 16})
        for (int depth : depths) {
          const Schedule code = {.family = family,
                                 .tile_kv = tile,
                                 .rows = rows,
                                 .warps = warps,
                                 .unroll = mma ? 1 : depth,
                                 .stages = mma ? depth : 1};
          const int most_row_warps = mma ? std::min(warps, kMostRowWarps) : 1;
          for (int row_warps = 1; row_warps <= most_row_warps; row_warps *= 2)
            for (Loads loads : {Loads::copy, Loads::tensor}) {
              if (!mma && loads == Loads::tensor) continue;
              options.push_back(code);
              options.back().row_warps = row_warps;
              options.back().loads = loads;
            }
        }
  return options;
}

}  // namespace

std::vector<Schedule> schedule_space(const Problem& problem, const Target& target,
                                     const std::vector<int>& splits,
                                     const std::vector<int>& blocks) {
  std::vector<Family> families = {Family::vector};
  if (target.kind == TargetKind::cuda) families = {Family::simt, Family::mma, Family::wgmma};
  std::vector<Schedule> space;
  if (verify(problem, target)) return space;
  const std::vector<Schedule> launches = launch_options(problem, splits, blocks);
  for (Family family : families)
    for (const Schedule& code : code_options(problem, family))
      for (Schedule schedule : launches) {
        schedule.family = code.family;
        schedule.rows = code.rows;
        schedule.tile_kv = code.tile_kv;
        schedule.warps = code.warps;
        schedule.row_warps = code.row_warps;
        schedule.unroll = code.unroll;
        schedule.stages = code.stages;
        schedule.loads = code.loads;
        if (!verify(problem, schedule, target)) space.push_back(schedule);
      }
  return space;
}

}  // namespace splitkv
