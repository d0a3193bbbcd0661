// Work for several devices: who takes what, what becomes of a device that is lost, and how a
// request is divided.
#include "tools/splitkv/tune_deal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <new>
#include <set>

#include "compiler/text.hpp"
#include "runtime/tuning_process.hpp"
#include "tests/tuning/scripted_bench.hpp"
#include "tests/tuning/tuning_case.hpp"
#include "tools/splitkv/tune_devices.hpp"

using namespace splitkv;
using namespace splitkv::tool;
using namespace splitkv::tuning_test;

namespace {

using Machines = std::vector<std::vector<size_t>>;

TuningRequest request_of(const std::string& words = "") {
  TuningRequest request;
  request.problem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=64" + words);
  request.target = target();
  request.points = {{1, 1024}};
  request.candidates = 2;
  request.date = "2026-01-31";
  return request;
}

std::vector<TuneJob> jobs_for(const std::vector<size_t>& machines) {
  std::vector<TuneJob> jobs;
  for (const size_t machine : machines) jobs.push_back({request_of(), machine});
  return jobs;
}

Result<std::unique_ptr<TuningBench>> quick_bench() {
  return std::unique_ptr<TuningBench>(
      std::make_unique<ScriptedBench>([](const Schedule&, const TuningPoint&) { return 120.0; }));
}

// Hooks that note what happened. Reads of the notes come after deal().
struct Notes {
  std::mutex mutex;
  std::vector<std::pair<size_t, size_t>> done;  // job and device
  std::vector<size_t> lost;
  std::vector<double> budgets;  // of jobs as they begin

  DealHooks hooks() {
    DealHooks hooks;
    hooks.open = [](size_t, const Problem&) { return quick_bench(); };
    hooks.progress = [this](size_t, size_t, const TuningProgress& progress) {
      const std::lock_guard lock(mutex);
      if (progress.stage == "planning") budgets.push_back(progress.left_s);
    };
    hooks.done = [this](size_t job, size_t device, const TuningReport& report) {
      EXPECT_EQ(report.records.size(), 1u);
      done.emplace_back(job, device);
      return Outcome(Unit{});
    };
    hooks.lost = [this](size_t device, const Error&) { lost.push_back(device); };
    return hooks;
  }
  std::set<size_t> jobs() const {
    std::set<size_t> jobs;
    for (const auto& [job, device] : done) jobs.insert(job);
    return jobs;
  }
  std::set<size_t> devices() const {
    std::set<size_t> devices;
    for (const auto& [job, device] : done) devices.insert(device);
    return devices;
  }
};

TEST(Deal, DevicesOfOneMachineWorkSideBySideAndEachJobIsDoneOnce) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  std::latch both(2);  // neither goes on before the other has begun
  std::atomic<int> opened = 0;
  hooks.open = [&](size_t, const Problem&) {
    if (opened++ < 2) both.arrive_and_wait();
    return quick_bench();
  };
  const auto reports = deal(jobs_for({0, 0, 0, 0, 0}), Machines{{0, 1}}, 100, hooks);
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  EXPECT_EQ(reports->size(), 5u);
  EXPECT_EQ(notes.done.size(), 5u);
  EXPECT_EQ(notes.jobs().size(), 5u);
  EXPECT_EQ(notes.devices(), (std::set<size_t>{0, 1}));
}

TEST(Deal, MachinesDoTheirOwnJobsOnly) {
  Notes notes;
  const auto reports = deal(jobs_for({0, 1, 0, 1}), Machines{{0, 2}, {1}}, 100, notes.hooks());
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  ASSERT_EQ(notes.done.size(), 4u);
  for (const auto& [job, device] : notes.done) EXPECT_EQ(job % 2 == 1, device == 1) << job;
}

TEST(Deal, ALostDevicesWorkIsDoneByOthersEvenWhenTheyHadNothingLeft) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  std::latch other_began(1), first_done(1);
  hooks.open = [&](size_t device, const Problem&) -> Result<std::unique_ptr<TuningBench>> {
    if (device == 1) {
      other_began.count_down();
      first_done.wait();
      return Error{Status::device_error, "fell off the bus"};
    }
    other_began.wait();
    return quick_bench();
  };
  hooks.done = [&, done = hooks.done](size_t job, size_t device, const TuningReport& report) {
    if (first_done.try_wait() == false) first_done.count_down();
    return done(job, device, report);
  };
  const auto reports = deal(jobs_for({0, 0}), Machines{{0, 1}}, 100, hooks);
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  EXPECT_EQ(notes.jobs(), (std::set<size_t>{0, 1}));
  EXPECT_EQ(notes.devices(), std::set<size_t>{0});
  EXPECT_EQ(notes.lost, std::vector<size_t>{1});
}

TEST(Deal, WithoutADeviceLeftTheErrorIsToldAndWhatWasDoneWasKept) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  int opened = 0;
  hooks.open = [&](size_t, const Problem&) -> Result<std::unique_ptr<TuningBench>> {
    if (++opened == 2) return Error{Status::device_error, "fell off the bus"};
    return quick_bench();
  };
  const auto reports = deal(jobs_for({0, 0, 0}), Machines{{0}}, 100, hooks);
  ASSERT_FALSE(reports.ok());
  EXPECT_EQ(reports.error(), (Error{Status::device_error, "fell off the bus"}));
  EXPECT_EQ(notes.jobs(), std::set<size_t>{0});
  EXPECT_EQ(opened, 2);
}

