#include "compiler/resources.hpp"

#include <gtest/gtest.h>

#include "compiler/text.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

Problem problem_of(std::string_view text) { return parse_problem(text).value(); }
Schedule schedule_of(std::string_view text) { return parse_schedule(text).value(); }
Target h200() { return parse_target("cuda:sm_90a").value(); }

TEST(LaneShape, CoversEveryHeadWithSlicesOfAtMostEightElements) {
  Engine engine(1);
  for (int i = 0; i < 3000; ++i) {
    const Problem problem = random_problem(engine);
    const LaneShape shape = lane_shape(problem);
    SCOPED_TRACE(print(problem));
    ASSERT_TRUE(shape.lanes >= 1 && shape.lanes <= 32 && (shape.lanes & (shape.lanes - 1)) == 0);
    ASSERT_EQ(shape.vector_k * size_bytes(problem.k_dtype), problem.align);
    ASSERT_EQ(shape.vector_v * size_bytes(problem.v_dtype), problem.align);
    ASSERT_GE(shape.lanes * shape.slice_qk, problem.dim_qk);
    ASSERT_GE(shape.lanes * shape.slice_v, problem.dim_v);
    ASSERT_LE(shape.slice_qk, 8);
    ASSERT_LE(shape.slice_v, 8);
    ASSERT_EQ(shape.slice_qk % shape.vector_k, 0);
    ASSERT_EQ(shape.slice_v % shape.vector_v, 0);
    ASSERT_EQ(problem.dim_qk % shape.vector_k, 0);
    ASSERT_EQ(problem.dim_v % shape.vector_v, 0);
  }
}

TEST(LaneShape, OfCommonHeads) {
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=128")), (LaneShape{16, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=256")), (LaneShape{32, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=fp32 heads=1 dim=128")), (LaneShape{16, 4, 4, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=80")), (LaneShape{16, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=192/96")), (LaneShape{32, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=8 align=2")), (LaneShape{1, 1, 1, 8, 8}));
}

TEST(Resources, SharedMemoryIsTheMergeBufferOfTheWarps) {
  const Resources needs = resources_of(problem_of("q=bf16 heads=32/8 dim=128"),
                                       schedule_of("rows=4 warps=4 splits=8"), h200());
  EXPECT_EQ(needs.smem_bytes, 4 * 4 * 4 * (128 + 2) + 16);
  EXPECT_EQ(needs.threads_per_block, 128);
}

TEST(Resources, BlocksOfAnSmAreBoundByEachLimit) {
  const Problem problem = problem_of("q=bf16 heads=8/1 dim=128");
  const Schedule schedule = schedule_of("rows=8 warps=4 unroll=4");
  Target target = h200();
  const Resources needs = resources_of(problem, schedule, target);
  const int by_registers = 65536 / ((needs.registers_per_thread + 7) / 8 * 8 * 128);
  EXPECT_EQ(needs.blocks_per_sm, by_registers);
  target.max_threads_per_sm = 128;
  EXPECT_EQ(resources_of(problem, schedule, target).blocks_per_sm, 1);
  target = h200();
  target.max_blocks_per_sm = 1;
  EXPECT_EQ(resources_of(problem, schedule, target).blocks_per_sm, 1);
  target = h200();
  target.smem_per_sm_bytes = needs.smem_bytes + 1024;
  EXPECT_EQ(resources_of(problem, schedule, target).blocks_per_sm, 1);
}

TEST(Resources, TheEstimateOfRegistersGrowsWithRowsAndUnroll) {
  const Problem problem = problem_of("q=bf16 heads=8/1 dim=128");
  const auto registers = [&](std::string_view text) {
    return resources_of(problem, schedule_of(text), h200()).registers_per_thread;
  };
  EXPECT_LT(registers("rows=1 unroll=1"), registers("rows=2 unroll=1"));
  EXPECT_LT(registers("rows=2 unroll=1"), registers("rows=2 unroll=4"));
}

TEST(Resources, OfTheCpuAreNone) {
  const Schedule schedule = schedule_of("family=vector warps=1");
  EXPECT_EQ(resources_of(problem_of("q=bf16 heads=1 dim=128"), schedule, Target{}), Resources{});
}

TEST(Resources, APartialRowIsItsOutputAndOneOrTwoStatistics) {
  const Problem problem = problem_of("q=bf16 heads=1 dim=192/128");
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("merge=mlo")), 520);
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("merge=lse")), 516);
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("rows=1")), 520);
}

TEST(Resources, KvBytesAreThoseOfEveryHeadOfEveryToken) {
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 heads=32/8 dim=128"), 8192), 33554432);
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 k=fp32 v=fp16 heads=2 dim=64/32"), 10),
            10 * 2 * (64 * 4 + 32 * 2));
}

}  // namespace
}  // namespace splitkv
