#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {
namespace {

constexpr int kMaxSplits = 1024;
constexpr int kMaxBlocks = 65536;
constexpr int kMaxCluster = 16;

Verdict family_runs_on_the_target(const Problem&, const Schedule& schedule, const Target& target) {
  const bool cuda = target.kind == TargetKind::cuda;
  if (cuda == (schedule.family != Family::vector)) return {};
  return refuse(__func__, "family", name(schedule.family),
                fmt::format("does not run on {}", print(target)),
                cuda ? "family=simt" : "family=vector");
}

bool is_mma(const Schedule& schedule) { return schedule.family == Family::mma; }
bool is_wgmma(const Schedule& schedule) { return schedule.family == Family::wgmma; }

// ---- the block ----------------------------------------------------------------------------------

Verdict warps_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (is_wgmma(schedule))
    return refuse_outside(__func__, "warps", schedule.warps, kWgmmaWarps, kWgmmaWarps);
  const int most = schedule.family == Family::vector ? 1 : 16;  // a CPU block is one thread
  return refuse_outside(__func__, "warps", schedule.warps, 1, most);
}

// Warps that divide the rows each hold panels of 8 of them, equally many; none is left without.
Verdict row_warps_divide_the_rows(const Problem&, const Schedule& schedule, const Target&) {
  const int row_warps = schedule.row_warps;
  if (row_warps == 1) return {};
  if (!is_mma(schedule))
    return refuse(__func__, "row_warps", row_warps,
                  fmt::format("means nothing to family={}", name(schedule.family)), "row_warps=1");
  const int panels = ceil_div(schedule.rows, 8);
  if (row_warps < 1 || row_warps > panels ||
      ceil_div(panels, ceil_div(panels, row_warps)) < row_warps)
    return refuse(__func__, "row_warps", row_warps,
                  fmt::format("does not divide the {} panels of rows={}", panels, schedule.rows),
                  fmt::format("row_warps={}", panels > 1 && schedule.warps % 2 == 0 ? 2 : 1));
  if (schedule.warps % row_warps == 0) return {};
  return refuse(__func__, "row_warps", row_warps,
                fmt::format("does not divide warps={}", schedule.warps), "row_warps=1");
}

Verdict tile_is_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (is_wgmma(schedule))
    return refuse_outside(__func__, "tile", schedule.tile_kv, kWgmmaTile, kWgmmaTile);
  return refuse_outside(__func__, "tile", schedule.tile_kv, 8, 1024);
}

// Each stream of the mma family takes whole steps of a tile, all of them equally many.
Verdict tile_is_made_of_whole_steps(const Problem&, const Schedule& schedule, const Target&) {
  const int step = is_mma(schedule) ? kMmaStep * streams(schedule) : 8;
  if (schedule.tile_kv % step == 0) return {};
  return refuse(__func__, "tile", schedule.tile_kv, fmt::format("is not a multiple of {}", step),
                fmt::format("tile={}", round_up(schedule.tile_kv, step)));
}

Verdict rows_are_in_range(const Problem& problem, const Schedule& schedule, const Target&) {
  if (is_wgmma(schedule)) return refuse_outside(__func__, "rows", schedule.rows, 1, kWgmmaTile);
  const int most = is_mma(schedule) ? most_mma_rows(problem) * schedule.row_warps : 8;
  return refuse_outside(__func__, "rows", schedule.rows, 1, most);
}

Verdict unroll_is_a_power_of_two_up_to_8(const Problem&, const Schedule& schedule, const Target&) {
  const int unroll = schedule.unroll;
  if (is_mma(schedule) || is_wgmma(schedule))
    return refuse_outside(__func__, "unroll", unroll, 1, 1);
  if (unroll == 1 || unroll == 2 || unroll == 4 || unroll == 8) return {};
  return refuse(__func__, "unroll", unroll, "is none of 1, 2, 4, 8",
                "unroll=1, unroll=2, unroll=4 or unroll=8");
}

Verdict stages_are_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (is_mma(schedule) || is_wgmma(schedule))
    return refuse_outside(__func__, "stages", schedule.stages, 2, 8);
  return refuse_outside(__func__, "stages", schedule.stages, 1, 1);
}

