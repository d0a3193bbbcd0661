#include "compiler/schedule_candidates.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/arithmetic.hpp"
#include "compiler/cost_model.hpp"
#include "compiler/resources.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr int kMaxSplits = 1024;
constexpr int kMaxBlocks = 65536;
constexpr int kMaxSimtRows = 8;
constexpr int kPanelRows = 8;  // of the mma family
// What ptxas has to lay out, rows * unroll * elements a lane: compile time grows with it. Scores in
// fp64 cost twice.
constexpr int kLargestCode = 256;

// True where the code of one step of a lane group is small enough to compile quickly.
bool compiles_quickly(const Problem& problem, const Schedule& schedule) {
  const LaneShape shape = lane_shape(problem);
  const int code = schedule.rows * schedule.unroll * (shape.slice_qk + shape.slice_v);
  return code <= kLargestCode / (all_fp32(problem) ? 2 : 1);
}

Schedule simt_code(const Problem& problem, const Target& target) {
  Schedule schedule;
  schedule.family = Family::simt;
  schedule.rows = balanced_rows(problem, kMaxSimtRows);
  const auto fits = [&] {
    return compiles_quickly(problem, schedule) && !verify(problem, schedule, target);
  };
  // Keys in flight are given up before rows: fewer rows a block means reading K and V again.
  while (schedule.unroll > 1 && !fits()) schedule.unroll /= 2;
  while (schedule.rows > 1 && verify(problem, schedule, target))
    schedule.rows = balanced_rows(problem, schedule.rows - 1);
  // A tile no shorter than what the block's lane groups take at once.
  const int step = schedule.warps * (32 / lane_shape(problem).lanes) * schedule.unroll;
  schedule.tile_kv = std::clamp(step, 64, 256);
  return schedule;
}

struct RowShape {
  int rows;
  int row_warps;
  bool operator==(const RowShape&) const = default;
};

// As many rows as a warp holds; where those need several panels, also those of one more row block:
// K and V come out of L2 once more, but a block multiplies and joins fewer rows. Or two, four or
// eight warps divide as many rows: K and V are read once for all of them.
std::vector<RowShape> mma_rows(const Problem& problem) {
  const int a_warp = most_mma_rows(problem);
  const int most = balanced_rows(problem, a_warp);
  std::vector<RowShape> shapes = {{most, 1}};
  if (query_rows(problem) <= kPanelRows) return shapes;
  const int row_blocks = ceil_div(query_rows(problem), most);
  if (most > kPanelRows) shapes.push_back({ceil_div(query_rows(problem), row_blocks + 1), 1});
  for (int row_warps : {2, 4, 8}) {
    for (int panels = 1; panels <= a_warp / kPanelRows && panels <= 4; panels *= 2) {
      const RowShape shape = {balanced_rows(problem, kPanelRows * panels * row_warps), row_warps};
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
    }
  }
  return shapes;
}

// Adds the codes of so many warps that the target has room for. How many blocks an SM holds decides
// between numbers of stages; where they hold equally many, more stages cost nothing.
void add_mma_codes(const Problem& problem, const Target& target, RowShape shape, int warps,
                   std::vector<Schedule>& codes) {
  Schedule code;
  code.family = Family::mma;
  code.unroll = 1;
  if (warps % shape.row_warps != 0) return;
  code.rows = shape.rows;
  code.row_warps = shape.row_warps;
  code.warps = warps;
  code.tile_kv = std::max(64, kMmaStep * streams(code));
  for (code.stages = 2; code.stages <= 4; ++code.stages) {
    if (resources_of(problem, code, target).blocks_per_sm < 1) return;
    if (!verify(problem, code, target)) codes.push_back(code);
  }
}

// As many query rows as a block holds, and as many stages as there is room for, or one or two
// fewer.
std::vector<Schedule> wgmma_codes(const Problem& problem, const Target& target) {
  std::vector<Schedule> codes;
  Schedule code = {.family = Family::wgmma,
                   .tile_kv = kWgmmaTile,
                   .rows = balanced_rows(problem, kWgmmaTile),
                   .warps = kWgmmaWarps,
                   .unroll = 1,
                   .loads = Loads::tensor};
  for (code.stages = 2; code.stages <= 4; ++code.stages)
    if (!verify(problem, code, target)) codes.push_back(code);
  return codes;
}

// What there is to cut, and where it runs.
struct Room {
  int64_t sequences = 1;
  int64_t tiles = 1;  // of a sequence of the longest length
  int64_t sms = 1;
  int64_t fitting = 1;  // blocks of an SM
};

Room room_of(const Problem& problem, const Workload& workload, const Schedule& code,
             const Target& target) {
  Room room;
  room.sequences =
      std::max<int64_t>(1, workload.batch) * problem.kv_heads * row_blocks(problem, code);
  room.tiles = visible_tiles(problem, code, workload.kv_len);
  room.sms = std::max(1, target.sm_count);
  room.fitting = std::max(1, resources_of(problem, code, target).blocks_per_sm);
  return room;
}

void keep_each_once(std::vector<int64_t>& counts) {
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
}

