// Each driver call of prepare and run made to fail in turn: a status with the call's name, the
// caller's context as before, and a later try that works.
#include <gtest/gtest.h>

#include "tests/api/fake_driver.hpp"

using namespace splitkv::testing_support;

namespace {

constexpr int kOutOfMemory = 2, kLaunchFailed = 719;
constexpr const char* kSchedule = "partition=fixed splits=2 rows=4 warps=4 reduce=kernel pdl=off";
constexpr const char* kEarlySchedule =
    "partition=fixed splits=2 rows=4 warps=4 reduce=kernel pdl=on";

struct Failing {
  const char* name;  // as exported
  int nth;
};

void PrintTo(const Failing& failing, std::ostream* out) {
  *out << failing.name << " " << failing.nth;
}

// Where the pop itself fails, the pushed context stays.
bool is_the_pop(const Failing& failing) {
  return std::string(failing.name) == "cuCtxPopCurrent_v2";
}

// "cuCtxPushCurrent_v2" is called cuCtxPushCurrent in messages, as in the driver's manual.
std::string manual_name(std::string name) {
  const size_t version = name.rfind("_v");
  return version == std::string::npos ? name : name.substr(0, version);
}

// In the order in which a prepare calls them, so that each failure shows that those before are
// over.
const Failing kPrepareCalls[] = {{"cuDeviceGetCount", 1},         {"cuDeviceGet", 1},
                                 {"cuDeviceGetAttribute", 1},     {"cuDeviceGetAttribute", 11},
                                 {"cuDevicePrimaryCtxRetain", 1}, {"cuCtxGetCurrent", 1},
                                 {"cuCtxPushCurrent_v2", 1},      {"cuModuleLoadData", 1},
                                 {"cuModuleGetFunction", 1},      {"cuModuleGetFunction", 2},
                                 {"cuFuncGetAttribute", 1},       {"cuFuncGetAttribute", 6},
                                 {"cuFuncSetAttribute", 1},       {"cuFuncLoad", 2},
                                 {"cuCtxPopCurrent_v2", 1}};

using PrepareWhen = FakeDriver;

TEST_F(PrepareWhen, ACallFailsNamesItKeepsTheCallersContextAndIsTriedAgain) {
  fake_cuda::set_static_smem(48 * 1024);  // so that attributes are set
  void* const context = fake_cuda::primary_context(1);
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  for (const Failing& failing : kPrepareCalls) {
    for (const int result : {kLaunchFailed, kOutOfMemory}) {
      SCOPED_TRACE(testing::PrintToString(failing));
      const bool memory = result == kOutOfMemory;
      fake_cuda::make_current(context);
      fake_cuda::fail(failing.name, failing.nth, result);
      const Answer answer = prepare(runtime.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
      EXPECT_EQ(answer.status, memory ? SPLITKV_OUT_OF_MEMORY : SPLITKV_DEVICE_ERROR) << answer;
      EXPECT_EQ(answer.message, manual_name(failing.name) + ": CUDA_ERROR_" +
                                    (memory ? "OUT_OF_MEMORY" : "LAUNCH_FAILED") +
                                    " (said by the stand-in)");
      EXPECT_EQ(kernel, nullptr);
      EXPECT_EQ(fake_cuda::live_modules(), 0);
      if (!is_the_pop(failing)) {
        EXPECT_EQ(fake_cuda::current_context(), context);
      }
    }
  }
  fake_cuda::make_current(context);
  const Answer later = prepare(runtime.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
  EXPECT_TRUE(later.ok()) << later;
  EXPECT_EQ(fake_cuda::current_context(), context);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
}

const Failing kRunCalls[] = {{"cuCtxGetCurrent", 1},
                             {"cuCtxPushCurrent_v2", 1},
                             {"cuLaunchKernel", 1},
                             {"cuLaunchKernel", 2},
                             {"cuCtxPopCurrent_v2", 1}};

using RunWhen = FakeDriver;

TEST_F(RunWhen, ACallFailsNamesItKeepsTheCallersContextAndALaterRunWorks) {
  CudaStep step("cuda:0", kSchedule, 1);
  ASSERT_TRUE(step.prepared.ok());
  void* const context = fake_cuda::primary_context(1);
  for (const Failing& failing : kRunCalls) {
    SCOPED_TRACE(testing::PrintToString(failing));
    fake_cuda::make_current(context);
    fake_cuda::fail(failing.name, failing.nth, kLaunchFailed);
    const Answer answer = step.run();
    EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR) << answer;
    EXPECT_TRUE(answer.says(manual_name(failing.name) + ": CUDA_ERROR_LAUNCH_FAILED")) << answer;
    if (!is_the_pop(failing)) {
      EXPECT_EQ(fake_cuda::current_context(), context);
    }
    fake_cuda::make_current(context);
    EXPECT_TRUE(step.run().ok());
    EXPECT_EQ(fake_cuda::current_context(), context);
  }
}

TEST_F(RunWhen, AnEarlyLaunchFailsNamesItAndALaterRunWorks) {
  CudaStep step("cuda:0", kEarlySchedule, 1);
  ASSERT_TRUE(step.prepared.ok());
  for (const int nth : {1, 2}) {
    fake_cuda::fail("cuLaunchKernelEx", nth, kLaunchFailed);
    const Answer answer = step.run();
    EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR) << answer;
    EXPECT_TRUE(answer.says("cuLaunchKernelEx: CUDA_ERROR_LAUNCH_FAILED")) << answer;
    EXPECT_TRUE(step.run().ok());
  }
}

using StateInit = FakeDriver;

TEST_F(StateInit, ThatFailsNamesTheCall) {
  CudaStep step("cuda:0", "partition=fixed splits=2 reduce=last_block pdl=off", 1);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::fail("cuMemsetD8Async", 1, kLaunchFailed);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_state_init(step.kernel.get(), step.args.state, 4, nullptr, m);
  });
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(answer.says("cuMemsetD8Async: CUDA_ERROR_LAUNCH_FAILED")) << answer;
}

}  // namespace
