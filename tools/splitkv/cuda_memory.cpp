#include "tools/splitkv/cuda_memory.hpp"

#include <fmt/format.h>

#include "runtime/cuda/symbols.hpp"

namespace splitkv::tool {
namespace {

using cuda::CUcontext;
using cuda::CUdeviceptr;
using cuda::CUevent;
using cuda::CUresult;
using cuda::Driver;
using cuda::kSuccess;

CUdeviceptr address(const Buffer& buffer) { return reinterpret_cast<CUdeviceptr>(buffer.data()); }

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(const Driver& driver) : driver_(driver) {}
  ~CudaMemory() override {
    if (begin_ != nullptr) driver_.cuEventDestroy(begin_);
    if (end_ != nullptr) driver_.cuEventDestroy(end_);
    CUcontext popped = nullptr;
    if (current_) driver_.cuCtxPopCurrent(&popped);
    if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
  }

  Outcome open(int ordinal) {
    int count = 0;
    if (CUresult e = driver_.cuDeviceGetCount(&count)) return failed("cuDeviceGetCount", e);
    if (ordinal < 0 || ordinal >= count) {
      return invalid_argument(fmt::format(
          "target=cuda:{} is not among the {} devices of this machine", ordinal, count));
    }
    if (CUresult e = driver_.cuDeviceGet(&device_, ordinal)) return failed("cuDeviceGet", e);
    CUcontext context = nullptr;
    if (CUresult e = driver_.cuDevicePrimaryCtxRetain(&context, device_)) {
      return failed("cuDevicePrimaryCtxRetain", e);
    }
    retained_ = true;
    if (CUresult e = driver_.cuCtxPushCurrent(context)) return failed("cuCtxPushCurrent", e);
    current_ = true;
    if (CUresult e = driver_.cuEventCreate(&begin_, cuda::kEventDefault)) {
      return failed("cuEventCreate", e);
    }
    if (CUresult e = driver_.cuEventCreate(&end_, cuda::kEventDefault)) {
      return failed("cuEventCreate", e);
    }
    return Unit{};
  }

  Result<Buffer> allocate(size_t bytes) override {
    const size_t held = bytes > 0 ? bytes : 1;  // the driver refuses allocations of nothing
    CUdeviceptr pointer = 0;
    if (CUresult e = driver_.cuMemAlloc(&pointer, held)) {
      Error error = failed("cuMemAlloc", e);
      error.message += fmt::format(", asked for {} bytes", bytes);
      return error;
    }
    Buffer buffer(this, reinterpret_cast<void*>(pointer), bytes);
    if (const Outcome poisoned = poison(buffer); !poisoned) return poisoned.error();
    return buffer;
  }
  Outcome copy_in(const Buffer& to, const void* from, size_t bytes, size_t at) override {
    if (bytes == 0) return Unit{};
    return outcome("cuMemcpyHtoD", driver_.cuMemcpyHtoD(address(to) + at, from, bytes));
  }
  Outcome copy_out(void* to, const Buffer& from, size_t bytes) override {
    if (bytes == 0) return Unit{};
    return outcome("cuMemcpyDtoH", driver_.cuMemcpyDtoH(to, address(from), bytes));
  }
  Outcome poison(const Buffer& buffer) override {
    if (buffer.bytes() == 0) return Unit{};
    return outcome("cuMemsetD8", driver_.cuMemsetD8(address(buffer), 0xff, buffer.bytes()));
  }

  Result<double> time_ms(const std::function<Outcome()>& body) override {
    if (CUresult e = driver_.cuEventRecord(begin_, nullptr)) return failed("cuEventRecord", e);
    if (const Outcome done = body(); !done) return done.error();
    if (CUresult e = driver_.cuEventRecord(end_, nullptr)) return failed("cuEventRecord", e);
    if (CUresult e = driver_.cuEventSynchronize(end_)) return failed("cuEventSynchronize", e);
    float ms = 0;
    if (CUresult e = driver_.cuEventElapsedTime(&ms, begin_, end_)) {
      return failed("cuEventElapsedTime", e);
    }
    return double(ms);
  }
  std::string_view clock_name() const override { return "CUDA events"; }

 private:
  void free(void* data) override { driver_.cuMemFree(reinterpret_cast<CUdeviceptr>(data)); }
  Error failed(const char* call, CUresult result) const {
    return cuda::driver_error(driver_, call, result);
  }
  Outcome outcome(const char* call, CUresult result) const {
    if (result != kSuccess) return failed(call, result);
    return Unit{};
  }

  const Driver& driver_;
  cuda::CUdevice device_ = 0;
  bool retained_ = false;
  bool current_ = false;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> open_cuda_memory(int ordinal) {
  const Result<const Driver*> driver = cuda::driver();
  if (!driver) return driver.error();
  auto memory = std::make_unique<CudaMemory>(**driver);
  if (const Outcome opened = memory->open(ordinal); !opened) return opened.error();
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

}  // namespace splitkv::tool
