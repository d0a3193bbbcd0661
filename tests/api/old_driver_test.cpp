// A driver from before CUDA 11.8, which cannot launch early. It is asked before anything is
// compiled.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

TEST(AnOldDriver, RefusesEarlyLaunchesWhenAKernelIsPrepared) {
  setenv("SPLITKV_LIBCUDA", OLD_FAKE_LIBCUDA, 1);
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer answer =
      prepare(runtime.get(), "cuda:0", "q=bf16 heads=32/8 dim=32", "splits=4 pdl=on", &kernel);
  EXPECT_EQ(answer.status, SPLITKV_UNSUPPORTED) << answer;
  EXPECT_TRUE(answer.says("pdl=on needs cuLaunchKernelEx, which")) << answer;
  EXPECT_TRUE(answer.says(OLD_FAKE_LIBCUDA)) << answer;
  EXPECT_TRUE(answer.says("pdl=off")) << answer;
  EXPECT_EQ(kernel, nullptr);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 0u);
}

TEST(AnOldDriver, RefusesTensorMapsWhenAKernelIsPrepared) {
  setenv("SPLITKV_LIBCUDA", OLD_FAKE_LIBCUDA, 1);
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer answer = prepare(
      runtime.get(), "cuda:0", "q=bf16 heads=32/8 dim=64",
      "family=mma tile=64 warps=4 unroll=1 stages=2 loads=tensor splits=4 pdl=off", &kernel);
  EXPECT_EQ(answer.status, SPLITKV_UNSUPPORTED) << answer;
  EXPECT_TRUE(answer.says("loads=tensor needs cuTensorMapEncodeTiled, which")) << answer;
  EXPECT_TRUE(answer.says("loads=copy")) << answer;
  EXPECT_EQ(kernel, nullptr);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 0u);
}

}  // namespace
