// Workers by cores and memory, and what a plan counts.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/prepare_many.hpp"

using namespace splitkv;

namespace {

constexpr uint64_t kMiB = uint64_t(1) << 20;

Result<Located> at(const std::string& digest, Origin origin) {
  return Located{{"text of " + digest, digest}, origin};
}

TEST(Workers, AreBoundedByCompilesCoresAndMemory) {
  const PrepareLimits wide{16, 100'000 * kMiB};
  EXPECT_EQ(workers_for(200, 300 * kMiB, wide), 16);
  EXPECT_EQ(workers_for(3, 300 * kMiB, wide), 3);
  EXPECT_EQ(workers_for(0, 300 * kMiB, wide), 1);
  EXPECT_EQ(workers_for(200, 300 * kMiB, {16, 1000 * kMiB}), 3);
  EXPECT_EQ(workers_for(200, 300 * kMiB, {16, 299 * kMiB}), 1);  // one has to be tried
  EXPECT_EQ(workers_for(200, 300 * kMiB, {1, 0}), 1);
}

TEST(Workers, LeftOpenAreThoseOfTheMachine) {
  const int workers = workers_for(1'000'000, 1, {});
  EXPECT_EQ(workers, std::max(1, int(std::thread::hardware_concurrency())));
  EXPECT_GT(available_memory(), 16 * kMiB);
  EXPECT_EQ(workers_for(1'000'000, available_memory() * 4, {}), 1);
}

TEST(SideBySide, DoesEachOnce) {
  std::vector<std::atomic<int>> done(1000);
  side_by_side(8, done.size(), [&](size_t i) { ++done[i]; });
  for (const auto& count : done) ASSERT_EQ(count, 1);
  side_by_side(8, 0, [&](size_t) { FAIL(); });
}

TEST(Plan, CountsDistinctKernelsByWhereTheyAre) {
  const std::vector<Result<Located>> items = {
      at("a", Origin::compiled), at("b", Origin::compiled), at("a", Origin::compiled),
      at("c", Origin::pack),     at("d", Origin::memory),   at("e", Origin::disk),
      at("e", Origin::disk),     invalid_argument("no"),    at("f", Origin::compiled)};
  const PreparePlan plan = plan_of(items, TargetKind::cuda, {2, 10'000 * kMiB});
  EXPECT_EQ(plan.items, 9);
  EXPECT_EQ(plan.refused, 1);
  EXPECT_EQ(plan.kernels, 6);
  EXPECT_EQ(plan.in_packs, 1);
  EXPECT_EQ(plan.in_memory, 1);
  EXPECT_EQ(plan.on_disk, 1);
  EXPECT_EQ(plan.to_compile, 3);
  EXPECT_EQ(plan.workers, 2);
  const CompileCost cost = cost_of_compile(TargetKind::cuda);
  EXPECT_DOUBLE_EQ(plan.seconds, 2 * cost.seconds);  // two rounds
  EXPECT_EQ(plan.memory_bytes, 2 * cost.memory_bytes);
  EXPECT_EQ(plan.kept_bytes, 3 * cost.kept_bytes);
}

TEST(Plan, OfNothingToCompileNeedsNothing) {
  const PreparePlan plan = plan_of({at("a", Origin::pack)}, TargetKind::cpu, {});
  EXPECT_EQ(plan.seconds, 0);
  EXPECT_EQ(plan.memory_bytes, 0u);
  EXPECT_EQ(plan.kept_bytes, 0u);
  EXPECT_EQ(plan_of({}, TargetKind::cpu, {}).kernels, 0);
}

}  // namespace
