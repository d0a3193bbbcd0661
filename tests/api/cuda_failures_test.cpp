// Each driver call of prepare and run made to fail in turn: a status with the call's name, the
// caller's context as before, and a later try that works.
#include <gtest/gtest.h>

#include "tests/api/fake_driver.hpp"

using namespace splitkv::testing_support;

namespace {

constexpr int kOutOfMemory = 2, kLaunchFailed = 719;
constexpr const char* kSchedule = "partition=fixed splits=2 rows=4 warps=4 reduce=kernel";

struct Failing {
  const char* name;  // as exported
  int nth;
};

void PrintTo(const Failing& failing, std::ostream* out) {
  *out << failing.name << " " << failing.nth;
}

// "cuCtxPushCurrent_v2" is called cuCtxPushCurrent in messages, as in the driver's manual.
std::string manual_name(std::string name) {
  const size_t version = name.rfind("_v");
  return version == std::string::npos ? name : name.substr(0, version);
}

class PrepareWhen : public FakeDriver, public testing::WithParamInterface<Failing> {};

TEST_P(PrepareWhen, ACallFailsNamesItAndALaterPrepareWorks) {
  const Failing& failing = GetParam();
  fake_cuda::set_static_smem(48 * 1024);  // so that attributes are set
  void* const context = fake_cuda::primary_context(1);
  fake_cuda::make_current(context);
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  for (const int result : {kLaunchFailed, kOutOfMemory}) {
    fake_cuda::fail(failing.name, failing.nth, result);
    const Answer answer = prepare(runtime.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
    EXPECT_EQ(answer.status, result == kOutOfMemory ? SPLITKV_OUT_OF_MEMORY : SPLITKV_DEVICE_ERROR)
        << answer;
    EXPECT_EQ(answer.message, manual_name(failing.name) + ": CUDA_ERROR_" +
                                  (result == kOutOfMemory ? "OUT_OF_MEMORY" : "LAUNCH_FAILED") +
                                  " (said by the stand-in)");
    EXPECT_EQ(kernel, nullptr);
    if (std::string(failing.name) != "cuCtxPopCurrent_v2") {
      EXPECT_EQ(fake_cuda::current_context(), context);
    }
    fake_cuda::make_current(context);
  }
  const Answer later = prepare(runtime.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
  EXPECT_TRUE(later.ok()) << later;
  EXPECT_LE(statistics_of(runtime.get()).compiles, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, PrepareWhen,
    testing::Values(Failing{"cuDeviceGetCount", 1}, Failing{"cuDeviceGet", 1},
                    Failing{"cuDeviceGetAttribute", 1}, Failing{"cuDeviceGetAttribute", 11},
                    Failing{"cuDevicePrimaryCtxRetain", 1}, Failing{"cuCtxGetCurrent", 1},
                    Failing{"cuCtxPushCurrent_v2", 1}, Failing{"cuModuleLoadData", 1},
                    Failing{"cuModuleGetFunction", 1}, Failing{"cuModuleGetFunction", 2},
                    Failing{"cuFuncGetAttribute", 1}, Failing{"cuFuncGetAttribute", 6},
                    Failing{"cuFuncSetAttribute", 1}, Failing{"cuFuncLoad", 2},
                    Failing{"cuCtxPopCurrent_v2", 1}));

class RunWhen : public FakeDriver, public testing::WithParamInterface<Failing> {};

TEST_P(RunWhen, ACallFailsNamesItAndALaterRunWorks) {
  const Failing& failing = GetParam();
  CudaStep step("cuda:0", kSchedule, 1);
  ASSERT_TRUE(step.prepared.ok());
  void* const context = fake_cuda::primary_context(1);
  fake_cuda::make_current(context);
  fake_cuda::fail(failing.name, failing.nth, kLaunchFailed);
  const Answer answer = step.run();
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR) << answer;
  EXPECT_TRUE(answer.says(manual_name(failing.name) + ": CUDA_ERROR_LAUNCH_FAILED")) << answer;
  if (std::string(failing.name) != "cuCtxPopCurrent_v2") {
    EXPECT_EQ(fake_cuda::current_context(), context);
  }
  fake_cuda::make_current(context);
  EXPECT_TRUE(step.run().ok());
  EXPECT_EQ(fake_cuda::current_context(), context);
}

INSTANTIATE_TEST_SUITE_P(Calls, RunWhen,
                         testing::Values(Failing{"cuCtxGetCurrent", 1},
                                         Failing{"cuCtxPushCurrent_v2", 1},
                                         Failing{"cuLaunchKernel", 1}, Failing{"cuLaunchKernel", 2},
                                         Failing{"cuCtxPopCurrent_v2", 1}));

using StateInit = FakeDriver;

TEST_F(StateInit, ThatFailsNamesTheCall) {
  CudaStep step("cuda:0", "partition=fixed splits=2 reduce=last_block", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::fail("cuMemsetD8Async", 1, kLaunchFailed);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_state_init(step.kernel.get(), step.args.state, 4, nullptr, m);
  });
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(answer.says("cuMemsetD8Async: CUDA_ERROR_LAUNCH_FAILED")) << answer;
}

}  // namespace
