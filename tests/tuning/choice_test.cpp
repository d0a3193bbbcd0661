// Who decides: explicit words, the environment, the user's file, the library's records, the cost
// model; and how a record matches.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/schedule_choice.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

const Problem kDecode = *parse_problem(kProblem);
const Workload kEight{8, 8192, 8192};

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// A user's file and shipped records of a test's own.
class Choice : public testing::Test {
 protected:
  void SetUp() override { setenv("SPLITKV_TUNING_FILE", file_.c_str(), 1); }
  void TearDown() override { setenv("SPLITKV_TUNING_FILE", "off", 1); }

  void user_has(const TuningRecord& kept) { ASSERT_TRUE(append_record(file_, kept).ok()); }
  void ship(const TuningRecord& kept) { shipped_ += print(kept) + "\n"; }
  TunedSchedules& tuned() {
    if (!tuned_) tuned_.emplace(log_.log(), shipped_);
    return *tuned_;
  }
  ScheduleChoice choose(const char* argument = nullptr, const std::string& variable = "",
                        const Workload& workload = kEight, const Problem& problem = kDecode,
                        const Target& machine = target()) {
    const auto choice = choose_schedule(problem, workload, machine, argument, variable, &tuned());
    EXPECT_TRUE(choice.ok()) << choice.error().message;
    return choice.ok() ? *choice : ScheduleChoice{};
  }

  const TempFolder folder_;
  const std::string file_ = folder_ / "tuning.txt";
  std::string shipped_;
  KeptLog log_;
  std::optional<TunedSchedules> tuned_;
};

TEST_F(Choice, GoesFromExplicitWordsToTheCostModel) {
  const ScheduleChoice own = default_schedule(kDecode, kEight, target());
  EXPECT_EQ(choose().schedule, own.schedule);
  EXPECT_EQ(choose().why, own.why);
  EXPECT_EQ(choose().decider, Decider::cost_model);

  ship(record(8, 8192, RowLengths::equal, 11));
  tuned_.reset();
  EXPECT_EQ(choose().schedule.splits, 11);
  EXPECT_TRUE(says(choose().why, "tuned, exact match: the library's records:1")) << choose().why;

  user_has(record(8, 8192, RowLengths::equal, 12));
  EXPECT_EQ(choose().schedule.splits, 12);
  EXPECT_TRUE(says(choose().why, "tuned, exact match: " + file_ + ":1")) << choose().why;
  EXPECT_EQ(choose().decider, Decider::record_exact);

  EXPECT_EQ(choose(nullptr, "splits=5").schedule.splits, 5);
  EXPECT_EQ(choose(nullptr, "splits=5").decider, Decider::environment);
  EXPECT_EQ(choose("splits=6", "splits=5").decider, Decider::argument);
  EXPECT_EQ(choose(nullptr, "splits=5").why.find("SPLITKV_SCHEDULE (splits=5)"), 0u);
  EXPECT_EQ(choose("splits=6", "splits=5").schedule.splits, 6);
  EXPECT_EQ(choose("splits=6", "splits=5").why.find("the schedule argument (splits=6)"), 0u);
}

TEST_F(Choice, WordsAreReadOverWhatWasTunedUnlessTheyNameAnotherFamily) {
  user_has(record(8, 8192, RowLengths::equal, 12));
  const Schedule tuned_one = choose().schedule;
  Schedule wanted = tuned_one;
  wanted.splits = 5;
  EXPECT_EQ(choose("splits=5").schedule, wanted);
  EXPECT_EQ(choose("family=simt").schedule,
            default_schedule(kDecode, kEight, target(), Family::simt).schedule);
}

TEST_F(Choice, OffMeansNoRecordsAtAll) {
  ship(record(8, 8192, RowLengths::equal, 11));
  user_has(record(8, 8192, RowLengths::equal, 12));
  setenv("SPLITKV_TUNING_FILE", "off", 1);
  EXPECT_EQ(choose().why, default_schedule(kDecode, kEight, target()).why);
}

