#include "compiler/default_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <optional>
#include <vector>

#include "compiler/cost_model.hpp"
#include "compiler/schedule_candidates.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr int kMaxVectorRows = 8;

// ---- CUDA ---------------------------------------------------------------------------------------

// The lengths that a schedule is weighed on. Where a workload tells the longest of several rows
// only, all may be that long, or few. Both must go well, so both are weighed. With the mean it is
// one long row, and others that make up the rest.
using Lengths = std::vector<RowGroup>;

std::vector<Lengths> scenarios_of(const Problem& problem, const Workload& workload) {
  const int64_t batch = std::max<int64_t>(1, workload.batch);
  const int64_t longest = std::max<int64_t>(1, workload.kv_len);
  std::vector<Lengths> scenarios = {{{batch, longest}}};
  if (batch == 1 || problem.deterministic) return scenarios;
  if (workload.kv_len_mean > 0) {
    const int64_t mean = std::min(workload.kv_len_mean, longest);
    const int64_t rest = (batch * mean - longest) / (batch - 1);
    // Rows that differ by a tenth are cut as if they were equal.
    if (mean < longest - longest / 10)
      scenarios[0] = {{1, longest}, {batch - 1, std::max<int64_t>(1, rest)}};
    return scenarios;
  }
  const auto part = [&](int64_t share) { return std::max<int64_t>(1, longest / share); };
  const int64_t few = std::max<int64_t>(1, batch / 8), some = (batch - few) / 2;
  Lengths ragged = {{few, longest}};
  if (some > 0) ragged.push_back({some, part(8)});
  ragged.push_back({batch - few - some, part(64)});
  scenarios.push_back(std::move(ragged));
  return scenarios;
}

struct Candidate {
  Schedule schedule;
  std::array<double, 2> us = {};  // of each scenario
  double score = 0;               // sum of the times as multiples of the least of their scenarios
};

std::vector<Candidate> weigh(const Problem& problem, const Workload& workload, const Target& target,
                             std::optional<Family> family, const std::vector<Lengths>& scenarios) {
  std::vector<Candidate> candidates;
  std::array<double, 2> least;
  least.fill(std::numeric_limits<double>::infinity());
  for (const Schedule& code : code_candidates(problem, target, family)) {
    for (const Schedule& launch : launch_candidates(problem, workload, code, target)) {
      Candidate candidate{launch};
      for (size_t i = 0; i < scenarios.size(); ++i) {
        candidate.us[i] = predict(problem, scenarios[i], launch, target).total_us();
        least[i] = std::min(least[i], candidate.us[i]);
      }
      candidates.push_back(candidate);
    }
  }
  for (Candidate& candidate : candidates)
    for (size_t i = 0; i < scenarios.size(); ++i) candidate.score += candidate.us[i] / least[i];
  return candidates;
}

// The best that the verifier takes: a cluster may need more shared memory than the code alone. The
// first candidate, one split of a code that verifies, always is.
Candidate best_legal(const Problem& problem, const Target& target,
                     std::vector<Candidate>& candidates) {
  for (;;) {
    const auto best =
        std::min_element(candidates.begin(), candidates.end(),
                         [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
    if (!verify(problem, best->schedule, target)) return *best;
    best->score = std::numeric_limits<double>::infinity();
  }
}

std::string words_of(const Cost& cost) {
  std::string words =
      fmt::format("{:.1f} us (launch {:.1f}, start {:.1f}, read {:.1f}, join {:.1f}",
                  cost.total_us(), cost.launch_us, cost.start_us, cost.read_us, cost.join_us);
  if (cost.exchange_us > 0) words += fmt::format(", exchange {:.1f}", cost.exchange_us);
  if (cost.second_launch_us > 0)
    words += fmt::format(", second launch {:.1f}", cost.second_launch_us);
  return words + fmt::format("), bound by {}", name(cost.bound));
}

ScheduleChoice cuda_schedule(const Problem& problem, const Workload& hints, const Target& target,
                             std::optional<Family> family) {
  const Workload workload = problem.deterministic ? kOneLongRow : hints;
  const std::vector<Lengths> scenarios = scenarios_of(problem, workload);
  std::vector<Candidate> candidates = weigh(problem, workload, target, family, scenarios);
  const Candidate best = best_legal(problem, target, candidates);
  std::string lengths;
  for (const RowGroup& group : scenarios[0])
    lengths += fmt::format("{}{} x {}", lengths.empty() ? "" : " and ", group.rows, group.kv_len);
  std::string why =
      fmt::format("least of {} schedules on {} tokens: predicted {}", candidates.size(), lengths,
                  words_of(predict(problem, scenarios[0], best.schedule, target)));
  if (scenarios.size() > 1)
    why += fmt::format(
        "; {:.1f} us where {} of the rows are that long, the others an eighth and a 64th",
        best.us[1], scenarios[1][0].rows);
  if (problem.deterministic) why += "; deterministic=on: whatever the workload";
  return {best.schedule, why, Decider::cost_model};
}

// ---- CPU ----------------------------------------------------------------------------------------

// Splits that fill the threads at batch 1, whatever the batch: each row is cut alike everywhere.
ScheduleChoice deterministic_choice(const Problem& problem, Schedule schedule, int64_t workers) {
  const int64_t sequences = int64_t(problem.kv_heads) * row_blocks(problem, schedule);
  schedule.splits = int(std::clamp<int64_t>(workers / sequences, 1, 64));
  return {
      schedule,
      fmt::format("deterministic=on: splits={} from {} sequences of one batch row on {} workers, "
                  "whatever the workload",
                  schedule.splits, sequences, workers)};
}

ScheduleChoice cpu_schedule(const Problem& problem, const Workload& workload,
                            const Target& target) {
  Schedule schedule;
  schedule.family = Family::vector;
  schedule.warps = 1;
  schedule.rows = balanced_rows(problem, kMaxVectorRows);
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

const char* name(Decider decider) {
  switch (decider) {
    case Decider::cost_model:
      return "cost model";
    case Decider::record_exact:
      return "record exact";
    case Decider::record_near:
      return "record near";
    case Decider::record_other_device:
      return "record other device";
    case Decider::argument:
      return "argument";
    case Decider::environment:
      return "environment";
    case Decider::decision:
      return "decision";
  }
  return "?";
}

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
