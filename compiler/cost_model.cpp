#include "compiler/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <vector>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"

namespace splitkv {
namespace {

using Constants = CostConstants;

// Blocks that read equally much.
struct Blocks {
  int64_t count = 0;
  double bytes = 0;  // each
};

// Everything about problem, schedule and target that the parts below ask for.
struct Step {
  const Problem& problem;
  const Schedule& schedule;
  const Target& target;
  const Constants& constants;
  Resources resources;
  int64_t row_blocks = 1;
  int64_t sms = 1;
  double tile_bytes = 0;  // of K and V of one head
  double peak = 0;        // bytes a microsecond that a kernel draws at most
};

Step step_of(const Problem& problem, const Schedule& schedule, const Target& target,
             const Constants& constants) {
  Step step{problem, schedule, target, constants, resources_of(problem, schedule, target)};
  step.row_blocks = row_blocks(problem, schedule);
  step.sms = std::max(1, target.sm_count);
  step.tile_bytes = double(kv_bytes(problem, schedule.tile_kv)) / problem.kv_heads;
  step.peak = std::max(1.0, target.read_gb_per_s * 1e3) * constants.peak_share;
  return step;
}

// Tokens of a row that its queries see.
int64_t visible_tokens(const Problem& problem, int64_t kv_len) {
  int64_t visible = std::max<int64_t>(0, kv_len);
  if (problem.window > 0)
    visible = std::min<int64_t>(visible, int64_t(problem.window) + problem.query_len - 1);
  if (problem.chunk > 0)
    visible = std::min<int64_t>(visible, int64_t(problem.chunk) + problem.query_len - 1);
  return visible;
}

int64_t tiles_of(const Step& step, int64_t kv_len) {
  return visible_tiles(step.problem, step.schedule, kv_len);
}

int64_t sequences_of(const Step& step, int64_t rows) {
  return rows * step.problem.kv_heads * step.row_blocks;
}

double warps_of_a_stream(const Step& step) { return step.schedule.warps / streams(step.schedule); }

// ---- how fast -----------------------------------------------------------------------------------

// Time of one warp for 16 keys of the mma family, alone on its scheduler.
double mma_step_us(const Step& step) {
  const Problem& problem = step.problem;
  const Constants& constants = step.constants;
  const int panels = panels_of_a_warp(step.schedule);
  const auto operands = [&](int dim, DType type) {
    const double widening = size_bytes(type) == 1 ? constants.widening_share : 0;
    return ceil_div(dim, 16) * (1 + widening + constants.panel_share * (panels - 1));
  };
  const double columns =
      operands(problem.dim_qk, problem.k_dtype) + operands(problem.dim_v, problem.v_dtype);
  return constants.step_us + constants.operand_us * columns;
}

// Time of a block of the wgmma family for a tile: its products at some 2,048 multiply-adds a cycle,
// and as long again as a few of them for what no product hides. Set, not fitted: it has not been
// measured, and no choice without a named family rests on it.
double wgmma_tile_us(const Step& step) {
  constexpr double products_a_us = 3.5e6;
  constexpr double turn_us = 0.4;
  const double products =
      double(kWgmmaTile) * kWgmmaTile * (step.problem.dim_qk + step.problem.dim_v);
  return products / products_a_us + turn_us;
}

// Bytes a microsecond that one stream alone on its schedulers draws: bound by its arithmetic, or by
// what it has in flight.
double stream_rate(const Step& step) {
  const Constants& constants = step.constants;
  const double key_bytes = step.tile_bytes / step.schedule.tile_kv;
  if (step.schedule.family == Family::mma) {
    const double us = mma_step_us(step);
    const double bytes = kMmaStep * key_bytes;
    return bytes * std::min(1 / us, step.schedule.stages / (constants.latency_us + us));
  }
  if (step.schedule.family == Family::wgmma) {
    const double us = wgmma_tile_us(step);
    return step.tile_bytes * std::min(1 / us, step.schedule.stages / (constants.latency_us + us));
  }
  // A lane group takes a key: multiply-adds and conversions of its slices, and of each row some
  // twenty instructions for the sum over lanes and the softmax.
  const LaneShape shape = lane_shape(step.problem);
  const double groups = 32.0 / shape.lanes;
  const double slices = shape.slice_qk + shape.slice_v;
  const double wide = all_fp32(step.problem) ? 4 : 1;  // fp64 multiply-adds
  const double key_us =
      (slices * (1 + step.schedule.rows * wide) + 20.0 * step.schedule.rows) / constants.simt_issue;
  const double ahead =
      step.schedule.unroll / (constants.latency_us + step.schedule.unroll * key_us);
  return groups * key_bytes * std::min(1 / key_us, ahead);
}

// Rates of `count` blocks at once, in bytes a microsecond.
class Rates {
 public:
  explicit Rates(const Step& step) : step_(step), stream_rate_(stream_rate(step)) {
    // Row blocks of one sequence read the same bytes, all but the first out of L2.
    const double again = std::min(double(step.row_blocks), step.constants.l2_share);
    memory_ = step.peak * again;
  }

