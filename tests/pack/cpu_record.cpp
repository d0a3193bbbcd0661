#include "tests/pack/cpu_record.hpp"

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "runtime/cpu/host.hpp"
#include "runtime/tuning_record.hpp"
#include "tests/pack/pack_case.hpp"

namespace splitkv::pack_test {

std::string record_seven_splits(const std::string& problem_text, const std::string& path) {
  const Problem problem = *parse_problem(problem_text);
  const Target target = *resolve_cpu_target("cpu", 1);
  ScheduleChoice choice = default_schedule(problem, {1, 4096}, target);
  choice.schedule = *parse_schedule("partition=fixed splits=7", choice.schedule);
  TuningRecord record;
  record.problem = tuned_problem(problem);
  record.bucket = bucket_of(problem, {1, 4096});
  record.target = tuned_target(target);
  record.best = {choice.schedule, 10, 1.5};
  record.workloads = 1;
  record.splitkv = splitkv_version();
  record.compiler = "LLVM";
  record.driver = "none";
  record.date = "2026-01-31";
  overwrite(path, print(record) + "\n");
  return print(choice.schedule);
}

}  // namespace splitkv::pack_test
