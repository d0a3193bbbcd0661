// What is compiled at all: legal schedules, the library's own first, of every kind.
#include "runtime/tuning_space.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/tuning_pool.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

const std::vector<std::pair<const char*, const char*>> kPairs = {
    {"attention q=bf16 kv=bf16 heads=32/8 dim=128", "cuda:sm_90a"},
    {"attention q=bf16 kv=bf16 heads=32/8 dim=128 deterministic=on", "cuda:sm_90a"},
    {"attention q=fp16 k=e4m3 v=e4m3 heads=64/8 dim=64 kv_layout=paged:16:nhd", "cuda:sm_80"},
    {"attention q=bf16 kv=bf16 heads=128/1 dim=576/512 v_in_k=on", "cuda:sm_90a"},
    {"attention q=fp32 kv=fp32 heads=8/2 dim=40 align=4", "cuda:sm_86"},
    {"attention q=bf16 kv=bf16 heads=12/4 dim=64 out=fp32 merge=lse", "cpu:x86-64-v3"},
    {"attention q=fp32 kv=fp32 heads=8/2 dim=64 deterministic=on", "cpu:x86-64-v3"}};

TEST(TuningSpace, HoldsLegalSchedulesOnceTheLibrarysOwnFirst) {
  for (const auto& [problem_text, target_text] : kPairs) {
    const Problem problem = *parse_problem(problem_text);
    const Target target = *parse_target(target_text);
    for (const TuningPoint& point :
         {TuningPoint{1, 4096}, TuningPoint{16, 65536}, TuningPoint{16, 512, RowLengths::ragged}}) {
      const auto list = tuning_candidates(problem, point, target, 40);
      ASSERT_FALSE(list.empty());
      EXPECT_EQ(list.front(), default_schedule(problem, workload_of(point), target).schedule);
      EXPECT_LE(list.size(), 40u);
      EXPECT_GT(list.size(), 8u) << problem_text;
      std::set<std::string> texts;
      for (const Schedule& schedule : list) {
        EXPECT_FALSE(verify(problem, schedule, target)) << print(schedule);
        EXPECT_TRUE(texts.insert(print(schedule)).second) << print(schedule);
        for (const Schedule& other : neighbours(schedule, problem, target)) {
          EXPECT_FALSE(verify(problem, other, target)) << print(other);
          EXPECT_NE(other, schedule);
        }
      }
    }
  }
}

TEST(TuningSpace, HoldsEveryKindOfPartitionAndReduceThatIsWeighed) {
  const Problem problem = *parse_problem(kProblem);
  std::set<std::pair<Partition, Reduce>> kinds;
  for (const Schedule& schedule : tuning_candidates(problem, {4, 16384}, target(), 64)) {
    kinds.insert({schedule.partition, schedule.reduce});
  }
  EXPECT_GE(kinds.size(), 7u);
}

TEST(TuningSpace, OfLatentAttentionHoldsProductsOfWarpGroups) {
  const auto families = [](const char* problem, const char* target) {
    std::set<Family> found;
    for (const Schedule& schedule :
         tuning_candidates(*parse_problem(problem), {8, 8192}, *parse_target(target), 40))
      found.insert(schedule.family);
    return found;
  };
  const char* latent = "q=bf16 heads=128/1 dim=576/512 v_in_k=on kv_layout=paged:64:nhd";
  EXPECT_EQ(families(latent, "cuda:sm_90a"), (std::set<Family>{Family::mma, Family::wgmma}));
  EXPECT_EQ(families(latent, "cuda:sm_100a"), (std::set<Family>{Family::mma}));
  EXPECT_EQ(families("q=bf16 heads=32/8 dim=128", "cuda:sm_90a"), (std::set<Family>{Family::mma}));
}

TEST(TuningPoint, RaggedRowsAreFewLongOnesAmongShortOnes) {
  const auto lengths = lengths_of({16, 8192, RowLengths::ragged});
  ASSERT_EQ(lengths.size(), 16u);
  EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 8192), 2);
  EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 1024), 6);
  EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 128), 8);
  for (const int64_t batch : {2, 3, 7, 64}) {
    const Workload workload = workload_of({batch, 8192, RowLengths::ragged});
    EXPECT_EQ(bucket_of(*parse_problem(kProblem), workload).rows, RowLengths::ragged) << batch;
  }
  EXPECT_EQ(lengths_of({3, 5, RowLengths::equal}), (std::vector<int32_t>{5, 5, 5}));
}

TEST(TuningPool, KernelsOfSchedulesThatDifferInLaunchesAloneAreOne) {
  const Problem problem = *parse_problem(kProblem);
  const Target machine = target();
  TuningPool pool(problem, machine, {{8, 8192}});
  const auto add = [&](const char* words) { return pool.add(*parse_schedule(words)); };
  const size_t four =
      add("schedule family=mma tile=64 rows=4 stages=3 unroll=1 splits=4 partition=fixed");
  const size_t eight =
      add("schedule family=mma tile=64 rows=4 stages=3 unroll=1 splits=8 partition=fixed");
  const size_t other =
      add("schedule family=mma tile=64 rows=4 stages=4 unroll=1 splits=8 partition=fixed");
  EXPECT_EQ(pool.kernel(four), pool.kernel(eight));
  EXPECT_NE(pool.kernel(four), pool.kernel(other));
  EXPECT_EQ(add("schedule family=mma tile=64 rows=4 stages=3 unroll=1 splits=4 partition=fixed"),
            four);
}

}  // namespace
