#include "tools/splitkv/device_memory.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#ifdef SPLITKV_HAS_CUDA
#include "tools/splitkv/cuda_memory.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr size_t kAlignment = 256;

class HostMemory final : public DeviceMemory {
 public:
  Result<Buffer> allocate(size_t bytes) override {
    const size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
      return Error{Status::out_of_memory, fmt::format("{} bytes of host memory", bytes)};
    }
    std::memset(data, 0xff, rounded);
    return Buffer(this, data, bytes);
  }
  Outcome copy_in(const Buffer& to, const void* from, size_t bytes, size_t at) override {
    if (bytes > 0) std::memcpy(static_cast<char*>(to.data()) + at, from, bytes);
    return Unit{};
  }
  Outcome copy_out(void* to, const Buffer& from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from.data(), bytes);
    return Unit{};
  }
  Outcome poison(const Buffer& buffer) override {
    std::memset(buffer.data(), 0xff, buffer.bytes());
    return Unit{};
  }
  Result<double> time_ms(const std::function<Outcome()>& body) override {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = body();
    const auto end = std::chrono::steady_clock::now();
    if (!outcome) return outcome.error();
    return std::chrono::duration<double, std::milli>(end - begin).count();
  }
  std::string_view clock_name() const override { return "wall clock"; }

 private:
  void free(void* data) override { std::free(data); }
};

}  // namespace

Buffer::~Buffer() {
  if (owner_ != nullptr) owner_->free(data_);
}

Result<std::unique_ptr<DeviceMemory>> open_device_memory(const std::string& device) {
  if (device == "cpu" || device.starts_with("cpu:")) {
    return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>());
  }
#ifdef SPLITKV_HAS_CUDA
  if (device.starts_with("cuda:")) return open_cuda_memory(std::atoi(device.c_str() + 5));
#endif
  return invalid_argument(
      fmt::format("target={} has no memory here; cpu or cuda:N would fit", device));
}

}  // namespace splitkv::tool
