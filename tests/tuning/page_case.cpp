#include "tests/tuning/page_case.hpp"

#include "compiler/text.hpp"
#include "runtime/tuning_pool.hpp"
#include "tests/tuning/tuning_case.hpp"

namespace splitkv::tuning_test {
namespace {

Schedule schedule_of(const char* words) {
  return *parse_schedule(std::string("schedule family=mma tile=64 rows=4 unroll=1 ") + words);
}

}  // namespace

tool::TuneReportData reported() {
  const Schedule best = schedule_of("warps=4 stages=3 partition=flat blocks=132 reduce=last_block");
  const Schedule own = schedule_of("warps=2 stages=2 partition=fixed splits=4 reduce=kernel");
  tool::ReportedProblem first;
  first.problem =
      "attention q=bf16 kv=bf16 heads=32/8 dim=128 where=query_pos-key_pos<1024&&key_pos>3";
  first.devices = "cuda:0, cuda:1";
  int64_t batch = 1;
  for (const double floor : {2.5, 40.0, 640.0, 12000.0}) {
    const TuningPoint point{batch, 4096, RowLengths::equal};
    first.points.push_back({point, floor, own, {{best, floor * 1.1, 9}, {own, floor * 1.65, 9}}});
    TuningRecord found = record(batch, 4096, RowLengths::equal, 4);
    found.bucket = bucket_of(*parse_problem(first.problem), workload_of(point));
    found.best = {best, floor * 1.1, 1.1};
    found.runners_up = {{own, floor * 1.65, 1.65}};
    first.records.push_back({found, 1.65, ""});
    batch *= 4;
  }
  first.failures = {{print(own), "check", std::string("wrong ") + kHostile + "\nsecond line"}};
  first.untuned = {std::string("batch=512 kv_len=4096 rows=equal: ") + kHostile};

  tool::ReportedProblem second;
  second.problem = kProblem;
  second.devices = "cuda:0, cuda:1";
  second.records = {{record(8, 8192, RowLengths::any, 6), 0, std::string(kHostile) + ":3"}};

  tool::TuneReportData data;
  data.version = "0.1.0";
  data.date = "2026-01-31";
  data.seconds = 41.7;
  data.devices = {{"cuda:0", kHostile, tuned_target(target()), "NVRTC-13.0", "580.65.06"},
                  {"cuda:1", "A card", tuned_target(target()), "NVRTC-13.0", "580.65.06"}};
  data.problems = {first, second};
  return data;
}

}  // namespace splitkv::tuning_test
