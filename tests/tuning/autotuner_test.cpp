// The search, on a bench whose times are a rule: what wins, what never does, and what time it
// takes.
#include "runtime/autotuner.hpp"

#include <gtest/gtest.h>

#include <set>

#include "codegen/kernel_source.hpp"
#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/kernel_key.hpp"
#include "tests/tuning/scripted_bench.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

const Problem kDecode = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=64");

TuningRequest request_of(std::vector<TuningPoint> points, double budget_s = 1000) {
  TuningRequest request;
  request.problem = kDecode;
  request.target = target();
  request.points = std::move(points);
  request.budget_s = budget_s;
  request.candidates = 24;
  request.date = "2026-01-31";
  return request;
}

TuningReport tune(const TuningRequest& request, ScriptedBench& bench) {
  TuningHooks hooks;
  hooks.now_s = [&] { return bench.now_s; };
  return autotune(request, bench, hooks);
}

// Slow all, but for those whose text holds the words.
ScriptedBench::Rule fast_where(const std::string& words) {
  return [words](const Schedule& schedule, const TuningPoint&) {
    return print(schedule).find(words) != std::string::npos ? 110.0 : 150.0;
  };
}

// A candidate that is not the library's own choice for the request's first point.
Schedule some_candidate(const TuningRequest& request, size_t number = 3) {
  return tuning_plan(request).at(number);
}

std::string kernel_of(const Schedule& schedule) {
  return without_comment_lines(emit(kDecode, schedule, target()));
}

TEST(Autotuner, TheFastestCandidateWinsItsBucket) {
  const TuningRequest request = request_of({{1, 8192}});
  const Schedule fast = some_candidate(request);
  ScriptedBench bench(fast_where(print(fast)));
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 1u);
  const TuningRecord& record = report.records[0];
  EXPECT_EQ(record.best.schedule, fast);
  EXPECT_EQ(record.best.us, 110);
  EXPECT_EQ(record.best.ratio, 1.1);
  EXPECT_EQ(print(record.bucket), "batch=1 kv_len=8192 rows=equal");
  EXPECT_EQ(report.untuned_ratio[0], 1.5);
  EXPECT_EQ(record.runners_up.size(), 3u);
  EXPECT_FALSE(report.out_of_time);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_TRUE(parse_record(print(record)).ok());
}

TEST(Autotuner, NothingIsMeasuredBeforeItsCheck) {
  ScriptedBench bench(fast_where("stages=3"));
  const TuningReport report = tune(request_of({{1, 8192}, {8, 8192}}), bench);
  EXPECT_FALSE(report.records.empty());
  EXPECT_TRUE(bench.unchecked_measurements.empty());
  EXPECT_EQ(std::set<std::string>(bench.checked.begin(), bench.checked.end()).size(),
            bench.checked.size());
}

TEST(Autotuner, WhoFailsAtAnyStageNeverWinsAndIsNamed) {
  const TuningRequest request = request_of({{1, 8192}});
  const Schedule fast = some_candidate(request);
  for (const char* stage : {"compile", "check", "measure"}) {
    ScriptedBench bench(fast_where(print(fast)));
    bench.faults = {{print(fast), stage, "illegal address", 0}};
    const TuningReport report = tune(request, bench);
    ASSERT_EQ(report.records.size(), 1u) << stage;
    EXPECT_NE(report.records[0].best.schedule, fast) << stage;
    for (const TunedTime& time : report.records[0].runners_up) EXPECT_NE(time.schedule, fast);
    ASSERT_EQ(report.failures.size(), 1u) << stage;
    EXPECT_EQ(report.failures[0].schedule, print(fast));
    EXPECT_EQ(report.failures[0].stage.find(stage), 0u) << report.failures[0].stage;
    EXPECT_EQ(report.failures[0].why, "illegal address");
    EXPECT_EQ(report.records[0].failed, 1);
    EXPECT_LE(bench.measured[print(fast)], 1);
  }
}

TEST(Autotuner, AHangCostsItsLimitAndTheOthersGoOn) {
  const TuningRequest request = request_of({{1, 8192}}, 60);
  const Schedule fast = some_candidate(request);
  ScriptedBench bench(fast_where(print(fast)));
  bench.faults = {{print(fast), "check", "gave no answer", 1e9}};
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_NE(report.records[0].best.schedule, fast);
  EXPECT_LE(bench.now_s, 62);
}

