#include "tests/api/fake_driver.hpp"

#include <stdlib.h>

#include "runtime/cuda/nvrtc.hpp"

namespace splitkv::testing_support {

void FakeDriver::SetUp() {
  setenv("SPLITKV_LIBCUDA", FAKE_LIBCUDA, 1);
  const Result<std::string> nvrtc = nvrtc_version();
  if (!nvrtc) GTEST_SKIP() << "needs NVRTC: " << nvrtc.error().message;
  fake_cuda::reset();
}

CudaStep::CudaStep(const std::string& device, const std::string& schedule, int64_t batch,
                   const std::string& problem) {
  prepared = prepare(runtime.get(), device, problem, schedule.c_str(), &kernel);
  EXPECT_TRUE(prepared.ok()) << prepared;
  if (!prepared.ok()) return;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
  EXPECT_EQ(splitkv_dense_strides(kernel.get(), 1000, &tensors, nullptr), SPLITKV_OK);
  tensors.k = address(0x10000000);
  tensors.v = address(0x20000000);
  EXPECT_EQ(splitkv_bind(kernel.get(), &tensors, &binding, nullptr), SPLITKV_OK);
  EXPECT_EQ(splitkv_sizes(kernel.get(), batch, &sizes, nullptr), SPLITKV_OK);
  args.batch = batch;
  args.q = address(0x30000000);
  args.out = address(0x40000000);
  args.lse = static_cast<float*>(address(0x50000000));
  args.kv_len = static_cast<int32_t*>(address(0x60000000));
  args.scratch = address(0x70000000);
  args.scratch_bytes = sizes.scratch_bytes;
  args.state = address(0x80000000);
  args.state_bytes = sizes.state_bytes;
}

Answer CudaStep::run(void* stream) const {
  return answer_of(
      [&](splitkv_message* m) { return splitkv_run(kernel.get(), &binding, &args, stream, m); });
}

}  // namespace splitkv::testing_support
