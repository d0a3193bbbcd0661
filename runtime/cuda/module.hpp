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

// What the split kernel's launches need beyond what every kernel may have.
struct SplitNeeds {
  int64_t smem_bytes = 0;  // dynamic shared memory
  int cluster = 1;         // blocks of a cluster
};

// Move-only; unloads on destruction. Keeps its device's context alive.
class Module {
 public:
  // Loads `images`, one of each of the source's entries, in the device's context, allows the split
  // kernel what it needs and makes the driver load the code now. `unsupported` where no cluster of
  // the split kernel fits the device.
  static Result<Module> load(std::shared_ptr<const Device> device,
                             const std::vector<std::string>& images, const KernelSource& source,
                             const SplitNeeds& split_needs);

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
  Result<Function> add(const std::string& image, const std::string& entry, const SplitNeeds& needs);
  Outcome allow(CUfunction function, const SplitNeeds& needs, int static_smem_bytes) const;
  Outcome check_cluster_fits(CUfunction function, const SplitNeeds& needs) const;

  std::shared_ptr<const Device> device_;
  std::vector<CUmodule> handles_;
  Function split_;
  Function reduce_;
};

}  // namespace splitkv::cuda
