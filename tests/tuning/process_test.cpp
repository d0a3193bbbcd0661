// A measuring process that crashes, hangs, ends or refuses costs one answer: the next one comes
// from a new process.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "compiler/text.hpp"
#include "runtime/autotuner.hpp"
#include "runtime/tuning_process.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

constexpr int kCrash = 101, kHang = 102, kExit = 103, kFail = 104, kCrashInCompile = 105;

Schedule with_splits(int splits) {
  return record(8, 8192, RowLengths::equal, splits).best.schedule;
}

std::unique_ptr<ProcessBench> start(const char* how = "") {
  auto bench = ProcessBench::start({SPLITKV_TEST_WORKER, how}, 10);
  EXPECT_TRUE(bench.ok()) << bench.error().message;
  return std::move(*bench);
}

std::string fault_of(const Outcome& outcome) { return outcome ? "" : outcome.error().message; }

TEST(ProcessBench, AnswersAsTheBenchBehindItDoes) {
  const auto bench = start();
  EXPECT_EQ(bench->workers(), 3);
  EXPECT_TRUE(bench->check(with_splits(5), 5).ok());
  EXPECT_EQ(*bench->floor_us({7, 100}, 5), 7);
  EXPECT_EQ(*bench->floor_us({7, 100, RowLengths::ragged}, 5), 7.5);
  EXPECT_EQ(*bench->time_us(with_splits(512), {8, 128}, 3, 5), 3008128.5);
  const auto prepared = bench->prepare({with_splits(1), with_splits(kFail), with_splits(2)}, 5);
  ASSERT_EQ(prepared.size(), 3u);
  EXPECT_TRUE(prepared[0].ok());
  EXPECT_EQ(fault_of(prepared[1]), "two\nlines \\ and a backslash");
  EXPECT_TRUE(prepared[2].ok());
  EXPECT_EQ(bench->starts(), 1);
}

TEST(ProcessBench, ACrashIsToldByItsSignalAndANewProcessGoesOn) {
  const auto bench = start();
  EXPECT_NE(fault_of(bench->check(with_splits(kCrash), 5)).find("signal 11"), std::string::npos);
  EXPECT_TRUE(bench->check(with_splits(5), 5).ok());
  EXPECT_EQ(bench->starts(), 2);
  const auto timed = bench->time_us(with_splits(kExit), {8, 128}, 1, 5);
  ASSERT_FALSE(timed.ok());
  EXPECT_NE(timed.error().message.find("status 7"), std::string::npos) << timed.error().message;
  EXPECT_TRUE(bench->check(with_splits(5), 5).ok());
}

TEST(ProcessBench, AHangIsEndedAtItsLimit) {
  const auto bench = start();
  const auto begin = std::chrono::steady_clock::now();
  const std::string fault = fault_of(bench->check(with_splits(kHang), 0.3));
  EXPECT_NE(fault.find("no answer within 0.3 s"), std::string::npos) << fault;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(bench->check(with_splits(5), 5).ok());
}

TEST(ProcessBench, WhoCrashesTheCompilerIsFoundAmongTheOthers) {
  const auto bench = start();
  const auto prepared =
      bench->prepare({with_splits(1), with_splits(kCrashInCompile), with_splits(2)}, 20);
  ASSERT_EQ(prepared.size(), 3u);
  EXPECT_TRUE(prepared[0].ok()) << fault_of(prepared[0]);
  EXPECT_NE(fault_of(prepared[1]).find("signal 6"), std::string::npos) << fault_of(prepared[1]);
  EXPECT_TRUE(prepared[2].ok()) << fault_of(prepared[2]);
}

TEST(ProcessBench, ThatIsNeverReadyIsAnErrorAtTheStart) {
  const auto gone = ProcessBench::start({SPLITKV_TEST_WORKER, "never_ready"}, 10);
  ASSERT_FALSE(gone.ok());
  EXPECT_NE(gone.error().message.find("status 3"), std::string::npos) << gone.error().message;
  const auto silent = ProcessBench::start({SPLITKV_TEST_WORKER, "silent"}, 0.2);
  ASSERT_FALSE(silent.ok());
  const auto none = ProcessBench::start({SPLITKV_TEST_WORKER, "no_bench"}, 10);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error(), (Error{Status::library_missing, "no such device"}));
  const auto missing = ProcessBench::start({"/no/such/program"}, 10);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/no/such/program"), std::string::npos);
}

// The system forgets such children at once: their ids may be others' when the bench looks.
TEST(ProcessBench, OfAProgramThatIgnoresSigchldSaysThatNoStatusIsLeft) {
  struct Ignored {
    sighandler_t before = signal(SIGCHLD, SIG_IGN);
    ~Ignored() { signal(SIGCHLD, before); }
  } ignored;
  const auto bench = start();
  const auto begin = std::chrono::steady_clock::now();
  const std::string fault = fault_of(bench->check(with_splits(kExit), 5));
  EXPECT_NE(fault.find("SIGCHLD"), std::string::npos) << fault;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
  EXPECT_TRUE(bench->check(with_splits(5), 5).ok());
  EXPECT_NE(fault_of(bench->check(with_splits(kHang), 0.2)).find("no answer"), std::string::npos);
}

TEST(ProcessBench, CarriesAWholeSearch) {
  const auto bench = start();
  TuningRequest request;
  request.problem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=64");
  request.target = target();
  request.points = {{4, 8192}};
  request.candidates = 8;
  request.date = "2026-01-31";
  const TuningReport report = autotune(request, *bench, {});
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_EQ(bench->starts(), 1);
}

}  // namespace