  // That their warps could draw.
  double of_warps(double count) const {
    const double sms = double(step_.sms);
    const double busy = std::min(sms, count);
    const double warps = step_.schedule.warps * std::max(1.0, count / sms);
    const bool shared = step_.schedule.family == Family::wgmma;  // its rate is the whole SM's
    const double waiting = shared ? 0 : step_.constants.warp_share * std::max(0.0, warps / 4 - 1);
    return busy * warps / warps_of_a_stream(step_) * stream_rate_ / (1 + waiting);
  }
  double of_memory(double count) const {
    const double crowd = std::max(0.0, count / double(step_.sms) - 1);
    return memory_ * std::max(0.5, 1 - step_.constants.crowding * crowd);
  }
  // Of both: the p-norm of their times.
  double of(double count) const {
    const double warps = of_warps(count), memory = of_memory(count);
    const double least = std::min(warps, memory), share = least / std::max(warps, memory);
    if (share < 0.5) return least;
    const double p = step_.constants.saturation;
    return least / std::pow(1 + std::pow(share, p), 1 / p);
  }
  double alone() const { return of(1); }

 private:
  const Step& step_;
  double stream_rate_;
  double memory_;
};

// ---- who reads what -----------------------------------------------------------------------------

// A grid: its blocks by size (ascending once sorted), and what else the cost depends on.
struct Grid {
  std::vector<Blocks> blocks;
  int64_t count = 0;
  int64_t partials = 1;     // of a sequence, at most
  double all_partials = 0;  // of all sequences
  double further = 0;       // sequences that a flat block takes beside its first, at most
  double total_bytes = 0;
  bool even = true;  // no sequence, or line, is cut in pieces of two lengths

