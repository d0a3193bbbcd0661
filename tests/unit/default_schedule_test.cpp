#include "compiler/default_schedule.hpp"

#include <gtest/gtest.h>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

Problem problem_of(std::string_view text) { return parse_problem(text).value(); }
Target target_of(std::string_view text) { return parse_target(text).value(); }

Workload random_workload(Engine& engine) {
  return {between(engine, 0, 300), int64_t(1) << between(engine, 0, 20)};
}

TEST(DefaultSchedule, VerifiesForEveryLegalProblemWorkloadAndTarget) {
  Engine engine(1);
  for (int i = 0; i < 3000; ++i) {
    const Target target = random_target(engine);
    const Problem problem = random_problem(engine);
    ASSERT_FALSE(verify(problem, target));
    const ScheduleChoice choice = default_schedule(problem, random_workload(engine), target);
    const auto refusal = verify(problem, choice.schedule, target);
    ASSERT_FALSE(refusal) << print(problem) << "\n"
                          << print(choice.schedule) << "\n"
                          << to_string(*refusal);
    ASSERT_FALSE(choice.why.empty());
    ASSERT_EQ(choice.why.find('\n'), std::string::npos);
  }
}

TEST(DefaultSchedule, OfADeterministicProblemDoesNotDependOnTheWorkload) {
  Engine engine(2);
  for (int i = 0; i < 300; ++i) {
    const Target target = random_target(engine);
    Problem problem = random_problem(engine);
    problem.deterministic = true;
    const ScheduleChoice first = default_schedule(problem, random_workload(engine), target);
    const ScheduleChoice second = default_schedule(problem, random_workload(engine), target);
    EXPECT_EQ(first.schedule, second.schedule);
    EXPECT_NE(first.schedule.partition, Partition::flat);
  }
}

TEST(DefaultSchedule, FillsTheMachineWithOneLongRow) {
  const Target h200 = target_of("cuda:sm_90a");
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  const Schedule schedule = default_schedule(problem, {1, 131072}, h200).schedule;
  EXPECT_EQ(schedule.partition, Partition::fixed);
  // 64 blocks of eight warps draw nearly all that memory gives.
  EXPECT_GE(8 * schedule.splits * schedule.warps, 64 * 8);
  const int room = 2 * h200.sm_count * resources_of(problem, schedule, h200).blocks_per_sm;
  EXPECT_LE(8 * schedule.splits, room);
}

TEST(DefaultSchedule, DoesNotSplitWhatFitsOneTileOrAlreadyFillsTheMachine) {
  const Target h200 = target_of("cuda:sm_90a");
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  EXPECT_EQ(default_schedule(problem, {1, 32}, h200).schedule.splits, 1);
  Problem windowed = problem;
  windowed.window = 64;
  EXPECT_EQ(default_schedule(windowed, {1, 131072}, h200).schedule.splits, 1);
  // Whole sequences a block: one, or several in a line.
  const Schedule many = default_schedule(problem, {4096, 64}, h200).schedule;
  EXPECT_EQ(many.splits, 1);
  if (many.partition == Partition::flat) {
    EXPECT_LE(many.blocks, 4096 * 8);
  }
}

// The workload tells the longest row alone: where few rows are that long, whole rows a block would
// leave most of the machine idle.
TEST(DefaultSchedule, OfFewRowsOfUnknownLengthsBalancesThem) {
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  const Schedule schedule =
      default_schedule(problem, {8, 65536}, target_of("cuda:sm_90a")).schedule;
  EXPECT_TRUE(schedule.partition == Partition::flat || schedule.splits > 1) << print(schedule);
}

TEST(DefaultSchedule, UsesClustersAndEarlyLaunchesOnlyWhereTheyAre) {
  Engine engine(3);
  for (int i = 0; i < 500; ++i) {
    const Problem problem = random_problem(engine);
    const Workload workload = random_workload(engine);
    const Schedule older = default_schedule(problem, workload, target_of("cuda:sm_80")).schedule;
    EXPECT_NE(older.reduce, Reduce::cluster);
    EXPECT_FALSE(older.pdl);
    const Schedule newer = default_schedule(problem, workload, target_of("cuda:sm_90a")).schedule;
    EXPECT_TRUE(!newer.pdl || newer.cluster <= 2) << print(newer);
  }
}

TEST(DefaultSchedule, DividesLargeGroupsInEquallyFullRowBlocks) {
  for (const auto& [group, rows] : std::vector<std::pair<int, int>>{
           {1, 1}, {4, 4}, {7, 7}, {8, 8}, {9, 5}, {12, 6}, {16, 8}, {71, 8}}) {
    Problem problem = problem_of("q=fp32 heads=1 dim=64");
    problem.q_heads = group;
    EXPECT_EQ(default_schedule(problem, {}, target_of("cuda:sm_90a")).schedule.rows, rows);
    EXPECT_EQ(default_schedule(problem, {}, target_of("cpu:x86-64-v3")).schedule.rows, rows);
  }
}

