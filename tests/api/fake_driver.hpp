// Tests of the CUDA side against the recording stand-in. They need NVRTC (no GPU) and skip without.
#pragma once

#include <gtest/gtest.h>

#include "tests/api/decode_case.hpp"
#include "tests/support/fake_libcuda.hpp"

namespace splitkv::testing_support {

// bf16, group 4: with rows=4 a batch of b has 8 b sequences. A small
// head, since each test compiles it. checked=auto depends on the build, and with it the calls that
// a test counts: those that count name it.
inline constexpr const char* kCudaProblem =
    "attention q=bf16 kv=bf16 heads=32/8 dim=32 lse=natural";

class FakeDriver : public testing::Test {
 protected:
  void SetUp() override;
};

// A kernel on a device of the stand-in and the arguments of one run of it. Pointers are addresses
// that nothing reads.
struct CudaStep {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  Answer prepared;
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  splitkv_args args = SPLITKV_INIT(splitkv_args);

  CudaStep(const std::string& device, const std::string& schedule, int64_t batch,
           const std::string& problem = kCudaProblem);
  Answer run(void* stream = nullptr) const;
};

// Far enough apart for any batch.
inline void* address(uintptr_t value) { return reinterpret_cast<void*>(value << 16); }

}  // namespace splitkv::testing_support