// What one tensor map of K, or of V, can bring: 16 keys that lie at even strides in one block, rows
// of whole swizzles, and nothing beside them.
std::string beyond_tensor_maps(const Problem& problem, const Schedule& schedule,
                               const Target& target) {
  if (!is_mma(schedule)) return fmt::format("means nothing to family={}", name(schedule.family));
  if (target.kind != TargetKind::cuda || compute_capability(target) < kFirstWithClusters)
    return fmt::format("needs the copy engine of sm_90 and newer, not of {}", print(target));
  if (problem.align < 16) return fmt::format("takes align=16, not align={}", problem.align);
  const int page_size = problem.kv_layout.page_size;
  if (is_paged(problem) && page_size % kMmaStep != 0)
    return fmt::format("brings {} keys of one page, not of pages of {}", kMmaStep, page_size);
  const int k_bytes = problem.dim_qk * size_bytes(problem.k_dtype);
  if (k_bytes % kTensorRowUnit != 0)
    return fmt::format("brings rows of multiples of {} bytes, not of {} (K)", kTensorRowUnit,
                       k_bytes);
  const int v_bytes = problem.dim_v * size_bytes(problem.v_dtype);
  if (!problem.v_in_k && v_bytes % kTensorRowUnit != 0)
    return fmt::format("brings rows of multiples of {} bytes, not of {} (V)", kTensorRowUnit,
                       v_bytes);
  if (is_scale_of_key(problem.k_scale) || is_scale_of_key(problem.v_scale))
    return "brings no scales of keys";
  return {};
}

Verdict tensor_loads_bring_whole_steps(const Problem& problem, const Schedule& schedule,
                                       const Target& target) {
  if (schedule.loads == Loads::copy || is_wgmma(schedule)) return {};
  std::string limit = beyond_tensor_maps(problem, schedule, target);
  if (limit.empty()) return {};
  return refuse(__func__, "loads", name(schedule.loads), std::move(limit), "loads=copy");
}

