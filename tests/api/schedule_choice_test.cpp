// Argument over SPLITKV_SCHEDULE over the library's choice, and what partial words mean.
#include "runtime/schedule_choice.hpp"

#include <gtest/gtest.h>

#include "codegen/launch_shape.hpp"
#include "compiler/text.hpp"

using namespace splitkv;

namespace {

const Problem kProblem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=128");
const Target kTarget = *parse_target("cuda:sm_90a");
const Workload kWorkload{4, 8192};

Result<ScheduleChoice> choose(const char* argument, const std::string& variable) {
  return choose_schedule(kProblem, kWorkload, kTarget, argument, variable);
}

TEST(ScheduleChoiceOf, NothingIsTheLibrarysOwn) {
  const auto choice = choose(nullptr, "");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->schedule, default_schedule(kProblem, kWorkload, kTarget).schedule);
  EXPECT_EQ(choice->why, default_schedule(kProblem, kWorkload, kTarget).why);
}

TEST(ScheduleChoiceOf, AnArgumentWinsOverTheVariableAndSaysSo) {
  const auto argument = choose("splits=7", "splits=3");
  ASSERT_TRUE(argument.ok()) << argument.error().message;
  EXPECT_EQ(argument->schedule.splits, 7);
  EXPECT_EQ(argument->why.find("the schedule argument (splits=7)"), 0u) << argument->why;
  const auto variable = choose(nullptr, "splits=3");
  ASSERT_TRUE(variable.ok()) << variable.error().message;
  EXPECT_EQ(variable->schedule.splits, 3);
  EXPECT_EQ(variable->why.find("SPLITKV_SCHEDULE (splits=3)"), 0u) << variable->why;
  const auto empty = choose("", "splits=3");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->schedule, default_schedule(kProblem, kWorkload, kTarget).schedule);
}

TEST(ScheduleChoiceOf, SplitsAloneNeverLeaveAFlatPartition) {
  const auto choice = choose("splits=7", "");
  ASSERT_TRUE(choice.ok());
  EXPECT_NE(choice->schedule.partition, Partition::flat);
  EXPECT_EQ(choice->schedule.blocks, 0);
}

TEST(ScheduleChoiceOf, APartitionWithoutItsCountKeepsAboutTheGrid) {
  const Schedule own = default_schedule(kProblem, kWorkload, kTarget).schedule;
  const auto grid = [](const Schedule& schedule) {
    return launch_shape(kProblem, schedule, kWorkload.batch).split_blocks;
  };
  for (const char* words : {"partition=flat", "partition=fixed", "partition=strided"}) {
    const auto choice = choose(words, "");
    ASSERT_TRUE(choice.ok()) << words << ": " << choice.error().message;
    EXPECT_GE(2 * grid(choice->schedule), grid(own)) << words;
    EXPECT_LE(grid(choice->schedule), 2 * grid(own)) << words;
  }
}

TEST(ScheduleChoiceOf, SplitsGoOverAChoiceThatJoinsInClusters) {
  const Problem problem = *parse_problem("attention q=bf16 kv=bf16 heads=8/1 dim=128");
  const Workload workload{1, 131072};
  ASSERT_EQ(default_schedule(problem, workload, kTarget).schedule.reduce, Reduce::cluster);
  const auto seven = choose_schedule(problem, workload, kTarget, "splits=7", "");
  ASSERT_TRUE(seven.ok()) << seven.error().message;
  EXPECT_EQ(seven->schedule.reduce, Reduce::last_block);
  EXPECT_EQ(seven->schedule.cluster, 1);
  const auto whole = choose_schedule(problem, workload, kTarget, "splits=16", "");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->schedule.reduce, Reduce::cluster);
}

TEST(ScheduleChoiceOf, LargeClustersAreLaunchedEarlyOnlyWhereThatIsNamed) {
  EXPECT_FALSE(choose("partition=fixed splits=8 cluster=8", "")->schedule.pdl);
  EXPECT_TRUE(choose("partition=fixed splits=8 cluster=8 pdl=on", "")->schedule.pdl);
  EXPECT_TRUE(choose("partition=fixed splits=8 cluster=2", "")->schedule.pdl);
}

TEST(ScheduleChoiceOf, AFullTextIsTakenAsItStands) {
  const char* text = "schedule family=simt tile=128 rows=2 partition=strided splits=5";
  const auto choice = choose(text, "");
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  EXPECT_EQ(print(choice->schedule), print(*parse_schedule(text)));
}

TEST(ScheduleChoiceOf, ErrorsSayWhoHeldTheWords) {
  const auto argument = choose("splits=x", "");
  ASSERT_FALSE(argument.ok());
  EXPECT_EQ(argument.error().status, Status::invalid_argument);
  EXPECT_EQ(argument.error().message.find("in the schedule argument: splits=x"), 0u);
  const auto variable = choose(nullptr, "family=vector");
  ASSERT_FALSE(variable.ok());
  EXPECT_EQ(variable.error().status, Status::unsupported);
  EXPECT_EQ(variable.error().message.find("in SPLITKV_SCHEDULE (family=vector): "), 0u);
}

}  // namespace