TEST(Deal, OneMachinesLossLeavesTheOthersAtWork) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  hooks.open = [&](size_t device, const Problem&) -> Result<std::unique_ptr<TuningBench>> {
    if (device == 1) throw std::bad_alloc();
    return quick_bench();
  };
  const auto reports = deal(jobs_for({1, 0, 0}), Machines{{0}, {1}}, 100, hooks);
  ASSERT_FALSE(reports.ok());
  EXPECT_EQ(reports.error().message, "std::bad_alloc");
  EXPECT_EQ(notes.jobs(), (std::set<size_t>{1, 2}));
}

TEST(Deal, WhatCannotBeKeptEndsTheWhole) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  int kept = 0;
  hooks.done = [&](size_t, size_t, const TuningReport&) -> Outcome {
    ++kept;
    return Error{Status::internal, "no space left"};
  };
  const auto reports = deal(jobs_for({0, 0, 0, 0, 0, 0}), Machines{{0, 1}}, 100, hooks);
  ASSERT_FALSE(reports.ok());
  EXPECT_EQ(reports.error().message, "no space left");
  EXPECT_LE(kept, 2);
}

TEST(Deal, JobsShareTheTimeThatIsLeft) {
  Notes alone, pair;
  ASSERT_TRUE(deal(jobs_for({0, 0}), Machines{{0}}, 100, alone.hooks()).ok());
  ASSERT_EQ(alone.budgets.size(), 2u);
  EXPECT_NEAR(alone.budgets[0], 50, 5);
  EXPECT_NEAR(alone.budgets[1], 100, 10);  // the first left nearly all
  DealHooks hooks = pair.hooks();
  std::latch both(2);
  hooks.open = [&](size_t, const Problem&) {
    both.arrive_and_wait();
    return quick_bench();
  };
  ASSERT_TRUE(deal(jobs_for({0, 0}), Machines{{0, 1}}, 100, hooks).ok());
  ASSERT_EQ(pair.budgets.size(), 2u);
  EXPECT_NEAR(*std::min_element(pair.budgets.begin(), pair.budgets.end()), 100, 10);
}

TEST(Deal, MeasuresInAProcessOfEachDevice) {
  Notes notes;
  DealHooks hooks = notes.hooks();
  hooks.open = [](size_t, const Problem&) -> Result<std::unique_ptr<TuningBench>> {
    auto bench = ProcessBench::start({SPLITKV_TEST_WORKER}, 20);
    if (!bench) return bench.error();
    return std::unique_ptr<TuningBench>(std::move(*bench));
  };
  const auto reports = deal(jobs_for({0, 0, 0}), Machines{{0, 1}}, 100, hooks);
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  EXPECT_EQ(notes.jobs().size(), 3u);
  for (const TuningReport& report : *reports) EXPECT_TRUE(report.failures.empty());
}

TEST(Deal, NothingToDoIsNoError) {
  Notes notes;
  const auto reports = deal({}, Machines{{0, 1}}, 100, notes.hooks());
  ASSERT_TRUE(reports.ok());
  EXPECT_TRUE(reports->empty());
}

TEST(Divided, PointsOfOneSizeStayTogetherAndPartsAreAboutEqual) {
  TuningRequest request = request_of();
  const auto ragged = RowLengths::ragged;
  request.points = {{1, 4096},  {8, 4096},  {8, 4096, ragged},
                    {1, 32768}, {8, 32768}, {8, 32768, ragged}};
  const auto parts = divided(request, 2);
  ASSERT_EQ(parts.size(), 2u);
  // 524288 tokens are two points of a size; all others together are 102400.
  EXPECT_EQ(parts[0].points, (std::vector<TuningPoint>{{8, 32768}, {8, 32768, ragged}}));
  EXPECT_EQ(parts[1].points,
            (std::vector<TuningPoint>{{1, 4096}, {8, 4096}, {8, 4096, ragged}, {1, 32768}}));
  EXPECT_EQ(divided(request, 1).front().points, request.points);
  EXPECT_EQ(divided(request, 9).size(), 4u);
  for (const TuningRequest& part : divided(request, 9)) {
    EXPECT_FALSE(part.points.empty());
    EXPECT_EQ(part.candidates, request.candidates);
  }
}

TEST(Divided, ADeterministicProblemStaysWhole) {
  TuningRequest request = request_of(" deterministic=on");
  request.points = {{1, 4096}, {8, 32768}};
  const auto parts = divided(request, 4);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].points, request.points);
}

TEST(MachinesOf, AreDevicesThatRecordsDoNotTellApart) {
  Target other = target();
  other.sm_count -= 1;
  const std::vector<TuneDevice> devices = {
      {"cuda:0", target(), {}}, {"cuda:1", other, {}}, {"cuda:2", target(), {}}};
  EXPECT_EQ(machines_of(devices), (Machines{{0, 2}, {1}}));
}

}  // namespace