Verdict wgmma_loads_by_tensor_map(const Problem&, const Schedule& schedule, const Target&) {
  if (!is_wgmma(schedule) || schedule.loads == Loads::tensor) return {};
  return refuse(__func__, "loads", name(schedule.loads),
                "does not bring tiles as family=wgmma reads them", "loads=tensor");
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

// ---- how partials are joined and kernels launched -----------------------------------------------

// Clusters and programmatic launches came together.
std::string lacks_clusters(const Target& target) {
  return fmt::format("needs sm_{} or newer, not {}", kFirstWithClusters, print(target));
}

bool joins_in_clusters(const Schedule& schedule) { return schedule.reduce == Reduce::cluster; }

Verdict clusters_are_of_sm_90_and_newer(const Problem&, const Schedule& schedule,
                                        const Target& target) {
  if (!joins_in_clusters(schedule) || compute_capability(target) >= kFirstWithClusters) return {};
  return refuse(__func__, "reduce", name(schedule.reduce), lacks_clusters(target),
                "reduce=last_block cluster=1");
}

// The pieces of a cluster are of one sequence, which a cut of the whole line does not give.
Verdict clusters_hold_one_sequence(const Problem&, const Schedule& schedule, const Target&) {
  if (!joins_in_clusters(schedule) || schedule.partition != Partition::flat) return {};
  return refuse(__func__, "reduce", name(schedule.reduce),
                "needs pieces of one sequence side by side, which partition=flat does not give",
                "reduce=last_block cluster=1");
}

// Up to 8 on every device; more where the kernel asks for it.
Verdict cluster_is_in_range(const Problem&, const Schedule& schedule, const Target&) {
  if (joins_in_clusters(schedule))
    return refuse_outside(__func__, "cluster", schedule.cluster, 2, kMaxCluster);
  if (schedule.cluster == Schedule{}.cluster) return {};
  return refuse(__func__, "cluster", schedule.cluster,
                fmt::format("means nothing to reduce={}", name(schedule.reduce)),
                fmt::format("cluster={}", Schedule{}.cluster));
}

Verdict splits_are_whole_clusters(const Problem&, const Schedule& schedule, const Target&) {
  const int cluster = schedule.cluster;
  if (!joins_in_clusters(schedule) || schedule.splits % cluster == 0) return {};
  const int up = round_up(schedule.splits, cluster);
  return refuse(__func__, "splits", schedule.splits,
                fmt::format("is not a multiple of cluster={}", cluster),
                fmt::format("splits={}", up <= kMaxSplits ? up : up - cluster));
}

// A warp joins what the clusters of a sequence bring, a lane one cluster's statistics.
Verdict clusters_fit_a_warp(const Problem&, const Schedule& schedule, const Target&) {
  const int cluster = schedule.cluster;
  if (!joins_in_clusters(schedule) || schedule.splits <= kMaxClusters * cluster) return {};
  return refuse(__func__, "splits", schedule.splits,
                fmt::format("makes {} clusters of a sequence; at most {} are joined",
                            ceil_div(schedule.splits, cluster), kMaxClusters),
                fmt::format("splits={}", kMaxClusters * cluster));
}

// A partial rounded to bf16 is off by up to 2^-9 of itself: within the contract of bf16 outputs
// beside the rounding of the output, but not of others.
Verdict partials_are_as_exact_as_the_output(const Problem& problem, const Schedule& schedule,
                                            const Target& target) {
  const DType type = schedule.partial_dtype;
  if (type == DType::fp32) return {};
  const char* fits = "partials=fp32";
  if (type != DType::bf16)
    return refuse(__func__, "partials", name(type), "is neither fp32 nor bf16", fits);
  if (target.kind != TargetKind::cuda)
    return refuse(__func__, "partials", name(type),
                  fmt::format("is not exchanged on {}", print(target)), fits);
  if (problem.out_dtype == DType::bf16) return {};
  return refuse(__func__, "partials", name(type),
                fmt::format("is too coarse for out={}",
                            problem.out_partial ? "partial" : name(problem.out_dtype)),
                fits);
}

Verdict programmatic_launches_are_of_sm_90_and_newer(const Problem&, const Schedule& schedule,
                                                     const Target& target) {
  if (!schedule.pdl || compute_capability(target) >= kFirstWithClusters) return {};
  return refuse(__func__, "pdl", "on", lacks_clusters(target), "pdl=off");
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
  if (needed(fitting) <= kMaxRegistersPerThread)
    return refuse(__func__, "unroll", schedule.unroll,
                  fmt::format("with rows={} needs about {} registers a thread, above {}",
                              schedule.rows, needed(schedule), kMaxRegistersPerThread),
                  fmt::format("unroll={}", fitting.unroll));
  while (fitting.rows > 1 && needed(fitting) > kMaxRegistersPerThread) --fitting.rows;
  return refuse(__func__, "rows", schedule.rows,
                fmt::format("needs about {} registers a thread whatever unroll is, above {}",
                            needed(fitting), kMaxRegistersPerThread),
                fmt::format("rows={} unroll=1", fitting.rows));
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
                fmt::format("warps={}", warps / schedule.row_warps * schedule.row_warps));
}

// What a block of the wgmma family can give up: stages, then the cluster's join, then rows. The
// other family of tensor cores takes what it takes.
std::string fitting_wgmma(const Problem& problem, Schedule fitting, int64_t most) {
  const auto fits = [&] { return split_smem_bytes(problem, fitting) <= most; };
  while (fitting.stages > 2 && !fits()) --fitting.stages;
  const std::string stages = fmt::format("stages={}", fitting.stages);
  if (fits()) return stages;
  if (joins_in_clusters(fitting)) {
    fitting.reduce = Reduce::last_block;
    fitting.cluster = 1;
  }
  if (fits()) return stages + " reduce=last_block cluster=1";
  while (fitting.rows > 1 && !fits()) --fitting.rows;
  // Two tiles and the queries of wide rows may be too much however few rows there are.
  return fits() ? fmt::format("{} rows={}", stages, fitting.rows) : "family=mma";
}