TEST(DefaultSchedule, UsesTensorCoresWhereTheyTakeTheProblem) {
  const Target h200 = target_of("cuda:sm_90a");
  const auto family = [&](const char* text) {
    return default_schedule(problem_of(text), {}, h200).schedule.family;
  };
  EXPECT_EQ(family("q=bf16 heads=32/8 dim=128"), Family::mma);
  EXPECT_EQ(family("q=fp16 kv=e4m3 heads=32/8 dim=128 kv_scale=token"), Family::mma);
  EXPECT_EQ(family("q=bf16 k=bf16 v=fp16 heads=128/1 dim=576/512"), Family::mma);
  EXPECT_EQ(family("q=fp32 heads=32/8 dim=128"), Family::simt);
  EXPECT_EQ(family("q=bf16 kv=fp16 heads=32/8 dim=128"), Family::simt);
  EXPECT_EQ(family("q=bf16 heads=32/8 dim=128 align=2"), Family::simt);
  EXPECT_EQ(family("q=bf16 heads=32/8 dim=576"), Family::simt);
}

TEST(DefaultSchedule, OfTensorCoresHoldsAGroupOfUpToAPanelInOneBlock) {
  const Target h200 = target_of("cuda:sm_90a");
  const auto chosen = [&](const char* text) {
    return default_schedule(problem_of(text), {}, h200).schedule;
  };
  for (const auto& [text, rows] :
       std::vector<std::pair<const char*, int>>{{"q=bf16 heads=32/8 dim=128", 4},
                                                {"q=bf16 heads=28/4 dim=128", 7},
                                                {"q=bf16 heads=8/1 dim=128", 8}})
    EXPECT_EQ(chosen(text).rows, rows) << text;
  // Of several panels: row blocks that are equally full, of whole panels.
  const int many = chosen("q=bf16 heads=32/1 dim=128 query_len=3").rows;
  EXPECT_TRUE(96 % many == 0 && many % 8 == 0 && many > 8) << many;
  // A panel is all that a warp holds of such long rows; several warps divide more.
  const Schedule latent = chosen("q=bf16 heads=128/1 dim=576/512 v_in_k=on");
  EXPECT_EQ(latent.rows, 8 * latent.row_warps);
  EXPECT_GT(latent.row_warps, 1);
  const Schedule schedule = chosen("q=bf16 heads=32/8 dim=128");
  EXPECT_GE(schedule.stages, 2);
  EXPECT_TRUE(schedule.warps == 4 || schedule.warps == 8);
}

TEST(DefaultSchedule, OfLongHeadsGivesUpKeysInFlightAndThenRows) {
  const Schedule schedule =
      default_schedule(problem_of("q=fp32 heads=8/1 dim=576"), {}, target_of("cuda:sm_90a"))
          .schedule;
  EXPECT_EQ(schedule.unroll, 1);
  EXPECT_LT(schedule.rows, 8);
}

TEST(DefaultSchedule, OnTheCpuCutsAFewPiecesAThreadUnlessSequencesAreEnough) {
  Target cpu = target_of("cpu:x86-64-v3");
  cpu.threads = 6;
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  const Schedule few = default_schedule(problem, {1, 8192}, cpu).schedule;
  EXPECT_EQ(few.partition, Partition::flat);
  EXPECT_EQ(few.blocks, 24);
  EXPECT_EQ(few.reduce, Reduce::last_block);
  const Schedule many = default_schedule(problem, {3, 8192}, cpu).schedule;
  EXPECT_EQ(many.partition, Partition::fixed);
  EXPECT_EQ(many.splits, 1);
}

TEST(DefaultSchedule, AMeanTellsEqualLengthsFromRaggedOnes) {
  const Problem problem = *parse_problem("attention q=bf16 heads=32/8 dim=128");
  const Target h200 = *parse_target("cuda:sm_90a");
  // Equal rows are cut where they end; one long row among short ones is shared by all blocks.
  const Schedule equal = default_schedule(problem, {8, 8192, 8192}, h200).schedule;
  EXPECT_EQ(equal.partition, Partition::fixed) << print(equal);
  const Schedule ragged = default_schedule(problem, {32, 131072, 5088}, h200).schedule;
  EXPECT_EQ(ragged.partition, Partition::flat) << print(ragged);
}

}  // namespace
}  // namespace splitkv
