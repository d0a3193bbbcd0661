// What measuring on a GPU asks of the driver, in order, by the recording stand-in. Needs NVRTC.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "compiler/text.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/support/fake_libcuda.hpp"
#include "tools/splitkv/tune_bench.hpp"

using namespace splitkv;
using namespace splitkv::tool;

namespace {

const Problem kSmall = *parse_problem("attention q=bf16 kv=bf16 heads=8/2 dim=64 lse=natural");
const Schedule kSchedule = *parse_schedule(
    "schedule family=simt tile=64 rows=4 warps=4 unroll=1 partition=fixed splits=4 "
    "reduce=last_block");

class CudaTuningBench : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SPLITKV_LIBCUDA", FAKE_LIBCUDA, 1);
    fake_cuda::reset();
    if (!nvrtc_version().ok()) GTEST_SKIP() << "NVRTC is not here";
    auto bench = open_tuning_bench("cuda:0", kSmall);
    ASSERT_TRUE(bench.ok()) << bench.error().message;
    bench_ = std::move(*bench);
  }
  static int count(const std::string& name) {
    const auto names = fake_cuda::call_names();
    return int(std::count(names.begin(), names.end(), name));
  }

  std::unique_ptr<TuningBench> bench_;
};

TEST_F(CudaTuningBench, TimesReplaysOfOneGraphOverCopiesInTurn) {
  ASSERT_TRUE(bench_->prepare({kSchedule}, 60).front().ok());
  ASSERT_TRUE(bench_->floor_us({2, 1024}, 60).ok());
  fake_cuda::clear_calls();
  const auto timed = bench_->time_us(kSchedule, {2, 1024}, 3, 60);
  ASSERT_TRUE(timed.ok()) << timed.error().message;
  const auto names = fake_cuda::call_names();
  const auto begin = std::find(names.begin(), names.end(), "cuStreamBeginCapture_v2");
  const auto end = std::find(names.begin(), names.end(), "cuStreamEndCapture");
  ASSERT_NE(begin, names.end());
  ASSERT_NE(end, names.end());
  // At least 20 launches in the graph, none outside of it; two replays for warmth and three timed.
  const auto is_launch = [](const std::string& name) { return name.starts_with("cuLaunchKernel"); };
  const auto captured = std::count_if(begin, end, is_launch);
  EXPECT_GE(captured, 20);
  EXPECT_EQ(captured, std::count_if(names.begin(), names.end(), is_launch));
  EXPECT_EQ(count("cuGraphInstantiateWithFlags"), 1);
  EXPECT_EQ(count("cuGraphLaunch"), 5);
  EXPECT_EQ(count("cuGraphExecDestroy"), 1);
  EXPECT_EQ(count("cuGraphDestroy"), 1);
  // The outputs are poisoned before.
  const auto poisoned = std::find(names.begin(), names.end(), "cuMemsetD8_v2");
  EXPECT_LT(poisoned, begin);
  // Launches go through several copies: consecutive ones have other arguments.
  std::vector<std::vector<uint8_t>> arguments;
  for (const fake_cuda::Call& call : fake_cuda::calls()) {
    if (is_launch(call.name)) arguments.push_back(call.argument);
  }
  EXPECT_NE(arguments.at(0), arguments.at(1));
}

TEST_F(CudaTuningBench, AResultThatNobodyComputedFailsItsCheck) {
  // The stand-in runs nothing, so outputs stay poisoned.
  const Outcome checked = bench_->check(kSchedule, 60);
  ASSERT_FALSE(checked.ok());
  EXPECT_NE(checked.error().message.find("wrong"), std::string::npos) << checked.error().message;
}

TEST_F(CudaTuningBench, MemoryComesBackWhenThePointChangesAndAtTheEnd) {
  ASSERT_TRUE(bench_->floor_us({2, 1024}, 60).ok());
  fake_cuda::clear_calls();
  ASSERT_TRUE(bench_->floor_us({4, 1024}, 60).ok());
  EXPECT_GT(count("cuMemFree_v2"), 2);
  const int open = count("cuMemAlloc_v2");
  fake_cuda::clear_calls();
  bench_.reset();
  EXPECT_GE(count("cuMemFree_v2"), open);
}

TEST_F(CudaTuningBench, TooLittleMemoryIsSaidAndLeavesTheBenchUsable) {
  constexpr int out_of_memory = 2;
  fake_cuda::fail("cuMemAlloc_v2", 1, out_of_memory);
  const auto floor = bench_->floor_us({2, 1024}, 60);
  ASSERT_FALSE(floor.ok());
  EXPECT_EQ(floor.error().status, Status::out_of_memory) << floor.error().message;
  EXPECT_TRUE(bench_->floor_us({2, 1024}, 60).ok());
}

TEST(CudaTunable, NamesWhatItCannotMake) {
  const Problem inl = *parse_problem("attention q=bf16 kv=int8 heads=8/2 dim=64 kv_scale=inline");
  const Outcome refused = check_tunable("cuda:0", inl);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("kv_scale=inline"), std::string::npos);
  EXPECT_TRUE(check_tunable("cpu", inl).ok());
}

}  // namespace
