// A captured append replayed with other tokens, places and counts, all of which lie on the device.
// Needs a GPU.
#include <gtest/gtest.h>

#include "runtime/cuda/symbols.hpp"
#include "tests/numeric/append_case.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv {
namespace {

using testing_support::AppendCase;
using testing_support::AppendForm;
using testing_support::TokenPlaces;

#define EXPECT_CUDA(call) EXPECT_EQ((*driver)->call, cuda::kSuccess) << #call

TEST(AppendGraph, ReplaysWriteWhatTheDeviceHoldsThen) {
  if (testing_support::test_device().rfind("cuda", 0) != 0) {
    GTEST_SKIP() << "SPLITKV_TEST_DEVICE names no GPU";
  }
  const auto driver = cuda::driver();
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  AppendForm form;
  form.problem = "q=bf16 kv=e4m3 kv_scale=token heads=4/2 dim=64 kv_layout=paged:16:nhd";
  form.tokens = 6;
  AppendCase c(form);
  const tool::Buffer slots = std::move(*c.memory().allocate(6 * sizeof(int64_t)));
  const tool::Buffer count = std::move(*c.memory().allocate(sizeof(int32_t)));
  c.args.slots = static_cast<const int64_t*>(slots.data());
  c.args.token_count = static_cast<const int32_t*>(count.data());
  const auto set = [&](const std::vector<int64_t>& to, int32_t tokens) {
    ASSERT_TRUE(c.memory().copy_in(slots, to.data(), to.size() * sizeof(int64_t)).ok());
    ASSERT_TRUE(c.memory().copy_in(count, &tokens, sizeof(tokens)).ok());
  };
  set(std::vector<int64_t>(6, -1), 6);
  ASSERT_EQ(c.run(), "");  // places everything, writes nothing
  c.expect_written(TokenPlaces(6));

  cuda::CUstream stream = nullptr;
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec replay = nullptr;
  EXPECT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_CUDA(cuStreamCreate(&stream, cuda::kStreamNonBlocking));
  EXPECT_CUDA(cuStreamBeginCapture(stream, cuda::kCaptureModeThreadLocal));
  c.appender().append(c.binding(), c.args, stream);
  EXPECT_CUDA(cuStreamEndCapture(stream, &graph));
  EXPECT_CUDA(cuGraphInstantiateWithFlags(&replay, graph, 0));
  for (int step = 0; step < 20; ++step) {
    std::vector<int64_t> to;
    TokenPlaces places(6);
    const int32_t tokens = step % 7;
    for (int64_t token = 0; token < 6; ++token) {
      to.push_back((step * 7 + token * 11) % 64);
      if (token < tokens) places[size_t(token)] = {to.back() / 16, to.back() % 16};
    }
    set(to, tokens);
    EXPECT_CUDA(cuStreamSynchronize(nullptr));
    EXPECT_CUDA(cuGraphLaunch(replay, stream));
    EXPECT_CUDA(cuStreamSynchronize(stream));
    c.expect_written(places);
  }
  EXPECT_CUDA(cuGraphExecDestroy(replay));
  EXPECT_CUDA(cuGraphDestroy(graph));
  EXPECT_CUDA(cuStreamDestroy(stream));
}

}  // namespace
}  // namespace splitkv