// Round numbers, and the one that fills the machine; of those above one, none that leaves most SMs
// without a block though more splits would not.
std::vector<int64_t> split_counts(const Room& room) {
  const int64_t slots = room.sms * room.fitting;
  std::vector<int64_t> counts = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};
  counts.push_back(slots / room.sequences);
  const int64_t most = std::min({room.tiles, 2 * slots / room.sequences, int64_t(kMaxSplits)});
  const int64_t least = std::min(most / 2, room.sms / 3 / room.sequences);
  std::erase_if(counts, [&](int64_t count) { return count > most || count < least; });
  counts.push_back(1);
  keep_each_once(counts);
  if (counts.front() < 1) counts.erase(counts.begin());
  return counts;
}

// A block an SM or as many as fit, powers of two below those, and multiples of the sequences, whose
// cuts fall on ends of sequences that are equally long.
std::vector<int64_t> block_counts(const Room& room) {
  std::vector<int64_t> counts;
  for (int64_t blocks : {room.sms, room.sms * room.fitting}) {
    counts.insert(counts.end(), {blocks, int64_t(std::bit_floor(uint64_t(blocks)))});
    if (room.sequences <= blocks) counts.push_back(blocks / room.sequences * room.sequences);
  }
  const int64_t most = std::min(room.sequences * room.tiles, int64_t(kMaxBlocks));
  for (int64_t& count : counts) count = std::min(count, most);
  keep_each_once(counts);
  return counts;
}

// Wider rows make the join of a cluster, which is part of the split kernel, take a quarter of a
// second to compile, and are bound by their products, not by the join.
constexpr int kWidestClusterRow = 256;

// The reduces that a schedule with this partition can take, the cheapest to compile first.
std::vector<std::pair<Reduce, int>> reduces_of(const Problem& problem, const Target& target,
                                               Partition partition) {
  std::vector<std::pair<Reduce, int>> reduces = {{Reduce::last_block, 1}, {Reduce::kernel, 1}};
  const bool clusters = compute_capability(target) >= kFirstWithClusters &&
                        problem.dim_v <= kWidestClusterRow && partition != Partition::flat;
  if (clusters)
    reduces.insert(reduces.end(),
                   {{Reduce::cluster, 2}, {Reduce::cluster, 4}, {Reduce::cluster, 8}});
  return reduces;
}

// Every reduce changes what a block needs, and so how many pieces fill the machine.
void add_partition(const Problem& problem, const Workload& workload, Schedule code,
                   Partition partition, const Target& target, std::vector<Schedule>& launches) {
  code.partition = partition;
  for (const auto& [reduce, cluster] : reduces_of(problem, target, partition)) {
    code.reduce = reduce;
    code.cluster = cluster;
    // Where clusters are large, the next grid's blocks take SMs that whole clusters need.
    code.pdl = compute_capability(target) >= kFirstWithClusters && cluster <= 2;
    const Room room = room_of(problem, workload, code, target);
    const bool flat = partition == Partition::flat;
    for (int64_t count : flat ? block_counts(room) : split_counts(room)) {
      (flat ? code.blocks : code.splits) = int(count);
      if (reduce == Reduce::kernel && !exchanges_partials(code)) continue;
      if (count % cluster != 0 || (cluster > 1 && count > kMaxClusters * cluster)) continue;
      // What does not run at once leaves most of the machine idle at the end.
      if (cluster > 1 && room.sequences * count > resident_blocks(code, room.fitting, target))
        continue;
      launches.push_back(code);
    }
  }
}

}  // namespace

int balanced_rows(const Problem& problem, int most) {
  const int rows = query_rows(problem);
  return ceil_div(rows, ceil_div(rows, most));
}

std::vector<Schedule> code_candidates(const Problem& problem, const Target& target,
                                      std::optional<Family> family) {
  std::vector<Schedule> codes;
  if (family == Family::wgmma) codes = wgmma_codes(problem, target);
  if (!codes.empty()) return codes;
  if (family != Family::simt && most_mma_rows(problem) > 0) {
    for (RowShape rows : mma_rows(problem))
      for (int warps : {16, 8, 4})
        if (warps < 16 || rows.row_warps > 1) add_mma_codes(problem, target, rows, warps, codes);
    for (int warps = 2; codes.empty() && warps >= 1; --warps)
      add_mma_codes(problem, target, {balanced_rows(problem, most_mma_rows(problem)), 1}, warps,
                    codes);
  }
  if (codes.empty()) codes.push_back(simt_code(problem, target));
  return codes;
}

std::vector<Schedule> launch_candidates(const Problem& problem, const Workload& workload,
                                        const Schedule& code, const Target& target) {
  std::vector<Schedule> launches;
  add_partition(problem, workload, code, Partition::fixed, target, launches);
  if (workload.batch > 1 && !problem.deterministic)
    add_partition(problem, workload, code, Partition::flat, target, launches);
  return launches;
}

std::vector<Schedule> all_launches(const Problem& problem, const Workload& workload,
                                   const Schedule& code, const Target& target) {
  std::vector<Schedule> launches;
  for (Partition partition : {Partition::fixed, Partition::strided, Partition::flat}) {
    if (partition != Partition::flat || !problem.deterministic)
      add_partition(problem, workload, code, partition, target, launches);
  }
  return launches;
}

}  // namespace splitkv
