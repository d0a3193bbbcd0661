#include "compiler/default_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr int kMaxSplits = 1024;
constexpr int kMaxRows = 8;  // simt and vector
// What ptxas has to lay out, rows * unroll * elements a lane: compile time grows with it. Scores in
// fp64 cost twice.
constexpr int kLargestCode = 256;

// Rows so that the group's row blocks are equally full.
int balanced_rows(const Problem& problem, int row_block_count) {
  return int(ceil_div(int64_t(group_size(problem)) * problem.query_len, row_block_count));
}

int fewest_row_blocks(const Problem& problem, int max_rows) {
  return int(ceil_div(int64_t(group_size(problem)) * problem.query_len, max_rows));
}

// ---- CUDA ---------------------------------------------------------------------------------------

// Rounded costs in microseconds of what a block does beside reading K and V. They decide between
// schedules of similar read time only.
constexpr double kReduceLaunchUs = 2.5;   // a second kernel in the stream
constexpr double kLastBlockUs = 0.8;      // fence, atomic, and the wait for both
constexpr double kJoinBytesPerUs = 1e5;   // at which one block reads partials from L2
constexpr double kFlatScanUs = 0.3;       // finding a block's place among the rows ...
constexpr double kFlatScanRowUs = 0.002;  // ... and what each row adds to that

// The work of a launch and the machine, in the model's terms.
struct Model {
  int64_t batch = 1;
  int64_t sequences = 1;
  int64_t tiles = 1;  // of a sequence of the longest length
  double tile_bytes = 0;
  int64_t sms = 1;
  int64_t blocks_per_sm = 1;
  double read_bytes_per_us = 1;
};

struct Candidate {
  Schedule schedule;
  double us = 0;
};

// Time of `blocks` blocks that each read `tiles` tiles: rounds of as many blocks as fit, which
// share an SM's part of the bandwidth; a block alone cannot draw more than half of that part.
double read_us(const Model& model, int64_t blocks, int64_t tiles) {
  const int64_t rounds = ceil_div(blocks, model.sms * model.blocks_per_sm);
  const int64_t sharing = std::clamp(
      ceil_div(blocks, model.sms), std::min<int64_t>(2, model.blocks_per_sm), model.blocks_per_sm);
  const double block_rate = model.read_bytes_per_us / double(model.sms * sharing);
  return double(rounds * tiles) * model.tile_bytes / block_rate;
}

// Sets the cheaper reduce for sequences of `pieces` partials and returns the time of the exchange.
double choose_reduce(const Problem& problem, Schedule& schedule, int64_t pieces) {
  schedule.reduce = Reduce::last_block;
  if (pieces <= 1) return 0;
  const double bytes =
      double(pieces) * schedule.rows * double(partial_row_bytes(problem, schedule));
  const double by_last_block = kLastBlockUs + bytes / kJoinBytesPerUs;
  const double by_kernel = kReduceLaunchUs + bytes / schedule.rows / kJoinBytesPerUs;
  if (by_last_block <= by_kernel) return by_last_block;
  schedule.reduce = Reduce::kernel;
  return by_kernel;
}

Candidate fixed_candidate(const Problem& problem, Schedule schedule, const Model& model,
                          int64_t splits) {
  schedule.partition = Partition::fixed;
  schedule.splits = int(splits);
  const double exchange = choose_reduce(problem, schedule, splits);
  return {schedule,
          exchange + read_us(model, model.sequences * splits, ceil_div(model.tiles, splits))};
}

Candidate flat_candidate(const Problem& problem, Schedule schedule, const Model& model) {
  const int64_t total = model.sequences * model.tiles;
  const int64_t blocks = std::min(model.sms * model.blocks_per_sm, total);
  schedule.partition = Partition::flat;
  schedule.blocks = int(blocks);
  // A sequence shares its first and its last block with its neighbours.
  const int64_t pieces = ceil_div(blocks, model.sequences) + 1;
  const double exchange = choose_reduce(problem, schedule, pieces);
  const double scan = kFlatScanUs + kFlatScanRowUs * double(model.batch);
  return {schedule, exchange + scan + read_us(model, blocks, ceil_div(total, blocks))};
}

