// Calls for one device while another is current, and in a child of fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/splitkv_dlpack.h"
#include "tests/api/fake_driver.hpp"

using namespace splitkv::testing_support;

namespace {

using CudaDevices = FakeDriver;

// Every call that works in a context was made in that of device 1, and device 0's is current again.
void expect_in_device_1(const char* call_name, int count) {
  int seen = 0;
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != call_name) continue;
    ++seen;
    EXPECT_EQ(call.context, fake_cuda::primary_context(1)) << call_name;
  }
  EXPECT_EQ(seen, count) << call_name;
  EXPECT_EQ(fake_cuda::current_context(), fake_cuda::primary_context(0));
}

TEST_F(CudaDevices, PrepareStateRunAndMergeWorkOnDeviceOneWhileZeroIsCurrent) {
  fake_cuda::make_current(fake_cuda::primary_context(0));
  CudaStep step("cuda:1", "partition=fixed splits=2 reduce=kernel pdl=off", 1,
                std::string(kCudaProblem) + " checked=off");
  ASSERT_TRUE(step.prepared.ok()) << step.prepared;
  expect_in_device_1("cuModuleLoadData", 2);
  std::vector<uint32_t> state(16);
  ASSERT_EQ(splitkv_state_init(step.kernel.get(), state.data(), 64, address(0x90), nullptr),
            SPLITKV_OK);
  expect_in_device_1("cuMemsetD8Async", 1);
  ASSERT_TRUE(step.run(address(0x90)).ok());
  expect_in_device_1("cuLaunchKernel", 2);
  splitkv_merger* merger = nullptr;
  ASSERT_EQ(splitkv_prepare_merge(step.runtime.get(), "cuda:1", "lse", "natural", &merger, nullptr),
            SPLITKV_OK);
  expect_in_device_1("cuMemHostAlloc", 1);
  splitkv_release_merger(merger);
  step.kernel.reset();
  step.runtime.reset();
  expect_in_device_1("cuModuleUnload", 3);
}

TEST_F(CudaDevices, ATensorOfAnotherDeviceIsRefusedByBothNames) {
  CudaStep step("cuda:1", "partition=fixed splits=1 pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  const int64_t shape[] = {4, 8, 100, 32};
  splitkv_dl_tensor k = {address(0x1000), {2, 1}, 4, {4, 16, 1}, shape, nullptr, 256};
  splitkv_dl_tensor v = k;
  splitkv_dl_cache cache = SPLITKV_INIT(splitkv_dl_cache);
  cache.k = &k;
  cache.v = &v;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  const auto fill = [&] {
    return answer_of([&](splitkv_message* m) {
      return splitkv_tensors_from_dlpack(step.kernel.get(), &cache, &tensors, m);
    });
  };
  ASSERT_TRUE(fill().ok()) << fill();
  EXPECT_EQ(tensors.k, static_cast<char*>(address(0x1000)) + 256);
  v.device = {13, 0};  // managed memory is everywhere
  EXPECT_TRUE(fill().ok()) << fill();
  v.device = {2, 0};
  EXPECT_TRUE(fill().says("cache.v lies on cuda:0, but the kernel was prepared on cuda:1"))
      << fill();
  v.device = {1, 0};
  EXPECT_TRUE(fill().says("cache.v lies on cpu,")) << fill();
}

TEST_F(CudaDevices, AChildOfForkGetsAStatusForCudaAndCallsNothingInTheDriver) {
  CudaStep step("cuda:0", "partition=fixed splits=1 pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::clear_calls();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const auto refused = [](const Answer& answer) {
      return answer.status == SPLITKV_DEVICE_ERROR && answer.says("does not outlive a fork");
    };
    KernelOwner kernel;
    if (!refused(step.run())) _exit(1);
    if (!refused(prepare(step.runtime.get(), "cuda:0", kCudaProblem, nullptr, &kernel))) _exit(2);
    if (!refused(prepare(open_runtime().get(), "cuda:1", kCudaProblem, nullptr, &kernel))) _exit(3);
    step.kernel.reset();
    step.runtime.reset();
    _exit(fake_cuda::call_names().empty() ? 0 : 4);
  }
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_TRUE(step.run().ok()) << "the parent goes on";
}

}  // namespace
