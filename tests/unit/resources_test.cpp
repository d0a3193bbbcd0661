#include "compiler/resources.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/text.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

Problem problem_of(std::string_view text) { return parse_problem(text).value(); }
Schedule schedule_of(std::string_view text) { return parse_schedule(text).value(); }
Target h200() { return parse_target("cuda:sm_90a").value(); }

bool is_power_of_two(int value) { return value > 0 && (value & (value - 1)) == 0; }

// A vector is as wide as alignment, a lane and the row allow.
void expect_widest_vector(int vector, DType type, int dim, const Problem& problem) {
  const auto allowed = [&](int wide) {
    return wide <= 8 && problem.align % (wide * size_bytes(type)) == 0 && dim % wide == 0;
  };
  EXPECT_TRUE(is_power_of_two(vector));
  EXPECT_TRUE(allowed(vector));
  EXPECT_FALSE(allowed(2 * vector));
}

TEST(LaneShape, CoversEveryHeadWithTheWidestVectors) {
  Engine engine(1);
  for (int i = 0; i < 3000; ++i) {
    const Problem problem = random_problem(engine);
    const LaneShape shape = lane_shape(problem);
    SCOPED_TRACE(print(problem));
    const int widest = std::max(problem.dim_qk, problem.dim_v);
    ASSERT_TRUE(is_power_of_two(shape.lanes) && shape.lanes <= 32);
    ASSERT_TRUE(shape.lanes == 1 || shape.lanes * 4 < widest);
    ASSERT_GE(shape.lanes * shape.slice_qk, problem.dim_qk);
    ASSERT_GE(shape.lanes * shape.slice_v, problem.dim_v);
    ASSERT_LE(shape.slice_qk, widest <= 256 ? 8 : 24);
    ASSERT_LE(shape.slice_v, widest <= 256 ? 8 : 24);
    ASSERT_EQ(shape.slice_qk % shape.vector_k, 0);
    ASSERT_EQ(shape.slice_v % shape.vector_v, 0);
    expect_widest_vector(shape.vector_k, problem.k_dtype, problem.dim_qk, problem);
    expect_widest_vector(shape.vector_v, problem.v_dtype, problem.dim_v, problem);
  }
}

TEST(LaneShape, OfCommonHeads) {
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=128")), (LaneShape{16, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=256")), (LaneShape{32, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=fp32 heads=1 dim=128")), (LaneShape{16, 4, 4, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=80")), (LaneShape{16, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=192/96")), (LaneShape{32, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=8 align=2")), (LaneShape{1, 1, 1, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=576/512")), (LaneShape{32, 8, 8, 24, 16}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 heads=1 dim=46")), (LaneShape{8, 2, 2, 6, 6}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 kv=e4m3 heads=1 dim=128")), (LaneShape{16, 8, 8, 8, 8}));
  EXPECT_EQ(lane_shape(problem_of("q=bf16 kv=int8 heads=1 dim=128 align=4")),
            (LaneShape{16, 4, 4, 8, 8}));
}

TEST(MmaShape, StagesRowsInWholeSectors) {
  const Problem plain = problem_of("q=bf16 heads=32/8 dim=128");
  const Schedule schedule = schedule_of("family=mma rows=4 warps=4 unroll=1 stages=3");
  const MmaShape shape = mma_shape(plain, schedule);
  EXPECT_EQ(shape.panels, 1);
  EXPECT_EQ(shape.pitch_k, 256);
  EXPECT_EQ(shape.pitch_v, 256);
  EXPECT_EQ(shape.step_bytes, 16 * 512);
  EXPECT_EQ(shape.work_bytes, 0);
  EXPECT_EQ(shape.q_bytes, 8 * 256);
  EXPECT_EQ(shape.loop_bytes, 8 * 256 + 4 * 3 * 8192);
  EXPECT_EQ(shape.copy_k, 16);
  EXPECT_EQ(resources_of(plain, schedule, h200()).smem_bytes, shape.loop_bytes);
}

TEST(MmaShape, OfEightBitsHasRowsAsInMemoryAndAPlaceToConvertThem) {
  const Problem problem =
      problem_of("q=bf16 k=e4m3 v=bf16 heads=32/8 dim=100/40 k_scale=token align=4");
  const MmaShape shape =
      mma_shape(problem, schedule_of("family=mma rows=9 warps=2 unroll=1 stages=2"));
  EXPECT_EQ(shape.panels, 2);
  EXPECT_EQ(shape.pitch_k, 4 * 32);     // 100 bytes
  EXPECT_EQ(shape.pitch_v, 3 * 32);     // 48 elements of 2 bytes
  EXPECT_EQ(shape.work_pitch, 7 * 32);  // 112 elements of 2 bytes
  EXPECT_EQ(shape.step_bytes, 16 * 7 * 32 + 128);
  EXPECT_EQ(shape.work_bytes, 16 * 224);
  EXPECT_EQ(shape.copy_k, 4);
  EXPECT_EQ(shape.copy_v, 4);
}