TEST(Autotuner, AHangInTheDefaultBudgetDoesNotUseItUp) {
  const TuningRequest request = request_of({{1, 8192}}, 20);
  ScriptedBench bench(fast_where("stages=3"));
  bench.faults = {{print(some_candidate(request, 2)), "check", "gave no answer", 1e9}};
  bench.compile_s = 0.2;
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_GT(report.checked, 10);
  EXPECT_LE(bench.now_s, 21);
}

TEST(Autotuner, WhatWasMeasuredIsToldOfEachPointTheFastestFirst) {
  const TuningRequest request = request_of({{1, 8192}, {8, 8192}, {64, 8192}});
  const Schedule slow = some_candidate(request, 2), gone = some_candidate(request, 4);
  ScriptedBench bench([&](const Schedule& schedule, const TuningPoint& point) {
    return double(point.batch) + (schedule == slow ? 200.0 : 110.0);
  });
  bench.faults = {{print(gone), "measure", "illegal address", 0}};
  bench.no_floor_at = "64x8192";
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.points.size(), 3u);
  EXPECT_EQ(report.points[1].point, request.points[1]);
  EXPECT_EQ(report.points[0].floor_us, 100);
  EXPECT_EQ(report.points[2].floor_us, 0);
  EXPECT_TRUE(report.points[2].times.empty());
  const auto& times = report.points[1].times;
  ASSERT_GT(times.size(), 3u);
  EXPECT_EQ(times.front().us, 118);
  EXPECT_EQ(times.front().repeat, 9);
  EXPECT_EQ(times.back().schedule, slow);
  EXPECT_EQ(times.back().us, 208);
  bool has_own = false;
  for (const PointTimes::Timed& timed : times) {
    EXPECT_NE(timed.schedule, gone);
    has_own |= timed.schedule == report.points[1].own;
  }
  EXPECT_TRUE(has_own);
}

TEST(Autotuner, CompilesNoMoreAtOnceThanItIsAllowed) {
  TuningRequest request = request_of({{1, 8192}});
  for (const int compiles : {0, 1, 3}) {
    request.compiles = compiles;
    ScriptedBench bench(fast_where("stages=3"));
    EXPECT_EQ(tune(request, bench).records.size(), 1u);
    EXPECT_EQ(bench.most_at_once, compiles == 0 ? bench.workers() : compiles);
  }
}

TEST(Autotuner, EndsWithinItsBudgetWithTheBestSoFar) {
  for (const double budget : {2.0, 10.0}) {
    const TuningRequest request = request_of({{1, 8192}, {8, 8192}, {64, 8192}}, budget);
    ScriptedBench bench(fast_where("stages=3"));
    bench.compile_s = 0.3, bench.measure_s = 0.05;
    const TuningReport report = tune(request, bench);
    EXPECT_LE(bench.now_s, budget + 2) << budget;
    EXPECT_TRUE(report.out_of_time) << budget;
    EXPECT_EQ(report.records.size(), 3u) << budget;
    for (size_t i = 0; i < report.records.size(); ++i) {
      EXPECT_LE(report.records[i].best.ratio, report.untuned_ratio[i]) << budget;
    }
  }
}

TEST(Autotuner, ABudgetThatIsTooShortLeavesBucketsUntunedAndSaysSo) {
  ScriptedBench bench(fast_where("stages=3"));
  bench.compile_s = 5;
  const TuningReport report = tune(request_of({{1, 8192}}, 1), bench);
  EXPECT_TRUE(report.records.empty());
  ASSERT_EQ(report.untuned.size(), 1u);
  EXPECT_NE(report.untuned[0].find("batch=1 kv_len=8192"), std::string::npos);
}

TEST(Autotuner, APointThatDoesNotFitInMemoryLeavesTheOthersTuned) {
  ScriptedBench bench(fast_where("stages=3"));
  bench.no_floor_at = "64x8192";
  const TuningReport report = tune(request_of({{1, 8192}, {64, 8192}}), bench);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_EQ(report.records[0].bucket.batch, 1);
  ASSERT_EQ(report.untuned.size(), 1u);
  EXPECT_NE(report.untuned[0].find("too large"), std::string::npos) << report.untuned[0];
  EXPECT_TRUE(report.failures.empty());
}

