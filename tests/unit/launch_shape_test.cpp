#include "codegen/launch_shape.hpp"

#include <gtest/gtest.h>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

Problem llama() { return parse_problem("q=bf16 heads=32/8 dim=128").value(); }

Schedule schedule_of(std::string_view text) { return parse_schedule(text).value(); }

TEST(LaunchShape, HasABlockForEverySplitOfEverySequenceAndAReduceBlockForEachSequence) {
  const LaunchShape shape = launch_shape(llama(), schedule_of("rows=2 warps=4 splits=7"), 3);
  EXPECT_EQ(shape.sequences, 3 * 8 * 2);
  EXPECT_EQ(shape.split_blocks, 3 * 8 * 2 * 7);
  EXPECT_EQ(shape.reduce_blocks, 3 * 8 * 2);
  EXPECT_EQ(shape.split_threads, 128);
  EXPECT_EQ(shape.reduce_threads, 64);
  EXPECT_EQ(shape.split_smem_bytes, 4 * 2 * (4 * 132 + 8) + 16);
}

TEST(LaunchShape, OfAFlatPartitionIsItsBlocksWhateverTheBatch) {
  for (int64_t batch : {1, 2, 100}) {
    const LaunchShape shape = launch_shape(llama(), schedule_of("blocks=264 rows=4"), batch);
    EXPECT_EQ(shape.split_blocks, 264);
    EXPECT_EQ(shape.reduce_blocks, batch * 8);
  }
}

TEST(LaunchShape, HasNoReduceKernelWhereTheLastBlockReducesOrNothingIsSplit) {
  for (const char* text : {"splits=7 reduce=last_block", "splits=1", "blocks=1",
                           "blocks=9 reduce=last_block", "partition=strided splits=1"}) {
    const LaunchShape shape = launch_shape(llama(), schedule_of(text), 2);
    EXPECT_EQ(shape.reduce_blocks, 0) << text;
    EXPECT_EQ(shape.reduce_threads, 0) << text;
  }
}

TEST(LaunchShape, OfClustersHasABlockForEverySplitAndNoReduceKernel) {
  for (const char* text :
       {"rows=2 warps=2 splits=4 cluster=4", "rows=2 warps=2 splits=12 cluster=4",
        "rows=2 warps=2 partition=strided splits=32 cluster=16"}) {
    const Schedule schedule = schedule_of(text);
    const LaunchShape shape = launch_shape(llama(), schedule, 3);
    EXPECT_EQ(shape.split_blocks, 3 * 8 * 2 * schedule.splits) << text;
    EXPECT_EQ(shape.split_blocks % shape.cluster, 0) << text;
    EXPECT_EQ(shape.cluster, schedule.cluster) << text;
    EXPECT_EQ(shape.reduce_blocks, 0) << text;
    // Beside the rows of two warps, what the blocks of the cluster give.
    EXPECT_EQ(shape.split_smem_bytes,
              2 * 2 * (4 * 132 + 8) + 16 + cluster_join_bytes(llama(), schedule))
        << text;
  }
  EXPECT_EQ(launch_shape(llama(), schedule_of("splits=4"), 3).cluster, 1);
}

TEST(LaunchShape, SaysWhetherKernelsAreLaunchedEarly) {
  EXPECT_TRUE(launch_shape(llama(), schedule_of("splits=4 pdl=on"), 1).pdl);
  EXPECT_FALSE(launch_shape(llama(), schedule_of("splits=4"), 1).pdl);
}

TEST(LaunchShape, OfTheCpuHasBlocksOfOneThreadWithoutSharedMemory) {
  const LaunchShape shape =
      launch_shape(llama(), schedule_of("family=vector warps=1 rows=4 splits=3"), 2);
  EXPECT_EQ(shape.split_threads, 1);
  EXPECT_EQ(shape.reduce_threads, 1);
  EXPECT_EQ(shape.split_smem_bytes, 0);
  EXPECT_EQ(shape.split_blocks, 2 * 8 * 3);
}

TEST(BufferSizes, HoldStatisticsThenOutputsOfEverySlot) {
  const Problem one_row = parse_problem("q=bf16 heads=3 dim=128/64").value();
  const BufferSizes mlo = buffer_sizes(one_row, schedule_of("rows=1 splits=5"), 3);
  EXPECT_EQ(mlo.partial_o_offset, 3 * 3 * 5 * 2 + 2);  // 90, up to a multiple of 4
  EXPECT_EQ(mlo.scratch_bytes, 4 * (92 + 45 * 64));
  EXPECT_EQ(mlo.state_bytes, 0);
  const BufferSizes lse =
      buffer_sizes(one_row, schedule_of("rows=1 splits=5 merge=lse reduce=last_block"), 3);
  EXPECT_EQ(lse.partial_o_offset, 48);
  EXPECT_EQ(lse.scratch_bytes, 4 * (48 + 45 * 64));
  EXPECT_EQ(lse.state_bytes, 4 * 9);
}