TEST(MmaShape, WarpsThatDivideTheRowsShareStages) {
  const Problem wide = problem_of("q=bf16 heads=20/1 dim=128");
  const Schedule schedule =
      schedule_of("family=mma rows=20 row_warps=3 warps=6 tile=32 unroll=1 stages=3");
  const MmaShape shape = mma_shape(wide, schedule);
  EXPECT_EQ(streams(schedule), 2);
  EXPECT_EQ(shape.panels, 1);
  EXPECT_EQ(shape.q_bytes, 3 * 8 * 256);
  EXPECT_EQ(shape.loop_bytes, 3 * 8 * 256 + 2 * 3 * 8192);
  const Schedule alone = schedule_of("family=mma rows=20 warps=2 tile=32 unroll=1 stages=3");
  EXPECT_LT(resources_of(wide, schedule, h200()).registers_per_thread,
            resources_of(wide, alone, h200()).registers_per_thread);
  EXPECT_EQ(resources_of(wide, schedule, h200()).smem_bytes,
            resources_of(wide, alone, h200()).smem_bytes);
}

TEST(MmaShape, OfVWithinKHasNoRowsOfV) {
  const Problem mla = problem_of("q=bf16 heads=128/1 dim=576/512 v_in_k=on");
  const MmaShape shape = mma_shape(mla, schedule_of("family=mma rows=8 unroll=1 stages=2"));
  EXPECT_EQ(shape.pitch_v, 0);
  EXPECT_EQ(shape.step_bytes, 16 * 1152);
  EXPECT_EQ(most_mma_rows(mla), 8);
  EXPECT_EQ(most_mma_rows(problem_of("q=bf16 heads=1 dim=64")), 64);
  EXPECT_EQ(most_mma_rows(problem_of("q=bf16 heads=1 dim=576")), 0);
  EXPECT_EQ(most_mma_rows(problem_of("q=bf16 heads=1 dim=120")), 32);
}

TEST(WgmmaShape, HoldsQueriesAndTwoTilesOfLatentRows) {
  const Problem mla = problem_of("q=bf16 heads=128/1 dim=576/512 v_in_k=on");
  const Schedule schedule = schedule_of("family=wgmma rows=64");
  const WgmmaShape shape = wgmma_shape(mla, schedule);
  EXPECT_EQ(shape.half_v, 4);
  EXPECT_EQ(shape.q_bytes, 64 * 576 * 2);
  EXPECT_EQ(shape.stage_bytes, 64 * 576 * 2);  // weights take the last column's place
  EXPECT_EQ(shape.loop_bytes, 3 * 64 * 576 * 2);
  EXPECT_EQ(shape.barrier_bytes, 2 * (3 + 1) * 8 + 3 * 64 * 4);
  const Resources needs = resources_of(mla, schedule, h200());
  EXPECT_EQ(needs.smem_bytes, shape.loop_bytes + shape.barrier_bytes);
  EXPECT_EQ(needs.threads_per_block, 256);
  EXPECT_EQ(needs.blocks_per_sm, 1);
}

TEST(WgmmaShape, HasRoomForWeightsWhereKLeavesNone) {
  const Schedule schedule = schedule_of("family=wgmma stages=3");
  const auto stage = [&](std::string_view words) {
    return wgmma_shape(problem_of(words), schedule).stage_bytes / (64 * 128);
  };
  EXPECT_EQ(stage("q=bf16 heads=1 dim=128 v_in_k=on"), 3);
  EXPECT_EQ(stage("q=bf16 heads=1 dim=128/64 v_in_k=on"), 2);
  EXPECT_EQ(stage("q=bf16 heads=1 dim=128"), 4);
}

TEST(WgmmaShape, CopiesEquallyManyColumnsAtOnce) {
  std::vector<int> copied;
  for (int columns = 1; columns <= 9; ++columns) copied.push_back(columns_of_a_copy(columns));
  EXPECT_EQ(copied, (std::vector<int>{1, 2, 3, 4, 1, 3, 1, 4, 3}));
}

TEST(Resources, SharedMemoryIsTheMergeBufferOfTheWarps) {
  const Resources needs = resources_of(problem_of("q=bf16 heads=32/8 dim=128"),
                                       schedule_of("rows=4 warps=4 splits=8"), h200());
  // Rows of 128 floats and 4 more, m and l of each, and 16 bytes for one word to all.
  EXPECT_EQ(needs.smem_bytes, 4 * 4 * (4 * 132 + 8) + 16);
  EXPECT_EQ(needs.threads_per_block, 128);
}

