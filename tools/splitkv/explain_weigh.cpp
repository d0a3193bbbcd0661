#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/schedule_candidates.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench_rows.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/explain.hpp"

namespace splitkv::tool {
namespace {

Workload workload_of(const std::vector<RowGroup>& rows) {
  Workload workload{0, 1};
  int64_t tokens = 0;
  for (const RowGroup& group : rows) {
    workload.batch += group.rows;
    workload.kv_len = std::max(workload.kv_len, group.kv_len);
    tokens += group.rows * group.kv_len;
  }
  if (workload.batch > 0) workload.kv_len_mean = std::max<int64_t>(1, tokens / workload.batch);
  return workload;
}

}  // namespace

std::vector<RowGroup> row_groups(const std::vector<int32_t>& kv_len) {
  std::map<int32_t, int64_t> counts;
  for (const int32_t length : kv_len) ++counts[length];
  std::vector<RowGroup> groups;
  for (const auto& [length, count] : counts) groups.push_back({count, length});
  return groups;
}

std::string kind_of(const Schedule& schedule) {
  std::string kind = fmt::format("{}, {}", name(schedule.partition), name(schedule.reduce));
  if (schedule.reduce == Reduce::cluster) kind += fmt::format(" of {}", schedule.cluster);
  return kind;
}

std::vector<Weighed> best_of_kinds(const Problem& problem, const std::vector<RowGroup>& rows,
                                   const Target& target, const std::string& kind) {
  std::map<std::string, Weighed> best;
  const Workload workload = workload_of(rows);
  for (const Schedule& code : code_candidates(problem, target, std::nullopt)) {
    for (const Schedule& launch : all_launches(problem, workload, code, target)) {
      Weighed next{kind_of(launch), launch, predict(problem, rows, launch, target), 0, ""};
      if (next.kind == kind || verify(problem, launch, target)) continue;
      const auto [at, is_new] = best.emplace(next.kind, next);
      if (!is_new && next.cost.total_us() < at->second.cost.total_us()) at->second = next;
    }
  }
  std::vector<Weighed> list;
  for (auto& [key, weighed] : best) list.push_back(std::move(weighed));
  std::stable_sort(list.begin(), list.end(), [](const Weighed& a, const Weighed& b) {
    return a.cost.total_us() < b.cost.total_us();
  });
  return list;
}

Result<Explanation> explain(const Problem& problem, const std::vector<int32_t>& kv_len,
                            const Target& target, const std::string& schedule_words) {
  if (target.kind != TargetKind::cuda) {
    return Error{Status::unsupported,
                 fmt::format("--target={}: the cost model is of CUDA targets; --target=cuda:sm_90a "
                             "or --target=cuda:0 would work",
                             print(target))};
  }
  Explanation explanation;
  explanation.problem = problem;
  explanation.target = target;
  explanation.rows = row_groups(kv_len);
  const auto choice =
      chosen_schedule(problem, workload_of(explanation.rows), target, schedule_words);
  if (!choice) return choice.error();
  explanation.why = choice->why;
  explanation.chosen = {kind_of(choice->schedule), choice->schedule,
                        predict(problem, explanation.rows, choice->schedule, target), 0, ""};
  explanation.others = best_of_kinds(problem, explanation.rows, target, explanation.chosen.kind);
  explanation.resources = resources_of(problem, choice->schedule, target);
  explanation.kv_bytes = kv_bytes(problem, kv_len);
  return explanation;
}

}  // namespace splitkv::tool
