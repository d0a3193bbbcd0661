#include "runtime/cuda/module.hpp"

#include <fmt/format.h>

namespace splitkv::cuda {

Result<Module> Module::load(std::shared_ptr<const Device> device,
                            const std::vector<std::string>& images, const KernelSource& source,
                            const SplitNeeds& split_needs) {
  ContextScope scope(*device);
  if (!scope.entered()) return scope.entered().error();
  Module module;
  module.device_ = device;
  const Result<Function> split = module.add(images.front(), source.split_entry, split_needs);
  if (!split) return split.error();
  module.split_ = *split;
  if (!source.reduce_entry.empty()) {
    const Result<Function> reduce = module.add(images.back(), source.reduce_entry, {});
    if (!reduce) return reduce.error();
    module.reduce_ = *reduce;
  }
  if (const Outcome left = scope.leave(); !left) return left.error();
  return module;
}

Result<Function> Module::add(const std::string& image, const std::string& entry,
                             const SplitNeeds& needs) {
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
  const Outcome allowed = allow(function.handle, needs, static_smem);
  if (!allowed) return allowed.error();
  if (driver.cuFuncLoad != nullptr) {
    result = driver.cuFuncLoad(function.handle);
    if (result != kSuccess) return driver_error(driver, "cuFuncLoad", result);
  }
  if (const Outcome fits = check_cluster_fits(function.handle, needs); !fits) return fits.error();
  return function;
}

Outcome Module::allow(CUfunction function, const SplitNeeds& needs, int static_smem_bytes) const {
  const Driver& driver = device_->driver();
  const auto set = [&](FunctionAttribute attribute, int value) {
    return driver.cuFuncSetAttribute(function, attribute, value);
  };
  CUresult result = kSuccess;
  if (needs.smem_bytes > 0 && needs.smem_bytes + static_smem_bytes > kDefaultSharedBytes)
    result = set(kMaxDynamicSharedSizeBytes, int(needs.smem_bytes));
  if (result == kSuccess && needs.cluster > kPortableClusterSize)
    result = set(kNonPortableClusterSizeAllowed, 1);
  if (result != kSuccess) return driver_error(driver, "cuFuncSetAttribute", result);
  return Unit{};
}

// The multiprocessors that a cluster can share are fewer on some devices and on parts of one. A
// driver too old to be asked says so when the kernel is launched.
Outcome Module::check_cluster_fits(CUfunction function, const SplitNeeds& needs) const {
  const Driver& driver = device_->driver();
  if (needs.cluster == 1 || driver.cuOccupancyMaxActiveClusters == nullptr) return Unit{};
  int threads = 0;
  CUresult result = driver.cuFuncGetAttribute(&threads, kMaxThreadsPerBlock, function);
  if (result != kSuccess) return driver_error(driver, "cuFuncGetAttribute", result);
  // The blocks of a cluster are in the code; here they are one cluster's grid.
  const LaunchConfig config{.grid = {unsigned(needs.cluster), 1, 1},
                            .block = {unsigned(threads), 1, 1},
                            .smem_bytes = unsigned(needs.smem_bytes),
                            .stream = nullptr,
                            .attributes = nullptr,
                            .attribute_count = 0};
  int clusters = 0;
  result = driver.cuOccupancyMaxActiveClusters(&clusters, function, &config);
  if (result != kSuccess && result != kInvalidClusterSize)
    return driver_error(driver, "cuOccupancyMaxActiveClusters", result);
  if (result == kSuccess && clusters > 0) return Unit{};
  const std::string fewer = needs.cluster > kPortableClusterSize
                                ? fmt::format("cluster={}", kPortableClusterSize)
                                : "reduce=last_block";
  return Error{Status::unsupported,
               fmt::format("cluster={}: cuda:{} holds no {} blocks of {} threads and {} bytes of "
                           "shared memory where they could be one cluster; {} would fit, and fewer "
                           "warps or stages may",
                           needs.cluster, device_->ordinal(), needs.cluster, threads,
                           needs.smem_bytes, fewer)};
}

Module::~Module() {
  if (handles_.empty()) return;
  const ContextScope scope(*device_);
  if (!scope.entered()) return;
  for (const CUmodule handle : handles_) device_->driver().cuModuleUnload(handle);
}

}  // namespace splitkv::cuda
