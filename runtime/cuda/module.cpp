#include "runtime/cuda/module.hpp"

namespace splitkv::cuda {

Result<Module> Module::load(std::shared_ptr<const Device> device,
                            const std::vector<std::string>& images, const KernelSource& source,
                            int64_t split_smem_bytes) {
  ContextScope scope(*device);
  if (!scope.entered()) return scope.entered().error();
  Module module;
  module.device_ = device;
  const Result<Function> split = module.add(images.front(), source.split_entry, split_smem_bytes);
  if (!split) return split.error();
  module.split_ = *split;
  if (!source.reduce_entry.empty()) {
    const Result<Function> reduce = module.add(images.back(), source.reduce_entry, 0);
    if (!reduce) return reduce.error();
    module.reduce_ = *reduce;
  }
  if (const Outcome left = scope.leave(); !left) return left.error();
  return module;
}

Result<Function> Module::add(const std::string& image, const std::string& entry,
                             int64_t smem_bytes) {
  const Driver& driver = device_->driver();
  CUmodule handle = nullptr;
  CUresult result = driver.cuModuleLoadData(&handle, image.data());
  if (result != kSuccess) return driver_error(driver, "cuModuleLoadData", result);
  handles_.push_back(handle);
  Function function;
  result = driver.cuModuleGetFunction(&function.handle, handle, entry.c_str());
  if (result != kSuccess) return driver_error(driver, "cuModuleGetFunction", result);
  int static_smem = 0;
  for (const auto& [attribute, value] : {std::pair{kNumRegisters, &function.registers},
                                         std::pair{kLocalSizeBytes, &function.local_bytes},
                                         std::pair{kSharedSizeBytes, &static_smem}}) {
    result = driver.cuFuncGetAttribute(value, attribute, function.handle);
    if (result != kSuccess) return driver_error(driver, "cuFuncGetAttribute", result);
  }
  if (smem_bytes > 0 && smem_bytes + static_smem > kDefaultSharedBytes) {
    result =
        driver.cuFuncSetAttribute(function.handle, kMaxDynamicSharedSizeBytes, int(smem_bytes));
    if (result != kSuccess) return driver_error(driver, "cuFuncSetAttribute", result);
  }
  if (driver.cuFuncLoad != nullptr) {
    result = driver.cuFuncLoad(function.handle);
    if (result != kSuccess) return driver_error(driver, "cuFuncLoad", result);
  }
  return function;
}

Module::~Module() {
  if (handles_.empty()) return;
  const ContextScope scope(*device_);
  if (!scope.entered()) return;
  for (const CUmodule handle : handles_) device_->driver().cuModuleUnload(handle);
}

}  // namespace splitkv::cuda
