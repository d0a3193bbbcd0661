// Memory and time of the machine that a run happens on, so that CPU and CUDA runs share one code
// path: a buffer's pointer goes into the C API, copies and fills go through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/result.hpp"

namespace splitkv::tool {

class DeviceMemory;

// Owns one allocation, aligned to 256 bytes; must not outlive its DeviceMemory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DeviceMemory* owner, void* data, size_t bytes)
      : owner_(owner), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  DeviceMemory* owner_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Every byte is 0xff, which is a NaN in every floating type, until something is written.
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  // To `at` bytes from the buffer's start.
  virtual Outcome copy_in(const Buffer& to, const void* from, size_t bytes, size_t at = 0) = 0;
  virtual Outcome copy_out(void* to, const Buffer& from, size_t bytes) = 0;
  virtual Outcome poison(const Buffer& buffer) = 0;  // 0xff again

  // Milliseconds from before `body` to the end of the work that it put on the default stream.
  virtual Result<double> time_ms(const std::function<Outcome()>& body) = 0;
  virtual std::string_view clock_name() const = 0;  // what time_ms measures with

 private:
  friend class Buffer;
  virtual void free(void* data) = 0;
};

// device: "cpu", "cpu:NAME" or "cuda:N".
Result<std::unique_ptr<DeviceMemory>> open_device_memory(const std::string& device);

}  // namespace splitkv::tool