TEST(Autotuner, ABucketIsJudgedByTheWorstOfItsPoints) {
  // 5 and 8 rows share a bucket: one schedule is best at the one and bad at the other.
  const TuningRequest request = request_of({{5, 8192}, {8, 8192}});
  const std::string uneven = print(some_candidate(request, 4)),
                    even = print(some_candidate(request, 7));
  ScriptedBench bench([&](const Schedule& schedule, const TuningPoint& point) {
    const std::string text = print(schedule);
    if (text == uneven) return point.batch == 5 ? 101.0 : 140.0;
    return text == even ? 120.0 : 200.0;
  });
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_EQ(print(report.records[0].best.schedule), even);
  EXPECT_EQ(report.records[0].workloads, 2);
}

TEST(Autotuner, EqualAndRaggedRowsMakeARecordForCallersWhoDoNotSay) {
  ScriptedBench bench(fast_where("stages=3"));
  const TuningReport report = tune(request_of({{8, 8192}, {8, 8192, RowLengths::ragged}}), bench);
  std::set<std::string> buckets;
  for (const TuningRecord& record : report.records) buckets.insert(print(record.bucket));
  const std::set<std::string> wanted = {"batch=8 kv_len=8192 rows=equal",
                                        "batch=8 kv_len=8192 rows=ragged",
                                        "batch=8 kv_len=8192 rows=any"};
  EXPECT_EQ(buckets, wanted);
}

TEST(Autotuner, ManyBucketsMakeAtMostFourKernels) {
  std::vector<TuningPoint> points;
  for (const int64_t batch : {1, 2, 4, 8, 16, 32, 64, 128}) points.push_back({batch, 8192});
  // Each bucket has a code of its own that is best there, and by far.
  ScriptedBench bench([](const Schedule& schedule, const TuningPoint& point) {
    const size_t hash = std::hash<std::string>()(kernel_of(schedule));
    return 105.0 + double((hash ^ size_t(point.batch) * 0x9e3779b97f4a7c15u) % 97);
  });
  const TuningReport report = tune(request_of(points), bench);
  EXPECT_EQ(report.records.size(), points.size());
  std::set<std::string> kernels;
  for (const TuningRecord& record : report.records) kernels.insert(kernel_of(record.best.schedule));
  EXPECT_LE(kernels.size(), size_t(kMostTunedKernels));
  EXPECT_EQ(int(kernels.size()), report.kernels);
}

TEST(Autotuner, OneKernelIsKeptWhereItIsWithinTwoPercentEverywhere) {
  const TuningRequest request = request_of({{1, 8192}, {8, 8192}, {64, 8192}});
  const Schedule first = some_candidate(request, 0);
  ScriptedBench bench([&](const Schedule& schedule, const TuningPoint& point) {
    const bool same_code = kernel_of(schedule) == kernel_of(first);
    const bool is_own = point.batch == 1;
    return same_code ? (is_own ? 110.0 : 111.0) : (is_own ? 130.0 : 110.0);
  });
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 3u);
  EXPECT_EQ(report.kernels, 1);
}

TEST(Autotuner, DeterministicProblemsHaveOneScheduleForAllWorkloads) {
  TuningRequest request = request_of({{1, 8192}, {8, 1024}, {64, 32768}});
  request.problem.deterministic = true;
  ScriptedBench bench(fast_where("stages=3"));
  const TuningReport report = tune(request, bench);
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_EQ(print(report.records[0].bucket), "batch=* kv_len=* rows=any");
  EXPECT_EQ(report.records[0].workloads, 3);
  EXPECT_NE(report.records[0].best.schedule.partition, Partition::flat);
}

TEST(Autotuner, WhatIsMeasuredOftenIsWhatWasGoodAtFirst) {
  const TuningRequest request = request_of({{1, 8192}});
  ScriptedBench bench(fast_where(print(some_candidate(request))));
  const TuningReport report = tune(request, bench);
  int often = 0;
  for (const auto& [text, repeats] : bench.repeats) {
    if (repeats.back() == 9) ++often;
  }
  EXPECT_GE(often, 3);
  EXPECT_LE(often, 8);
  EXPECT_EQ(bench.repeats[print(report.records.at(0).best.schedule)].back(), 9);
}

}  // namespace
