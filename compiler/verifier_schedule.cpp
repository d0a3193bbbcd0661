#include <algorithm>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {
namespace {

using Verdict = std::optional<Refusal>;

constexpr int kMaxSplits = 1024;
constexpr int kMaxBlocks = 65536;
constexpr int kMaxRegistersPerThread = 255;

Verdict family_runs_on_the_target(const Problem&, const Schedule& schedule, const Target& target) {
  const Family needed = target.kind == TargetKind::cuda ? Family::simt : Family::vector;
  if (schedule.family == needed) return {};
  return refuse(__func__, "family", name(schedule.family),
                fmt::format("does not run on {}", print(target)),
                fmt::format("family={}", name(needed)));
}

Verdict tile_is_in_range(const Problem&, const Schedule& schedule, const Target&) {
  return refuse_outside(__func__, "tile", schedule.tile_kv, 8, 1024);
}

Verdict tile_is_a_multiple_of_8(const Problem&, const Schedule& schedule, const Target&) {
  if (schedule.tile_kv % 8 == 0) return {};
  return refuse(__func__, "tile", schedule.tile_kv, "is not a multiple of 8",
                fmt::format("tile={}", (schedule.tile_kv + 7) / 8 * 8));
}

Verdict rows_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  return refuse_outside(__func__, "rows", schedule.rows, 1, 8);
}

Verdict warps_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  const int most = schedule.family == Family::simt ? 16 : 1;  // a CPU block is one thread
  return refuse_outside(__func__, "warps", schedule.warps, 1, most);
}

Verdict unroll_is_a_power_of_two_up_to_8(const Problem&, const Schedule& schedule, const Target&) {
  const int unroll = schedule.unroll;
  if (unroll == 1 || unroll == 2 || unroll == 4 || unroll == 8) return {};
  return refuse(__func__, "unroll", unroll, "is none of 1, 2, 4, 8",
                "unroll=1, unroll=2, unroll=4 or unroll=8");
}

Verdict splits_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (schedule.partition != Partition::flat)
    return refuse_outside(__func__, "splits", schedule.splits, 1, kMaxSplits);
  if (schedule.splits == Schedule{}.splits) return {};
  return refuse(
      __func__, "splits", schedule.splits, "means nothing to partition=flat",
      fmt::format("partition=fixed splits={}", std::clamp(schedule.splits, 1, kMaxSplits)));
}

Verdict blocks_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (schedule.partition == Partition::flat)
    return refuse_outside(__func__, "blocks", schedule.blocks, 1, kMaxBlocks);
  if (schedule.blocks == Schedule{}.blocks) return {};
  return refuse(
      __func__, "blocks", schedule.blocks,
      fmt::format("means nothing to partition={}", name(schedule.partition)),
      fmt::format("partition=flat blocks={}", std::clamp(schedule.blocks, 1, kMaxBlocks)));
}

Verdict merge_agrees_with_the_problem(const Problem& problem, const Schedule& schedule,
                                      const Target&) {
  if (problem.merge == Merge::automatic || schedule.merge == Merge::automatic ||
      problem.merge == schedule.merge)
    return {};
  return refuse(__func__, "merge", name(schedule.merge),
                fmt::format("contradicts merge={} of the problem", name(problem.merge)),
                fmt::format("merge={}", name(problem.merge)));
}

// flat cuts at the grid's blocks, so where a row is cut depends on the rows before it.
Verdict deterministic_cuts_on_the_row_alone(const Problem& problem, const Schedule& schedule,
                                            const Target&) {
  if (!problem.deterministic || schedule.partition != Partition::flat) return {};
  return refuse(__func__, "partition", name(schedule.partition),
                "cuts a row by its neighbours' lengths, which deterministic=on forbids",
                "partition=fixed or partition=strided");
}

Verdict registers_fit_a_thread(const Problem& problem, const Schedule& schedule,
                               const Target& target) {
  const auto needed = [&](const Schedule& candidate) {
    return resources_of(problem, candidate, target).registers_per_thread;
  };
  if (needed(schedule) <= kMaxRegistersPerThread) return {};
  Schedule fitting = schedule;
  while (fitting.unroll > 1 && needed(fitting) > kMaxRegistersPerThread) fitting.unroll /= 2;
  return refuse(__func__, "unroll", schedule.unroll,
                fmt::format("with rows={} needs about {} registers a thread, above {}",
                            schedule.rows, needed(schedule), kMaxRegistersPerThread),
                fmt::format("unroll={}", fitting.unroll));
}

Verdict registers_fit_the_file(const Problem& problem, const Schedule& schedule,
                               const Target& target) {
  const Resources needs = resources_of(problem, schedule, target);
  const int per_warp = (needs.registers_per_thread + 7) / 8 * 8 * 32;
  const int warps = per_warp == 0 ? schedule.warps : target.registers_per_sm / per_warp;
  if (schedule.warps <= warps) return {};
  return refuse(__func__, "warps", schedule.warps,
                fmt::format("of about {} registers a thread need more than the {} of an SM",
                            needs.registers_per_thread, target.registers_per_sm),
                fmt::format("warps={}", warps));
}

Verdict shared_memory_fits_a_block(const Problem& problem, const Schedule& schedule,
                                   const Target& target) {
  const int64_t needed = resources_of(problem, schedule, target).smem_bytes;
  if (needed <= target.smem_per_block_bytes) return {};
  Schedule fitting = schedule;
  while (fitting.warps > 1 &&
         resources_of(problem, fitting, target).smem_bytes > target.smem_per_block_bytes)
    --fitting.warps;
  return refuse(__func__, "warps", schedule.warps,
                fmt::format("with rows={} needs {} bytes of shared memory, above {}", schedule.rows,
                            needed, target.smem_per_block_bytes),
                fmt::format("warps={}", fitting.warps));
}

constexpr ScheduleRule kTable[] = {
    {"family_runs_on_the_target", family_runs_on_the_target},
    {"tile_is_in_range", tile_is_in_range},
    {"tile_is_a_multiple_of_8", tile_is_a_multiple_of_8},
    {"rows_are_in_range", rows_are_in_range},
    {"warps_are_in_range", warps_are_in_range},
    {"unroll_is_a_power_of_two_up_to_8", unroll_is_a_power_of_two_up_to_8},
    {"splits_are_in_range", splits_are_in_range},
    {"blocks_are_in_range", blocks_are_in_range},
    {"merge_agrees_with_the_problem", merge_agrees_with_the_problem},
    {"deterministic_cuts_on_the_row_alone", deterministic_cuts_on_the_row_alone},
    {"registers_fit_a_thread", registers_fit_a_thread},
    {"shared_memory_fits_a_block", shared_memory_fits_a_block},
    {"registers_fit_the_file", registers_fit_the_file},
};

}  // namespace
}  // namespace rules

std::span<const ScheduleRule> schedule_rules() { return rules::kTable; }

std::optional<Refusal> verify(const Problem& problem, const Schedule& schedule,
                              const Target& target) {
  if (std::optional<Refusal> refusal = verify(problem, target)) return refusal;
  for (const ScheduleRule& rule : schedule_rules())
    if (std::optional<Refusal> refusal = rule.check(problem, schedule, target)) return refusal;
  return std::nullopt;
}

}  // namespace splitkv
