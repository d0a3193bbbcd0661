#include "compiler/space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

Problem problem_of(std::string_view text) { return parse_problem(text).value(); }
Target target_of(std::string_view text) { return parse_target(text).value(); }

TEST(Space, HoldsOnlyLegalSchedulesEachOnce) {
  for (const char* target : {"cuda:sm_86", "cuda:sm_90a", "cpu:x86-64-v3"})
    for (const char* text : {"q=bf16 heads=32/8 dim=128", "q=fp32 heads=71/1 dim=256 merge=lse",
                             "q=fp16 heads=12/1 dim=64 deterministic=on"}) {
      const Problem problem = problem_of(text);
      const auto space = schedule_space(problem, target_of(target), {1, 6}, {16});
      ASSERT_FALSE(space.empty());
      std::set<std::string> seen;
      for (const Schedule& schedule : space) {
        ASSERT_FALSE(verify(problem, schedule, target_of(target))) << print(schedule);
        ASSERT_TRUE(seen.insert(print(schedule)).second) << print(schedule);
      }
    }
}

TEST(Space, SpansEveryPartitionReduceAndMergeThatTheProblemLeavesOpen) {
  const auto count = [](const std::vector<Schedule>& space, auto matches) {
    return std::count_if(space.begin(), space.end(), matches);
  };
  const Target target = target_of("cuda:sm_90a");
  const auto open = schedule_space(problem_of("q=bf16 heads=32/8 dim=128"), target, {1, 7}, {264});
  for (Partition partition : {Partition::fixed, Partition::flat, Partition::strided})
    EXPECT_GT(count(open, [&](const Schedule& s) { return s.partition == partition; }), 0);
  EXPECT_EQ(count(open, [](const Schedule& s) { return s.reduce == Reduce::cluster; }), 0);
  for (Reduce reduce : {Reduce::kernel, Reduce::last_block})
    EXPECT_GT(count(open, [&](const Schedule& s) { return s.reduce == reduce; }), 0);
  for (Merge merge : {Merge::mlo, Merge::lse})
    EXPECT_GT(count(open, [&](const Schedule& s) { return s.merge == merge; }), 0);
  std::set<int> rows;
  for (const Schedule& schedule : open) rows.insert(schedule.rows);
  EXPECT_EQ(rows, (std::set<int>{1, 2, 4}));
  for (Family family : {Family::simt, Family::mma, Family::wgmma})
    EXPECT_GT(count(open, [&](const Schedule& s) { return s.family == family; }), 0);
  const auto fp32 = schedule_space(problem_of("q=fp32 heads=32/8 dim=128"), target, {1}, {1});
  EXPECT_EQ(count(fp32, [](const Schedule& s) { return s.family == Family::mma; }), 0);

  const auto strict = schedule_space(
      problem_of("q=bf16 heads=32/8 dim=128 merge=mlo deterministic=on"), target, {7}, {264});
  EXPECT_EQ(count(strict, [](const Schedule& s) { return s.partition == Partition::flat; }), 0);
  EXPECT_EQ(count(strict, [](const Schedule& s) { return s.merge != Merge::automatic; }), 0);
}

TEST(Space, SpansClustersThatDivideTheSplitsEarlyLaunchesAndTypesOfPartials) {
  const auto space_of = [](std::string_view problem, std::string_view target) {
    return schedule_space(problem_of(problem), target_of(target), {8, 12}, {264});
  };
  std::set<std::pair<int, int>> clusters;
  std::set<std::pair<bool, DType>> launches;
  for (const Schedule& s : space_of("q=bf16 heads=32/8 dim=128", "cuda:sm_90a")) {
    if (s.reduce == Reduce::cluster) clusters.insert({s.splits, s.cluster});
    launches.insert({s.pdl, s.partial_dtype});
  }
  EXPECT_EQ(clusters, (std::set<std::pair<int, int>>{{8, 2}, {8, 4}, {8, 8}, {12, 2}, {12, 4}}));
  EXPECT_EQ(launches.size(), 4u);
  for (const Schedule& s : space_of("q=bf16 heads=32/8 dim=128", "cuda:sm_89")) {
    ASSERT_NE(s.reduce, Reduce::cluster);
    ASSERT_FALSE(s.pdl);
  }
  for (const Schedule& s : space_of("q=fp16 heads=32/8 dim=128", "cuda:sm_90a"))
    ASSERT_EQ(s.partial_dtype, DType::fp32);
}

TEST(Space, OfARefusedProblemIsEmpty) {
  EXPECT_TRUE(schedule_space(problem_of("q=bf16 heads=1 dim=4"), target_of("cuda:sm_90a"), {1}, {1})
                  .empty());
}

}  // namespace
}  // namespace splitkv