// Offers fewer stages, else fewer warps, else fewer rows: what costs least speed first.
Verdict shared_memory_fits_a_block(const Problem& problem, const Schedule& schedule,
                                   const Target& target) {
  const auto needed = [&](const Schedule& candidate) {
    return split_smem_bytes(problem, candidate);
  };
  const int64_t most = target.smem_per_block_bytes;
  if (needed(schedule) <= most) return {};
  const std::string limit =
      fmt::format("needs {} bytes of shared memory, above {}", needed(schedule), most);
  if (is_wgmma(schedule))
    return refuse(__func__, "stages", schedule.stages, limit,
                  fitting_wgmma(problem, schedule, most));
  Schedule fitting = schedule;
  while (is_mma(schedule) && fitting.stages > 2 && needed(fitting) > most) --fitting.stages;
  if (needed(fitting) <= most)
    return refuse(__func__, "stages", schedule.stages, limit,
                  fmt::format("stages={}", fitting.stages));
  // A tile of whole steps for so many warps is one for half of them too.
  while (fitting.warps / 2 % fitting.row_warps == 0 && fitting.warps > fitting.row_warps &&
         needed(fitting) > most)
    fitting.warps = is_mma(schedule) ? fitting.warps / 2 : fitting.warps - 1;
  if (needed(fitting) <= most)
    return refuse(__func__, "warps", schedule.warps, limit,
                  is_mma(schedule)
                      ? fmt::format("warps={} stages={}", fitting.warps, fitting.stages)
                      : fmt::format("warps={}", fitting.warps));
  fitting.warps = fitting.row_warps = 1;
  fitting.rows = std::min(fitting.rows, is_mma(schedule) ? most_mma_rows(problem) : fitting.rows);
  while (fitting.rows > 1 && needed(fitting) > most) --fitting.rows;
  return refuse(__func__, "rows", schedule.rows, limit,
                is_mma(schedule) ? fmt::format("rows={} warps=1 row_warps=1 stages={}",
                                               fitting.rows, fitting.stages)
                                 : fmt::format("rows={} warps=1", fitting.rows));
}

constexpr ScheduleRule kTable[] = {
    {"family_runs_on_the_target", family_runs_on_the_target},
    {"mma_takes_16_bit_q", mma_takes_16_bit_q},
    {"mma_takes_k_like_q_or_of_8_bits", mma_takes_k_like_q_or_of_8_bits},
    {"mma_takes_v_of_16_or_8_bits", mma_takes_v_of_16_or_8_bits},
    {"mma_copies_words", mma_copies_words},
    {"mma_holds_a_row_of_v", mma_holds_a_row_of_v},
    {"wgmma_is_of_sm_90a", wgmma_is_of_sm_90a},
    {"wgmma_takes_one_16_bit_type", wgmma_takes_one_16_bit_type},
    {"wgmma_takes_whole_columns", wgmma_takes_whole_columns},
    {"wgmma_holds_a_row_of_v", wgmma_holds_a_row_of_v},
    {"wgmma_copies_16_bytes", wgmma_copies_16_bytes},
    {"wgmma_takes_tiles_of_one_page", wgmma_takes_tiles_of_one_page},
    {"wgmma_takes_no_scales_of_keys", wgmma_takes_no_scales_of_keys},
    {"warps_are_in_range", warps_are_in_range},
    {"row_warps_divide_the_rows", row_warps_divide_the_rows},
    {"tile_is_in_range", tile_is_in_range},
    {"tile_is_made_of_whole_steps", tile_is_made_of_whole_steps},
    {"rows_are_in_range", rows_are_in_range},
    {"unroll_is_a_power_of_two_up_to_8", unroll_is_a_power_of_two_up_to_8},
    {"stages_are_in_range", stages_are_in_range},
    {"tensor_loads_bring_whole_steps", tensor_loads_bring_whole_steps},
    {"wgmma_loads_by_tensor_map", wgmma_loads_by_tensor_map},
    {"splits_are_in_range", splits_are_in_range},
    {"blocks_are_in_range", blocks_are_in_range},
    {"clusters_are_of_sm_90_and_newer", clusters_are_of_sm_90_and_newer},
    {"clusters_hold_one_sequence", clusters_hold_one_sequence},
    {"cluster_is_in_range", cluster_is_in_range},
    {"splits_are_whole_clusters", splits_are_whole_clusters},
    {"clusters_fit_a_warp", clusters_fit_a_warp},
    {"partials_are_as_exact_as_the_output", partials_are_as_exact_as_the_output},
    {"programmatic_launches_are_of_sm_90_and_newer", programmatic_launches_are_of_sm_90_and_newer},
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