TEST(BufferSizes, HoldTwoSlotsForEveryBlockOfAFlatPartitionWhateverTheBatch) {
  for (int64_t batch : {1, 9, 1000}) {
    const BufferSizes sizes = buffer_sizes(llama(), schedule_of("rows=4 blocks=10"), batch);
    EXPECT_EQ(sizes.partial_o_offset, 2 * 10 * 4 * 2);
    EXPECT_EQ(sizes.scratch_bytes, 4 * 2 * 10 * 4 * (128 + 2));
  }
}

// K clusters of N blocks a sequence: K slots, N sets of statistics in each, and N counters.
TEST(BufferSizes, OfClustersHoldASlotForEachClusterAndACounterForEachOfItsBlocks) {
  const Problem one_row = parse_problem("q=bf16 heads=3 dim=128/64").value();
  const BufferSizes three = buffer_sizes(one_row, schedule_of("rows=1 splits=12 cluster=4"), 2);
  EXPECT_EQ(three.partial_o_offset, 2 * 3 * 3 * 4 * 2);
  EXPECT_EQ(three.scratch_bytes, 4 * (2 * 3 * 3 * (4 * 2 + 64)));
  EXPECT_EQ(three.state_bytes, 4 * 2 * 3 * 4);
  const BufferSizes lse =
      buffer_sizes(one_row, schedule_of("rows=1 splits=32 cluster=16 merge=lse"), 2);
  EXPECT_EQ(lse.partial_o_offset, 2 * 3 * 2 * 16);
  EXPECT_EQ(lse.scratch_bytes, 4 * (2 * 3 * 2 * (16 + 64)));
  EXPECT_EQ(lse.state_bytes, 4 * 2 * 3 * 16);
}

TEST(BufferSizes, OfBf16PartialsHaveOutputsOfHalfTheSizeBehindStatisticsInFp32) {
  const Problem one_row = parse_problem("q=bf16 heads=3 dim=128/64").value();
  for (const char* reduce : {"reduce=kernel", "reduce=last_block"}) {
    const std::string text = std::string("rows=1 splits=5 partials=bf16 ") + reduce;
    const BufferSizes sizes = buffer_sizes(one_row, schedule_of(text), 3);
    EXPECT_EQ(sizes.partial_o_offset, 92);  // 16-byte aligned, like those of fp32
    EXPECT_EQ(sizes.scratch_bytes, 4 * 92 + 2 * 45 * 64);
  }
}

TEST(BufferSizes, AreZeroWhereNothingIsSplit) {
  for (const char* text : {"splits=1", "partition=strided splits=1 reduce=last_block", "blocks=1",
                           "splits=8 cluster=8", "splits=8 cluster=8 partials=bf16"})
    EXPECT_EQ(buffer_sizes(llama(), schedule_of(text), 64), BufferSizes{}) << text;
}

TEST(BufferSizes, OfALargerBatchAreNeverSmaller) {
  Engine engine(1);
  for (int i = 0; i < 500; ++i) {
    const Target target = random_target(engine);
    const Problem problem = random_problem(engine);
    const Schedule schedule = random_schedule(engine, problem, target);
    const int64_t batch = between(engine, 1, 5000);
    const BufferSizes small = buffer_sizes(problem, schedule, batch);
    const BufferSizes large = buffer_sizes(problem, schedule, batch + 1);
    EXPECT_LE(small.scratch_bytes, large.scratch_bytes);
    EXPECT_LE(small.state_bytes, large.state_bytes);
    EXPECT_EQ(small.partial_o_offset % 4, 0);
    EXPECT_EQ(small.scratch_bytes % 4, 0);
  }
}

TEST(BufferSizes, AreCountedIn64Bits) {
  const Problem wide = parse_problem("q=fp32 heads=1024 dim=256").value();
  const BufferSizes sizes = buffer_sizes(wide, schedule_of("rows=1 splits=1024"), 4096);
  EXPECT_EQ(sizes.scratch_bytes, int64_t(4) * 4096 * 1024 * 1024 * (256 + 2));
}

}  // namespace
}  // namespace splitkv
