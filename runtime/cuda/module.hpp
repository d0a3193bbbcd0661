// Loaded cubins: their kernels, ready to launch. Nothing of it is lazy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel_source.hpp"
#include "runtime/cuda/device.hpp"

namespace splitkv::cuda {

struct Function {
  CUfunction handle = nullptr;  // null: this module has no such kernel
  int registers = 0;
  int local_bytes = 0;  // spills and stack, a thread
};

// Move-only; unloads on destruction. Keeps its device's context alive.
class Module {
 public:
  // Loads `images`, one of each of the source's entries, in the device's context, allows the split
  // kernel `split_smem_bytes` of dynamic shared memory and makes the driver load the code now.
  static Result<Module> load(std::shared_ptr<const Device> device,
                             const std::vector<std::string>& images, const KernelSource& source,
                             int64_t split_smem_bytes);

  Module(Module&& other) noexcept { swap(other); }
  Module& operator=(Module&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Module();

  const Device& device() const { return *device_; }
  const Function& split() const { return split_; }
  const Function& reduce() const { return reduce_; }

 private:
  Module() = default;
  void swap(Module& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handles_, other.handles_);
    std::swap(split_, other.split_);
    std::swap(reduce_, other.reduce_);
  }
  Result<Function> add(const std::string& image, const std::string& entry, int64_t smem_bytes);

  std::shared_ptr<const Device> device_;
  std::vector<CUmodule> handles_;
  Function split_;
  Function reduce_;
};

}  // namespace splitkv::cuda