TEST_F(Choice, TheLaterOfTwoRecordsCounts) {
  user_has(record(8, 8192, RowLengths::equal, 12));
  user_has(record(8, 8192, RowLengths::equal, 13));
  EXPECT_EQ(choose().schedule.splits, 13);
}

TEST_F(Choice, AFileThatGrowsIsReadAgain) {
  user_has(record(8, 8192, RowLengths::equal, 12));
  EXPECT_EQ(choose().schedule.splits, 12);
  user_has(record(8, 8192, RowLengths::equal, 13));
  EXPECT_EQ(choose().schedule.splits, 13);
  unlink(file_.c_str());
  EXPECT_EQ(choose().why, default_schedule(kDecode, kEight, target()).why);
}

TEST_F(Choice, ANearBucketLendsItsKernelAndSaysSo) {
  user_has(record(16, 16384, RowLengths::equal, 12));
  const ScheduleChoice choice = choose();
  EXPECT_TRUE(says(choice.why, "tuned, near bucket match")) << choice.why;
  EXPECT_EQ(choice.decider, Decider::record_near);
  EXPECT_TRUE(says(choice.why, "batch=16 kv_len=16384")) << choice.why;
  Schedule kernel = choice.schedule;
  kernel.splits = 12;
  EXPECT_EQ(kernel, record(16, 16384, RowLengths::equal, 12).best.schedule);
  EXPECT_FALSE(verify(kDecode, choice.schedule, target()));
}

TEST_F(Choice, OfNearBucketsTheNearestCounts) {
  user_has(record(16, 16384, RowLengths::equal, 12));
  user_has(record(16, 8192, RowLengths::equal, 12));
  user_has(record(8, 2048, RowLengths::equal, 12));
  EXPECT_TRUE(says(choose().why, file_ + ":2")) << choose().why;
}

TEST_F(Choice, WhatIsMoreThanTwoStepsAwayIsNoMatch) {
  user_has(record(64, 8192, RowLengths::equal, 12));
  user_has(record(16, 32768, RowLengths::equal, 12));
  EXPECT_EQ(choose().why, default_schedule(kDecode, kEight, target()).why);
}

TEST_F(Choice, AnotherDeviceOfTheArchitectureComesAfterEveryMatchOnThisOne) {
  Target other = target();
  other.sm_count = 114;
  TuningRecord elsewhere = record(8, 8192, RowLengths::equal, 12);
  elsewhere.target = tuned_target(other);
  user_has(elsewhere);
  const ScheduleChoice choice = choose();
  EXPECT_TRUE(says(choice.why, "other device of the same architecture")) << choice.why;
  EXPECT_EQ(choice.decider, Decider::record_other_device);
  EXPECT_TRUE(says(choice.why, "sms=114")) << choice.why;
  ship(record(16, 8192, RowLengths::equal, 4));
  tuned_.reset();
  EXPECT_TRUE(says(choose().why, "near bucket match: the library's records")) << choose().why;
}

TEST_F(Choice, AnExactMatchOfTheLibraryBeatsANearOneOfTheUser) {
  ship(record(8, 8192, RowLengths::equal, 11));
  user_has(record(16, 8192, RowLengths::equal, 12));
  EXPECT_EQ(choose().schedule.splits, 11);
}

TEST_F(Choice, OtherProblemsAndArchitecturesAreNoMatch) {
  user_has(record(8, 8192, RowLengths::equal, 12));
  const Problem fp16 = *parse_problem("attention q=fp16 kv=fp16 heads=32/8 dim=128");
  EXPECT_FALSE(says(choose(nullptr, "", kEight, fp16).why, "tuned"));
  const Target older = *parse_target("cuda:sm_80");
  EXPECT_FALSE(says(choose(nullptr, "", kEight, kDecode, older).why, "tuned"));
}

