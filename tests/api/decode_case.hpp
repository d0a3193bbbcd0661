// One decode step in fp32 with all its memory, as a caller of the C API has it, and the C API with
// its message as a string.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/splitkv.h"

namespace splitkv::testing_support {

struct Answer {
  splitkv_status status = SPLITKV_OK;
  std::string message;

  bool ok() const { return status == SPLITKV_OK; }
  bool says(const std::string& words) const { return message.find(words) != std::string::npos; }
};

std::ostream& operator<<(std::ostream& out, const Answer& answer);

// call: splitkv_status(splitkv_message*).
template <class Call>
Answer answer_of(const Call& call) {
  std::vector<char> text(1 << 16);
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  message.text = text.data();
  message.capacity = text.size();
  const splitkv_status status = call(&message);
  return {status, text.data()};
}

struct CloseRuntime {
  void operator()(splitkv_runtime* runtime) const { splitkv_close(runtime); }
};
struct ReleaseKernel {
  void operator()(splitkv_kernel* kernel) const { splitkv_release(kernel); }
};
using RuntimeOwner = std::unique_ptr<splitkv_runtime, CloseRuntime>;
using KernelOwner = std::unique_ptr<splitkv_kernel, ReleaseKernel>;

RuntimeOwner open_runtime(const splitkv_options* options = nullptr);

// schedule: null for the library's choice. The kernel is null unless the answer is ok.
Answer prepare(splitkv_runtime* runtime, const std::string& device, const std::string& problem,
               const char* schedule, KernelOwner* kernel);

splitkv_kernel_info info_of(const splitkv_kernel* kernel);
splitkv_statistics statistics_of(const splitkv_runtime* runtime);

// Host memory aligned to 64 bytes, filled with a pattern of small numbers.
class Floats {
 public:
  explicit Floats(size_t count, uint32_t seed = 1);
  float* data() const { return data_.get(); }
  size_t size() const { return count_; }
  std::vector<float> values() const { return {data(), data() + count_}; }
  void fill(float value);

 private:
  struct Free {
    void operator()(float* data) const;
  };
  size_t count_;
  std::unique_ptr<float, Free> data_;
};

// [batch, 4 query heads] on 2 kv heads, dim 32, bhtd, lse=natural, all fp32. Outputs start as NaN.
struct DecodeCase {
  static constexpr int kQHeads = 4, kKvHeads = 2, kDim = 32;

  explicit DecodeCase(std::vector<int32_t> lengths, const std::string& words = "");

  // Binds K and V with dense strides and makes scratch and (zeroed) state for the kernel.
  Answer attach(const splitkv_kernel* kernel);

  std::string problem;
  std::vector<int32_t> kv_len;
  int64_t capacity;
  Floats q, k, v, out, lse;
  std::vector<char> scratch_memory, state_memory;

  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  splitkv_args args = SPLITKV_INIT(splitkv_args);
};

// The largest relative L2 error of any (row, head) of `step.out` and the largest absolute error of
// its lse, against two passes in double; infinity where an empty row is not exactly (0, -inf).
struct Errors {
  double out = 0;
  double lse = 0;
};
Errors errors_of(const DecodeCase& step);

}  // namespace splitkv::testing_support