// The best number of splits that fills the machine at most twice.
Candidate best_fixed(const Problem& problem, const Schedule& schedule, const Model& model) {
  const int64_t room = 2 * model.sms * model.blocks_per_sm / model.sequences;
  const int64_t most = std::max<int64_t>(1, std::min({room, model.tiles, int64_t(kMaxSplits)}));
  Candidate best = fixed_candidate(problem, schedule, model, 1);
  for (int64_t splits = 2; splits <= most; ++splits) {
    const Candidate next = fixed_candidate(problem, schedule, model, splits);
    if (next.us < best.us) best = next;
  }
  return best;
}

// True where the code of one step of a lane group is small enough to compile quickly.
bool compiles_quickly(const Problem& problem, const Schedule& schedule) {
  const LaneShape shape = lane_shape(problem);
  const int code = schedule.rows * schedule.unroll * (shape.slice_qk + shape.slice_v);
  return code <= kLargestCode / (all_fp32(problem) ? 2 : 1);
}

// Rows, unroll and tile of the code; launch values are left at one split.
Schedule simt_code(const Problem& problem, const Target& target) {
  Schedule schedule;
  schedule.family = Family::simt;
  int row_block_count = fewest_row_blocks(problem, kMaxRows);
  schedule.rows = balanced_rows(problem, row_block_count);
  const auto fits = [&] {
    return compiles_quickly(problem, schedule) && !verify(problem, schedule, target);
  };
  // Keys in flight are given up before rows: fewer rows a block means reading K and V again.
  while (schedule.unroll > 1 && !fits()) schedule.unroll /= 2;
  while (schedule.rows > 1 && verify(problem, schedule, target))
    schedule.rows = balanced_rows(problem, ++row_block_count);
  // A tile no shorter than what the block's lane groups take at once.
  const int step = schedule.warps * (32 / lane_shape(problem).lanes) * schedule.unroll;
  schedule.tile_kv = std::clamp(step, 64, 256);
  return schedule;
}

// Tensor cores, with as many steps in flight as leave room for three blocks on an SM, which hide
// each other's starts and ends; where two stages do not, for two, or one, or with fewer warps.
// Nothing where the family does not take the problem.
std::optional<Schedule> mma_code(const Problem& problem, const Target& target) {
  Schedule schedule;
  schedule.family = Family::mma;
  schedule.unroll = 1;
  schedule.tile_kv = 64;
  const int most = most_mma_rows(problem);
  if (most == 0) return std::nullopt;
  schedule.rows = balanced_rows(problem, fewest_row_blocks(problem, most));
  const int64_t third = target.smem_per_sm_bytes / 3 - 1024;
  const int64_t half = target.smem_per_sm_bytes / 2 - 1024;
  const int64_t whole = target.smem_per_block_bytes;
  struct Try {
    int64_t room;
    int warps;
  };
  for (const Try& attempt :
       {Try{third, 4}, Try{half, 4}, Try{whole, 4}, Try{half, 2}, Try{whole, 2}, Try{whole, 1}})
    for (int stages : {4, 3, 2}) {
      schedule.warps = attempt.warps;
      schedule.stages = stages;
      if (resources_of(problem, schedule, target).smem_bytes > attempt.room) continue;
      if (!verify(problem, schedule, target)) return schedule;
    }
  return std::nullopt;
}

Model model_of(const Problem& problem, const Workload& workload, const Schedule& schedule,
               const Target& target) {
  Model model;
  const int64_t longest = std::max<int64_t>(1, workload.kv_len);
  int64_t visible = longest;
  if (problem.window > 0) visible = std::min<int64_t>(visible, problem.window);
  if (problem.chunk > 0) visible = std::min<int64_t>(visible, problem.chunk);
  model.batch = std::max<int64_t>(1, workload.batch);
  model.sequences = model.batch * problem.kv_heads * row_blocks(problem, schedule);
  model.tiles = ceil_div(visible, schedule.tile_kv);
  model.tile_bytes = double(kv_bytes(problem, schedule.tile_kv)) / problem.kv_heads;
  model.sms = std::max(1, target.sm_count);
  model.blocks_per_sm = std::max(1, resources_of(problem, schedule, target).blocks_per_sm);
  model.read_bytes_per_us = std::max(1.0, target.read_gb_per_s * 1e3);
  return model;
}