  void add(int64_t blocks_alike, double bytes) {
    if (blocks_alike <= 0) return;
    blocks.push_back({blocks_alike, bytes});
    count += blocks_alike;
    total_bytes += double(blocks_alike) * bytes;
  }
  double longest() const {
    double most = 0;
    for (const Blocks& alike : blocks) most = std::max(most, alike.bytes);
    return most;
  }
};

Grid grid_of_pieces(const Step& step, std::span<const RowGroup> rows) {
  Grid grid;
  const Schedule& schedule = step.schedule;
  for (const RowGroup& group : rows) {
    const int64_t sequences = sequences_of(step, group.rows);
    const int64_t tiles = tiles_of(step, group.kv_len);
    const int64_t active = std::min<int64_t>(schedule.splits, tiles);
    const int64_t each = tiles / active, longer = tiles % active;
    grid.even = grid.even && longer == 0;
    grid.add(sequences * longer, double(each + 1) * step.tile_bytes);
    grid.add(sequences * (active - longer), double(each) * step.tile_bytes);
    const int64_t partials = ceil_div(active, int64_t(schedule.cluster));
    grid.partials = std::max(grid.partials, partials);
    if (partials > 1) grid.all_partials += double(sequences * partials);
  }
  return grid;
}

Grid grid_of_line(const Step& step, std::span<const RowGroup> rows) {
  Grid grid;
  int64_t units = 0, sequences = 0;
  for (const RowGroup& group : rows) {
    const int64_t alike = sequences_of(step, group.rows);
    sequences += alike;
    units += alike * tiles_of(step, group.kv_len);
  }
  const int64_t used = std::min<int64_t>(step.schedule.blocks, units);
  const int64_t each = units / used, longer = units % used;
  grid.add(longer, double(each + 1) * step.tile_bytes);
  grid.add(used - longer, double(each) * step.tile_bytes);
  for (const RowGroup& group : rows) {
    const int64_t tiles = tiles_of(step, group.kv_len);
    // Cuts fall on the ends of sequences where all are alike and one length divides the other.
    const bool whole = rows.size() == 1 && longer == 0 && each % tiles == 0;
    const bool aligned = rows.size() == 1 && longer == 0 && tiles % each == 0;
    const int64_t partials = whole     ? 1
                             : aligned ? tiles / each
                                       : ceil_div(tiles, std::max<int64_t>(1, each)) + 1;
    // Sequences that a block takes in part or whole: of rows like these side by side, and one more.
    const double alike = double(sequences_of(step, group.rows));
    const double touched = whole     ? double(each) / double(tiles)
                           : aligned ? 1
                                     : std::min(double(each) / double(tiles) + 1, alike) + 1;
    grid.even = grid.even && (whole || aligned);
    grid.partials = std::max(grid.partials, std::min(partials, used));
    grid.further = std::max(grid.further, std::min(touched, double(sequences)) - 1);
  }
  // Each block shares a sequence with the next.
  if (grid.partials > 1) grid.all_partials = double(std::min(2 * used, used + sequences));
  return grid;
}

// Time in which all blocks, running at once, have read theirs: those that have less leave the rate
// to the others.
double one_wave_us(const Rates& rates, const std::vector<Blocks>& ascending, int64_t count) {
  double us = 0, done = 0;
  for (const Blocks& alike : ascending) {
    if (count <= 0) break;
    us += double(count) * (alike.bytes - done) / rates.of(double(count));
    done = alike.bytes;
    count -= alike.count;
  }
  return us;
}

// How much longer reading takes than an even distribution of equal pieces would. Pieces of unequal
// length end apart, and what they read next lies apart too. Where an SM has places for several
// blocks and there are fewer blocks than places, some SMs get more of them than others: blocks are
// dealt out among groups of SMs. Few enough for one an SM in each group are dealt evenly.
double unevenness(const Step& step, const Grid& grid, int64_t resident) {
  constexpr int64_t kGroups = 8;
  const double factor = grid.even ? 1 : 1 + step.constants.uneven_share;
  if (resident < 2 * step.sms || grid.count <= step.sms / kGroups * kGroups) return factor;
  const double places = double(ceil_div(grid.count, resident) * resident);
  return factor + step.constants.fill_share * (1 - double(grid.count) / places);
}

double read_us(const Step& step, const Rates& rates, Grid& grid, int64_t resident) {
  std::sort(grid.blocks.begin(), grid.blocks.end(),
            [](const Blocks& a, const Blocks& b) { return a.bytes < b.bytes; });
  const double uneven = unevenness(step, grid, resident);
  if (grid.count <= resident) return uneven * one_wave_us(rates, grid.blocks, grid.count);
  // Full waves at the rate of all, what is left in the last at the rate of so many.
  const int64_t waves = ceil_div(grid.count, resident);
  const int64_t last = grid.count - (waves - 1) * resident;
  const double mean = grid.total_bytes / double(grid.count), longest = grid.longest();
  const double full = mean * double(grid.count - last) / rates.of(double(resident));
  const double rest = mean * double(last) / rates.of(double(last));
  const double late = step.constants.late_share * (longest - mean) / rates.alone();
  return std::max(uneven * (full + rest), longest / rates.alone()) + late +
         step.constants.wave_us * double(waves - 1);
}

// ---- what partials cost -------------------------------------------------------------------------

// Each block joins a slice of the rows: of the blocks of its cluster, then of the other clusters.
void add_cluster_exchange(const Step& step, const Grid& grid, Cost& cost) {
  const Constants& constants = step.constants;
  const Schedule& schedule = step.schedule;
  const double values = double(schedule.rows) * step.problem.dim_v / (32.0 * schedule.warps);
  cost.exchange_us = constants.cluster_us + constants.cluster_block_us * schedule.cluster +
                     constants.cluster_value_us * values;
  if (grid.partials <= 1) return;
  const double rounds = std::max(1.0, values / schedule.cluster);
  cost.exchange_us +=
      constants.clusters_us + constants.clusters_partial_us * double(grid.partials) * rounds;
}

void add_exchange(const Step& step, const Grid& grid, Cost& cost) {
  const Constants& constants = step.constants;
  const Schedule& schedule = step.schedule;
  const double wide = std::max(1.0, step.problem.dim_v / 128.0);
  const double partials = double(grid.partials);
  const bool joins = grid.partials > 1;
  if (schedule.reduce == Reduce::kernel && exchanges_partials(schedule)) {
    cost.second_launch_us =
        constants.second_launch_us - (schedule.pdl ? constants.early_reduce_us : 0);
    if (joins) cost.exchange_us = constants.kernel_partial_us * partials * wide;  // a warp a row
  }
  if (schedule.reduce == Reduce::last_block && joins) {
    const double rounds = ceil_div(schedule.rows, schedule.warps);
    cost.exchange_us = constants.last_block_us +
                       rounds * (constants.round_us + constants.round_partial_us * partials * wide);
  }
  if (schedule.reduce == Reduce::cluster) add_cluster_exchange(step, grid, cost);
  cost.partial_bytes =
      grid.all_partials * schedule.rows * double(partial_row_bytes(step.problem, schedule));
  // Written and read again, through L2.
  cost.exchange_us += 2 * cost.partial_bytes / (step.peak * constants.l2_share);
}

double launch_us(const Step& step) {
  const Constants& constants = step.constants;
  if (!step.schedule.pdl) return constants.launch_us;
  if (step.schedule.cluster > 2) return constants.launch_us + constants.large_cluster_us;
  return constants.launch_us - constants.early_launch_us;
}

double start_us(const Step& step, const Grid& grid) {
  const Constants& constants = step.constants;
  if (step.schedule.partition != Partition::flat) return constants.start_us;
  // Other blocks on the SM read while one turns to its next sequence.
  const double sharing = std::clamp(double(grid.count) / double(step.sms), 1.0,
                                    double(std::max(1, step.resources.blocks_per_sm)));
  return constants.start_us + constants.flat_us +
         constants.sequence_us * grid.further / (sharing * sharing);
}

double join_us(const Step& step) {
  const double reads = double(step.schedule.rows) * step.problem.dim_v /
                       (32 * warps_of_a_stream(step));  // of a thread
  return step.constants.join_us + step.constants.join_read_us * reads;
}

Bound bound_of(const Cost& cost, const Rates& rates, const Grid& grid) {
  const double total = cost.total_us();
  if (cost.read_us < total / 2) return Bound::overheads;
  const double count = double(cost.resident);
  const double even = grid.total_bytes / rates.of(count);
  if (even < 0.75 * cost.read_us) return Bound::imbalance;
  return rates.of_warps(count) < rates.of_memory(count) ? Bound::warps : Bound::memory;
}

}  // namespace

const char* name(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "memory";
    case Bound::warps:
      return "warps";
    case Bound::imbalance:
      return "imbalance";
    case Bound::overheads:
      return "overheads";
  }
  return "";
}