TEST(Resources, BlocksOfAnSmAreBoundByEachLimit) {
  const Problem problem = problem_of("q=bf16 heads=8/1 dim=128");
  const Schedule schedule = schedule_of("rows=8 warps=4 unroll=4");
  Target target = h200();
  const Resources needs = resources_of(problem, schedule, target);
  const int by_registers = 65536 / ((needs.compiled_registers + 7) / 8 * 8 * 128);
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

// A warp of the mma family holds q while its operands of 16 columns are 16 or fewer: three of
// dim=40 for each of five panels, but not of six.
TEST(Resources, TheEstimateCountsQWhereTheDeviceHoldsIt) {
  const Problem problem = problem_of("q=bf16 heads=48/1 dim=40");
  const auto registers = [&](std::string_view text) {
    return resources_of(problem, schedule_of(text), h200()).registers_per_thread;
  };
  const int accumulators = 48 / 4;  // of a panel
  EXPECT_EQ(registers("family=mma rows=40 warps=4 unroll=1 stages=2"),
            60 + 5 * accumulators + 2 * 15);
  EXPECT_EQ(registers("family=mma rows=48 warps=4 unroll=1 stages=2"), 60 + 6 * accumulators);
}

// A kernel that finds its place among the rows takes more registers than one that cuts each row
// alike, and fewer of its blocks may fit; the launch bounds keep a block of many warps on an SM.
TEST(Resources, BlocksOfAnSmFollowFromWhatTheCompilerTakes) {
  const Problem problem = problem_of("q=bf16 heads=71/1 dim=64");
  const auto needs = [&](std::string_view text) {
    return resources_of(problem, schedule_of(text), h200());
  };
  const Resources fixed = needs("family=mma rows=36 warps=4 unroll=1 stages=2 splits=4");
  const Resources flat =
      needs("family=mma rows=36 warps=4 unroll=1 stages=2 partition=flat blocks=264");
  EXPECT_EQ(flat.smem_bytes, fixed.smem_bytes);
  EXPECT_EQ(flat.registers_per_thread, fixed.registers_per_thread);
  EXPECT_GT(flat.compiled_registers, fixed.compiled_registers);
  EXPECT_EQ(flat.blocks_per_sm, 2);  // by 65536 registers; shared memory has room for five
  const Resources many =
      needs("family=mma rows=64 row_warps=2 warps=16 tile=128 unroll=1 stages=2");
  EXPECT_EQ(many.compiled_registers, 65536 / 512);
  EXPECT_EQ(many.blocks_per_sm, 1);
}

TEST(Arithmetic, RoundsUpToWholeUnits) {
  static_assert(ceil_div(0, 7) == 0 && ceil_div(1, 7) == 1 && ceil_div(7, 7) == 1);
  static_assert(ceil_div(int64_t(1) << 40, 3) == 366503875926);
  static_assert(round_up(0, 16) == 0 && round_up(16, 16) == 16 && round_up(17, 16) == 32);
}

// Each block of a cluster gets its slice of the rows from all of them, and all statistics.
TEST(Resources, ABlockOfAClusterNeedsRoomForWhatTheOthersGiveIt) {
  const Problem problem = problem_of("q=bf16 heads=8/1 dim=128");
  for (const std::string family : {"rows=4 ", "family=mma rows=4 unroll=1 stages=2 "}) {
    const Schedule alone = schedule_of(family + "splits=32 reduce=last_block");
    EXPECT_EQ(cluster_join_bytes(problem, alone), 0);
    for (const int blocks : {2, 4, 16}) {
      const Schedule cluster = schedule_of(family + "splits=32 cluster=" + std::to_string(blocks));
      const int64_t given = 4 * 4 * 128 + blocks * 4 * 8;  // whole rows, in slices
      EXPECT_EQ(cluster_join_bytes(problem, cluster), given);
      EXPECT_EQ(resources_of(problem, cluster, h200()).smem_bytes,
                resources_of(problem, alone, h200()).smem_bytes + given);
    }
  }
  // 4 rows of 25 vectors of 2 floats make slices of 34 for three blocks.
  EXPECT_EQ(cluster_join_bytes(problem_of("q=bf16 heads=8/1 dim=50"),
                               schedule_of("rows=4 splits=3 cluster=3")),
            3 * (34 * 8 + 4 * 8));
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
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("merge=mlo partials=bf16")), 264);
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("merge=lse partials=bf16")), 260);
  EXPECT_EQ(partial_row_bytes(problem, schedule_of("merge=mlo splits=8 cluster=4")), 512 + 4 * 8);
}

TEST(Resources, KvBytesAreThoseOfEveryHeadOfEveryToken) {
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 heads=32/8 dim=128"), 8192), 33554432);
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 k=fp32 v=fp16 heads=2 dim=64/32"), 10),
            10 * 2 * (64 * 4 + 32 * 2));
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 kv=int8 heads=2 dim=128 kv_scale=inline"), 10),
            10 * 2 * (132 + 132));
  EXPECT_EQ(kv_bytes(problem_of("q=bf16 heads=16/1 dim=576/512 v_in_k=on"), 10), 10 * 1152);
}

}  // namespace
}  // namespace splitkv
