// What the public merge and checked kernels call in the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "codegen/launch_args.hpp"
#include "codegen/merge_source.hpp"
#include "tests/api/fake_driver.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;

namespace {

int count_of(const std::string& name) {
  const auto names = fake_cuda::call_names();
  return int(std::count(names.begin(), names.end(), name));
}

using CudaMerge = FakeDriver;

TEST_F(CudaMerge, LaunchesAWarpARowAndCarriesItsArguments) {
  RuntimeOwner runtime = open_runtime();
  splitkv_merger* merger = nullptr;
  const Answer prepared = answer_of([&](splitkv_message* m) {
    return splitkv_prepare_merge(runtime.get(), "cuda:0", "mlo", "base2", &merger, m);
  });
  ASSERT_TRUE(prepared.ok()) << prepared;
  splitkv_merge_args args = SPLITKV_INIT(splitkv_merge_args);
  args.parts = 3;
  args.rows = 10;
  args.dim = 64;
  args.o = static_cast<float*>(address(0x1000));
  args.s_or_m = static_cast<float*>(address(0x2000));
  args.l = static_cast<float*>(address(0x3000));
  args.out = static_cast<float*>(address(0x4000));
  args.out_s_or_m = static_cast<float*>(address(0x5000));
  args.out_l = static_cast<float*>(address(0x6000));
  args.o_stride_part = 640;
  args.o_stride_row = args.out_stride_row = 64;
  args.statistics_stride_part = 10;
  args.statistics_stride_row = args.out_statistics_stride_row = 1;
  fake_cuda::clear_calls();
  const Answer merged =
      answer_of([&](splitkv_message* m) { return splitkv_merge(merger, &args, address(0x90), m); });
  ASSERT_TRUE(merged.ok()) << merged;
  ASSERT_EQ(count_of("cuLaunchKernel"), 1);
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuLaunchKernel") continue;
    EXPECT_EQ(call.grid[0], 3u);  // 10 rows, 4 warps a block
    EXPECT_EQ(call.block[0], 128u);
    EXPECT_EQ(call.stream, address(0x90));
    MergeArgs launched;
    ASSERT_EQ(call.argument.size(), sizeof(launched));
    std::memcpy(&launched, call.argument.data(), sizeof(launched));
    EXPECT_EQ(launched.o, args.o);
    EXPECT_EQ(launched.out_l, args.out_l);
    EXPECT_EQ(launched.statistics_stride_part, 10);
    EXPECT_EQ(launched.rows, 10);
    ASSERT_NE(launched.errors, nullptr);
    // What the device would write there is what a poll finds, once.
    launched.errors->claimed = 1;
    launched.errors->row = 7;
    launched.errors->slot = 2;
    launched.errors->value = 0x7f800000;
    launched.errors->code = kBadStatistic;
  }
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  const auto poll = [&] {
    return answer_of(
        [&](splitkv_message* m) { return splitkv_poll_merge_fault(merger, &fault, m); });
  };
  const Answer found = poll();
  EXPECT_EQ(found.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(found.says("part=2 of row=7 has a statistic of inf")) << found;
  EXPECT_EQ(fault.code, 4);
  EXPECT_EQ(fault.row, 7);
  EXPECT_EQ(fault.slot, 2);
  EXPECT_TRUE(poll().ok());
  EXPECT_EQ(fault.code, 0);
  splitkv_release_merger(merger);
  EXPECT_EQ(count_of("cuMemFreeHost"), 1);
}

TEST_F(CudaMerge, FormsAndBasesThatAreNoneAreRefused) {
  RuntimeOwner runtime = open_runtime();
  splitkv_merger* merger = nullptr;
  const auto prepare_with = [&](const char* form, const char* base) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_prepare_merge(runtime.get(), "cuda:0", form, base, &merger, m);
    });
  };
  EXPECT_TRUE(prepare_with("o", "natural").says("form=o")) << prepare_with("o", "natural");
  EXPECT_TRUE(prepare_with("lse", "ten").says("base=ten")) << prepare_with("lse", "ten");
  EXPECT_EQ(merger, nullptr);
}

TEST_F(CudaMerge, ACheckedKernelsRecordIsMappedMemoryThatGoesWithIt) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer prepared =
      prepare(runtime.get(), "cuda:0", std::string(kCudaProblem) + " checked=on", nullptr, &kernel);
  ASSERT_TRUE(prepared.ok()) << prepared;
  EXPECT_EQ(count_of("cuMemHostAlloc"), 1);
  EXPECT_EQ(count_of("cuMemHostGetDevicePointer_v2"), 1);
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  EXPECT_EQ(splitkv_poll_fault(kernel.get(), &fault, nullptr), SPLITKV_OK);
  EXPECT_EQ(fault.code, 0);
  kernel.reset();
  EXPECT_EQ(count_of("cuMemFreeHost"), 1);
}

}  // namespace