int64_t visible_tiles(const Problem& problem, const Schedule& schedule, int64_t kv_len) {
  const int64_t tiles = ceil_div(visible_tokens(problem, kv_len), int64_t(schedule.tile_kv));
  return std::max<int64_t>(1, tiles);
}

int64_t block_bytes_in_flight(const Problem& problem, const Schedule& schedule) {
  const int64_t key_bytes = kv_bytes(problem, 1) / problem.kv_heads;
  int64_t keys = int64_t(32 / lane_shape(problem).lanes) * schedule.unroll;
  if (schedule.family == Family::mma) keys = int64_t(kMmaStep) * schedule.stages;
  if (schedule.family == Family::wgmma) keys = int64_t(kWgmmaTile) * schedule.stages;
  return streams(schedule) * keys * key_bytes;
}

int64_t resident_blocks(const Schedule& schedule, int64_t fitting, const Target& target) {
  const int64_t slots = std::max<int64_t>(1, target.sm_count) * std::max<int64_t>(1, fitting);
  if (schedule.cluster <= 2) return slots;
  // A cluster lies within one group of SMs. Of an H200's 132, 120 take part in clusters of 4 or 8
  // at a block an SM, 112 in larger ones; several blocks an SM leave less over.
  const double lost =
      (schedule.cluster <= 8 ? 1.0 / 11 : 0.152) / double(std::max<int64_t>(1, fitting));
  const int64_t clusters = int64_t(double(slots) * (1 - lost) + 1e-6) / schedule.cluster;
  return std::max<int64_t>(1, clusters) * schedule.cluster;
}

Cost predict(const Problem& problem, std::span<const RowGroup> rows, const Schedule& schedule,
             const Target& target, const CostConstants& constants) {
  assert(target.kind == TargetKind::cuda && !rows.empty());
  const Step step = step_of(problem, schedule, target, constants);
  const Rates rates(step);
  Grid grid =
      schedule.partition == Partition::flat ? grid_of_line(step, rows) : grid_of_pieces(step, rows);
  Cost cost;
  const int64_t most = resident_blocks(schedule, step.resources.blocks_per_sm, target);
  cost.blocks = grid.count;
  cost.resident = std::min(grid.count, most);
  cost.waves = ceil_div(grid.count, most);
  cost.partials = grid.partials > 1 ? grid.partials : 0;
  cost.block_bytes = grid.longest();
  double tokens = 0;
  for (const RowGroup& group : rows)
    tokens += double(group.rows) * double(visible_tokens(problem, group.kv_len));
  cost.floor_us = tokens * step.tile_bytes / schedule.tile_kv * problem.kv_heads /
                  std::max(1.0, target.read_gb_per_s * 1e3);
  cost.launch_us = launch_us(step);
  cost.start_us = start_us(step, grid);
  cost.read_us = read_us(step, rates, grid, most);
  cost.join_us = join_us(step);
  add_exchange(step, grid, cost);
  cost.bound = bound_of(cost, rates, grid);
  return cost;
}

Cost predict(const Problem& problem, const Workload& workload, const Schedule& schedule,
             const Target& target) {
  const RowGroup all{std::max<int64_t>(1, workload.batch), std::max<int64_t>(1, workload.kv_len)};
  return predict(problem, {&all, 1}, schedule, target);
}

}  // namespace splitkv