TEST_F(Choice, EqualRowsNeverDecideForRaggedOnesNorForThoseWhoDoNotSay) {
  user_has(record(8, 8192, RowLengths::equal, 12));
  const Workload ragged{8, 8192, 2000}, unknown{8, 8192, 0};
  EXPECT_FALSE(says(choose(nullptr, "", ragged).why, "tuned"));
  EXPECT_FALSE(says(choose(nullptr, "", unknown).why, "tuned"));
  user_has(record(8, 8192, RowLengths::any, 13));
  EXPECT_EQ(choose(nullptr, "", unknown).schedule.splits, 13);
  EXPECT_TRUE(says(choose(nullptr, "", unknown).why, "exact match"));
  EXPECT_TRUE(says(choose(nullptr, "", ragged).why, "near bucket match"));
  EXPECT_EQ(choose().schedule.splits, 12);
}

TEST_F(Choice, DamagedLinesAreWarnedOfOnceAndTheRestIsUsed) {
  const std::string good = print(record(8, 8192, RowLengths::equal, 12));
  overwrite(file_, "rubbish\n" + good + "\n" + good.substr(0, 60) + "\n");
  EXPECT_EQ(choose().schedule.splits, 12);
  EXPECT_EQ(choose().schedule.splits, 12);
  ASSERT_EQ(log_.warnings.size(), 2u);
  EXPECT_EQ(log_.warnings[0].find(file_ + ":1: "), 0u) << log_.warnings[0];
  EXPECT_EQ(log_.warnings[1].find(file_ + ":3: "), 0u) << log_.warnings[1];
}

TEST_F(Choice, ARecordThatARuleRefusesIsWarnedOfAndLeftOut) {
  TuningRecord kept = record(8, 8192, RowLengths::equal, 12);
  kept.best.schedule.rows = 40;  // more than a group has
  user_has(kept);
  EXPECT_EQ(choose().why, default_schedule(kDecode, kEight, target()).why);
  ASSERT_FALSE(log_.warnings.empty());
  EXPECT_TRUE(says(log_.warnings[0], file_ + ":1")) << log_.warnings[0];
}

// Numbers that no code could be made of reach the rules before anything is divided by them.
TEST_F(Choice, WordsWithoutASenseAreRefusedWhateverPartitionTheyName) {
  for (const char* partition : {"splits=4", "partition=flat"})
    for (const char* word :
         {"row_warps=0", "row_warps=-1", "row_warps=536870912", "warps=0", "cluster=0", "rows=0"}) {
      const std::string words = fmt::format("{} {}", partition, word);
      for (const Workload& workload : {kEight, Workload{64, 100, 0}, Workload{1, 131072, 0}}) {
        const auto choice =
            choose_schedule(kDecode, workload, target(), words.c_str(), "", &tuned());
        EXPECT_FALSE(choice.ok()) << words;
      }
    }
}

TEST_F(Choice, ARecordWithoutASenseIsLeftOutBeforeItIsFitted) {
  TuningRecord kept = record(16, 8192, RowLengths::equal, 11);  // a near bucket
  kept.best.schedule.warps = 0;
  ship(kept);
  EXPECT_EQ(choose().decider, Decider::cost_model);
}

// Named rows come without the warps that divided others.
TEST_F(Choice, NamedRowsOverWarpsThatDivideThemStayOnTensorCores) {
  const Problem wide = *parse_problem("attention q=bf16 kv=bf16 heads=128/1 dim=576/512 v_in_k=on");
  ASSERT_GT(default_schedule(wide, kEight, target()).schedule.row_warps, 1);
  const auto choice = choose_schedule(wide, kEight, target(), "rows=8", "", &tuned());
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(choice->schedule.family, Family::mma);
  EXPECT_EQ(choice->schedule.row_warps, 1);
}

TEST_F(Choice, AFileThatCannotBeReadIsNoError) {
  ASSERT_EQ(setenv("SPLITKV_TUNING_FILE", (folder_ / "").c_str(), 1), 0);
  EXPECT_EQ(choose().why, default_schedule(kDecode, kEight, target()).why);
  EXPECT_EQ(log_.warnings.size(), 1u);
}

}  // namespace