// Splits that fill the machine once at batch 1, whatever the batch: each row is cut alike
// everywhere.
ScheduleChoice deterministic_choice(const Problem& problem, Schedule schedule, int64_t workers) {
  const int64_t sequences = int64_t(problem.kv_heads) * row_blocks(problem, schedule);
  schedule.partition = Partition::fixed;
  schedule.splits = int(std::clamp<int64_t>(workers / sequences, 1, 64));
  schedule.reduce = Reduce::last_block;
  return {
      schedule,
      fmt::format("deterministic=on: splits={} from {} sequences of one batch row on {} workers, "
                  "whatever the workload",
                  schedule.splits, sequences, workers)};
}

ScheduleChoice cuda_schedule(const Problem& problem, const Workload& workload, const Target& target,
                             std::optional<Family> family) {
  std::optional<Schedule> mma;
  if (family != Family::simt) mma = mma_code(problem, target);
  const Schedule code = mma ? *mma : simt_code(problem, target);
  const Model model = model_of(problem, workload, code, target);
  // Two blocks an SM are enough to keep its loads in flight; more splits would only add partials.
  if (problem.deterministic)
    return deterministic_choice(problem, code,
                                model.sms * std::min<int64_t>(2, model.blocks_per_sm));
  const Candidate whole = fixed_candidate(problem, code, model, 1);
  const Candidate fixed = best_fixed(problem, code, model);
  std::string why = fmt::format(
      "{} sequences of up to {} tiles on {} SMs x {} blocks; modelled {:.1f} us with one split, "
      "{:.1f} us with {} splits",
      model.sequences, model.tiles, model.sms, model.blocks_per_sm, whole.us, fixed.us,
      fixed.schedule.splits);
  if (model.batch == 1) return {fixed.schedule, why};
  const Candidate flat = flat_candidate(problem, code, model);
  why += fmt::format(", {:.1f} us flat on {} blocks", flat.us, flat.schedule.blocks);
  return {flat.us < fixed.us ? flat.schedule : fixed.schedule, why};
}

// ---- CPU ----------------------------------------------------------------------------------------

ScheduleChoice cpu_schedule(const Problem& problem, const Workload& workload,
                            const Target& target) {
  Schedule schedule;
  schedule.family = Family::vector;
  schedule.warps = 1;
  schedule.rows = balanced_rows(problem, fewest_row_blocks(problem, kMaxRows));
  schedule.reduce = Reduce::last_block;  // what run_part needs too
  // A few pieces a thread, so that threads of unequal speed finish together.
  const int64_t wanted = std::min<int64_t>(4 * std::max(1, target.threads), 65536);
  if (problem.deterministic) return deterministic_choice(problem, schedule, wanted);
  const int64_t batch = std::max<int64_t>(1, workload.batch);
  const int64_t sequences = batch * problem.kv_heads * row_blocks(problem, schedule);
  if (sequences >= wanted)
    return {schedule, fmt::format("{} sequences keep {} threads busy without splits", sequences,
                                  std::max(1, target.threads))};
  schedule.partition = Partition::flat;
  schedule.blocks = int(wanted);
  return {schedule, fmt::format("{} sequences are fewer than 4 pieces for each of {} threads: all "
                                "tiles in one line, cut in {}",
                                sequences, std::max(1, target.threads), wanted)};
}

}  // namespace

ScheduleChoice default_schedule(const Problem& problem, const Workload& workload,
                                const Target& target, std::optional<Family> family) {
  assert(!verify(problem, target));
  ScheduleChoice choice = target.kind == TargetKind::cuda
                              ? cuda_schedule(problem, workload, target, family)
                              : cpu_schedule(problem, workload, target);
  assert(!verify(problem, choice.schedule, target));
  return choice;
}

}  // namespace splitkv
