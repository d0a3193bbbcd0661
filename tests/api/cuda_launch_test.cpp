// What a run calls in the driver: launches, with grid, block, shared memory and argument, and
// nothing else but the look at the current context.
#include <gtest/gtest.h>

#include <cstring>

#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "compiler/text.hpp"
#include "tests/api/fake_driver.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;
using testing_support::address;

namespace {

using Names = std::vector<std::string>;

struct Launches {
  const char* schedule;
  unsigned split_grid, split_block;
  unsigned reduce_grid, reduce_block;  // 0: no second launch
  bool pdl = false;
};

// Batch 3 on 8 kv heads: 24 sequences.
const Launches kLaunches[] = {
    {"partition=fixed splits=7 rows=4 warps=4 reduce=kernel pdl=off", 168, 128, 24, 128},
    {"partition=fixed splits=7 rows=4 warps=4 reduce=last_block pdl=off", 168, 128, 0, 0},
    {"partition=strided splits=2 rows=4 warps=2 reduce=kernel merge=lse pdl=off", 48, 64, 24, 128},
    {"partition=strided splits=3 rows=2 warps=4 reduce=last_block pdl=off", 144, 128, 0, 0},
    {"partition=flat blocks=100 rows=4 warps=4 reduce=kernel pdl=off", 100, 128, 24, 128},
    {"partition=flat blocks=264 rows=4 warps=8 reduce=last_block merge=lse pdl=off", 264, 256, 0,
     0},
    {"partition=fixed splits=1 rows=4 warps=4 reduce=kernel pdl=off", 24, 128, 0, 0},
    {"partition=fixed splits=7 rows=4 warps=4 reduce=kernel pdl=on", 168, 128, 24, 128, true},
    {"partition=flat blocks=264 rows=4 warps=4 reduce=last_block pdl=on", 264, 128, 0, 0, true},
    {"partition=fixed splits=1 rows=4 warps=4 reduce=kernel pdl=on", 24, 128, 0, 0, true},
    {"partition=fixed splits=7 rows=4 warps=4 reduce=kernel partials=bf16 pdl=off", 168, 128, 24,
     128},
    {"partition=fixed splits=8 rows=4 warps=4 reduce=cluster cluster=8", 192, 128, 0, 0},
    {"partition=strided splits=32 rows=4 warps=4 reduce=cluster cluster=16 partials=bf16 pdl=on",
     768, 128, 0, 0, true},
};

class RunOf : public FakeDriver, public testing::WithParamInterface<Launches> {};

TEST_P(RunOf, APreparedKernelOnlyLaunches) {
  const Launches& expected = GetParam();
  CudaStep step("cuda:0", expected.schedule, 3);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::make_current(fake_cuda::primary_context(0));
  fake_cuda::clear_calls();
  const Answer ran = step.run(address(0x90));
  ASSERT_TRUE(ran.ok()) << ran;

  const char* const launch = expected.pdl ? "cuLaunchKernelEx" : "cuLaunchKernel";
  Names names = {"cuCtxGetCurrent", launch};
  if (expected.reduce_grid > 0) names.push_back(launch);
  ASSERT_EQ(fake_cuda::call_names(), names);
  const auto calls = fake_cuda::calls();
  const Problem problem = *parse_problem(kCudaProblem);
  const Schedule schedule = *parse_schedule(info_of(step.kernel.get()).schedule);
  const LaunchShape shape = launch_shape(problem, schedule, 3);
  for (size_t i = 1; i < calls.size(); ++i) {
    const bool split = i == 1;
    EXPECT_EQ(calls[i].grid[0], split ? expected.split_grid : expected.reduce_grid);
    EXPECT_EQ(calls[i].block[0], split ? expected.split_block : expected.reduce_block);
    EXPECT_EQ(calls[i].smem_bytes, split ? shape.split_smem_bytes : 0);
    EXPECT_EQ(calls[i].stream, address(0x90));
    EXPECT_EQ(calls[i].context, fake_cuda::primary_context(0));
    // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    std::vector<fake_cuda::Attribute> attributes;
    if (expected.pdl) attributes.push_back({6, 1});
    EXPECT_EQ(calls[i].attributes, attributes);
    for (int axis : {1, 2}) {
      EXPECT_EQ(calls[i].grid[axis], 1u);
      EXPECT_EQ(calls[i].block[axis], 1u);
    }
  }
  if (calls.size() == 3) {
    EXPECT_NE(calls[1].entry, calls[2].entry);
    EXPECT_EQ(calls[1].argument, calls[2].argument);
  }
  EXPECT_EQ(info_of(step.kernel.get()).kernels_per_run, int(calls.size()) - 1);
}

INSTANTIATE_TEST_SUITE_P(Schedules, RunOf, testing::ValuesIn(kLaunches));

using CudaRun = FakeDriver;

constexpr const char* kByTensor =
    "family=mma tile=64 rows=4 warps=4 unroll=1 stages=2 loads=tensor partition=fixed splits=7 "
    "reduce=kernel pdl=off";

// Host work alone, from the pointers and strides of the run.
TEST_F(CudaRun, TensorMapsAreEncodedBeforeTheLaunch) {
  CudaStep step("cuda:0", kByTensor, 3);
  ASSERT_TRUE(step.prepared.ok()) << step.prepared;
  fake_cuda::make_current(fake_cuda::primary_context(0));
  fake_cuda::clear_calls();
  ASSERT_TRUE(step.run().ok());
  const Names names = {"cuTensorMapEncodeTiled", "cuTensorMapEncodeTiled", "cuCtxGetCurrent",
                       "cuLaunchKernel", "cuLaunchKernel"};
  ASSERT_EQ(fake_cuda::call_names(), names);
  LaunchArgs args;
  for (const auto& call : fake_cuda::calls()) {
    // CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_64B: rows of 32 elements are one column
    if (call.name == "cuTensorMapEncodeTiled") EXPECT_EQ(call.values[0] * 10 + call.values[1], 12);
    if (call.name == "cuLaunchKernel") std::memcpy(&args, call.argument.data(), sizeof(args));
  }
  const uint64_t open_end = uint64_t(1) << 31;
  const auto expect_map = [&](const TensorMap& map, const void* data, int64_t token, int64_t head,
                              int64_t block) {
    const std::vector<uint64_t> expected = {reinterpret_cast<uint64_t>(data),
                                            32,
                                            open_end,
                                            1,
                                            8,
                                            open_end,
                                            uint64_t(2 * token),
                                            64,
                                            uint64_t(2 * head),
                                            uint64_t(2 * block),
                                            32,
                                            16,
                                            1,
                                            1,
                                            1,
                                            0};
    EXPECT_EQ(std::vector<uint64_t>(map.words, map.words + 16), expected);
  };
  expect_map(args.k_map, args.k, args.k_stride_token, args.k_stride_head, args.k_stride_block);
  expect_map(args.v_map, args.v, args.v_stride_token, args.v_stride_head, args.v_stride_block);
  EXPECT_NE(args.k_stride_token, 0);
}

TEST_F(CudaRun, ATensorMapThatCannotBeEncodedIsAStatusAndNothingIsLaunched) {
  CudaStep step("cuda:0", kByTensor, 3);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::clear_calls();
  fake_cuda::fail("cuTensorMapEncodeTiled", 2, 1);
  const Answer ran = step.run();
  EXPECT_EQ(ran.status, SPLITKV_DEVICE_ERROR) << ran;
  EXPECT_TRUE(ran.says("cuTensorMapEncodeTiled")) << ran;
  for (const std::string& name : fake_cuda::call_names()) EXPECT_NE(name, "cuLaunchKernel");
}

TEST_F(CudaRun, TheArgumentCarriesPointersStridesAndCounts) {
  CudaStep step("cuda:0", "partition=fixed splits=7 rows=4 reduce=last_block merge=mlo pdl=off", 3);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::clear_calls();
  ASSERT_TRUE(step.run().ok());
  LaunchArgs args;
  for (const auto& call : fake_cuda::calls()) {
    if (call.name == "cuLaunchKernel") std::memcpy(&args, call.argument.data(), sizeof(args));
  }
  EXPECT_EQ(args.k, address(0x10000000));
  EXPECT_EQ(args.v, address(0x20000000));
  EXPECT_EQ(args.q, address(0x30000000));
  EXPECT_EQ(args.out, address(0x40000000));
  EXPECT_EQ(args.lse, address(0x50000000));
  EXPECT_EQ(args.kv_len, address(0x60000000));
  EXPECT_EQ(args.partials, address(0x70000000));
  EXPECT_EQ(args.arrivals, address(0x80000000));
  EXPECT_EQ(args.page_table, nullptr);
  EXPECT_EQ(args.q_stride_batch, 32 * 32);
  EXPECT_EQ(args.q_stride_head, 32);
  EXPECT_EQ(args.out_stride_batch, 32 * 32);
  EXPECT_EQ(args.lse_stride_batch, 32);
  EXPECT_EQ(args.lse_stride_head, 1);
  EXPECT_EQ(args.k_stride_block, 8 * 1000 * 32);
  EXPECT_EQ(args.k_stride_head, 1000 * 32);
  EXPECT_EQ(args.v_stride_token, 32);
  EXPECT_EQ(args.batch, 3);
  EXPECT_EQ(args.splits, 7);
  EXPECT_EQ(args.partial_o_offset, 24 * 7 * 4 * 2);
}

TEST_F(CudaRun, AnotherDevicesContextIsPushedAndTheCallersIsBackAfterwards) {
  CudaStep step("cuda:1", "partition=fixed splits=2 reduce=kernel pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::make_current(fake_cuda::primary_context(0));
  fake_cuda::clear_calls();
  ASSERT_TRUE(step.run().ok());
  EXPECT_EQ(fake_cuda::call_names(),
            (Names{"cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLaunchKernel", "cuLaunchKernel",
                   "cuCtxPopCurrent_v2"}));
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuLaunchKernel") continue;
    EXPECT_EQ(call.context, fake_cuda::primary_context(1));
  }
  EXPECT_EQ(fake_cuda::current_context(), fake_cuda::primary_context(0));
}

TEST_F(CudaRun, WithoutACurrentContextThereIsNoneAfterwards) {
  CudaStep step("cuda:0", "partition=fixed splits=1 pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  EXPECT_EQ(fake_cuda::current_context(), nullptr);
  ASSERT_TRUE(step.run().ok());
  EXPECT_EQ(fake_cuda::current_context(), nullptr);
}

TEST_F(CudaRun, AnEmptyBatchAndARefusedRunCallNothing) {
  CudaStep step("cuda:0", "partition=fixed splits=7 reduce=last_block pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::clear_calls();
  step.args.batch = 0;
  EXPECT_TRUE(step.run().ok());
  step.args.batch = 1;
  step.args.scratch_bytes -= 1;
  EXPECT_EQ(step.run().status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_EQ(fake_cuda::call_names(), Names{});
}

TEST_F(CudaRun, AGridBeyondTheHardwaresLimitIsRefusedWithTheBatchThatFits) {
  CudaStep step("cuda:0", "partition=fixed splits=7 rows=4 reduce=kernel pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::clear_calls();
  const int64_t fits = 2147483647 / 56;
  step.args.batch = fits + 1;
  step.args.scratch_bytes = SIZE_MAX;
  const Answer refused = step.run();
  EXPECT_EQ(refused.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(refused.says("batch=" + std::to_string(fits))) << refused;
  EXPECT_EQ(fake_cuda::call_names(), Names{});
  step.args.batch = fits;
  EXPECT_TRUE(step.run().ok()) << step.run();
}

TEST_F(CudaRun, StateIsZeroedOnTheStream) {
  CudaStep step("cuda:0", "partition=fixed splits=7 rows=4 reduce=last_block pdl=off", 3);
  ASSERT_TRUE(step.prepared.ok());
  std::vector<uint32_t> state(24, 5);
  ASSERT_EQ(step.args.state_bytes, 96u);
  fake_cuda::clear_calls();
  const Answer zeroed = answer_of([&](splitkv_message* m) {
    return splitkv_state_init(step.kernel.get(), state.data(), 96, address(0x90), m);
  });
  EXPECT_TRUE(zeroed.ok()) << zeroed;
  EXPECT_EQ(state, std::vector<uint32_t>(24, 0));
  EXPECT_EQ(fake_cuda::call_names(), (Names{"cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                            "cuMemsetD8Async", "cuCtxPopCurrent_v2"}));
  EXPECT_EQ(fake_cuda::calls()[2].stream, address(0x90));
}

TEST_F(CudaRun, PartsAreForTheCpu) {
  CudaStep step("cuda:0", "partition=fixed splits=2 reduce=last_block pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  const Answer refused = answer_of([&](splitkv_message* m) {
    return splitkv_run_part(step.kernel.get(), &step.binding, &step.args, 0, 2, m);
  });
  EXPECT_EQ(refused.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(refused.says("only CPU kernels")) << refused;
}

}  // namespace
