// Modules and launches of the stand-in for libcuda.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tests/emulator/device_memory.hpp"
#include "tests/emulator/driver.hpp"
#include "tests/emulator/image.hpp"

using namespace emulator;

struct splitkv::cuda::CUmod_st {
  void* library = nullptr;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;

  ~CUmod_st() {
    if (library != nullptr) dlclose(library);
  }
};

namespace {

// A library has to be a file to be opened; a name of its own, or the loader would take the last.
void* open_library(const char* bytes, size_t count) {
  char path[] = "/tmp/splitkv-emulated-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return nullptr;
  const bool written = write(file, bytes, count) == ssize_t(count);
  close(file);
  void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) std::fprintf(stderr, "emulated device: %s\n", dlerror());
  unlink(path);
  return library;
}

// A launch with its parameters, for now or for a graph.
struct KernelCall {
  CUfunction function;
  LaunchRequest request;
  std::vector<std::vector<std::byte>> parameters;
};

CUresult run(KernelCall& call) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::vector<void*> pointers;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> aligned;
  for (const auto& parameter : call.parameters) {
    aligned.emplace_back(std::aligned_alloc(64, (parameter.size() + 63) / 64 * 64), &std::free);
    std::memcpy(aligned.back().get(), parameter.data(), parameter.size());
    pointers.push_back(aligned.back().get());
  }
  // Every other launch of a kernel runs in the opposite order: nothing may depend on it.
  call.request.backwards = call.function->launches++ % 2 != 0;
  Fault fault = run_kernel(call.request, pointers.data());
  const std::string overrun = fault.kind == 0 ? find_overrun() : "";
  if (!overrun.empty()) fault = {int(FaultKind::address), overrun + ", in " + call.request.name};
  return result_of(fault);
}

// What a real driver refuses of a launch.
CUresult check(const CUfunction function, const LaunchConfig& config) {
  const Entry& entry = *function->entry;
  const Index grid{config.grid[0], config.grid[1], config.grid[2]};
  const Index block{config.block[0], config.block[1], config.block[2]};
  if (grid.count() == 0 || block.count() == 0 || block.count() > entry.max_threads)
    return kInvalidValue;
  if (int(config.smem_bytes) > function->dynamic_bytes) return kInvalidValue;
  if (grid.x % entry.cluster != 0) return kInvalidValue;
  const bool portable = entry.cluster <= u32(kPortableClusterSize);
  return portable || function->large_clusters ? kSuccess : kInvalidClusterSize;
}

}  // namespace

EMULATED CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (const CUresult none = needs_context()) return none;
  ImageHead head;
  std::memcpy(&head, image, sizeof(head));
  if (head.magic != ImageHead::kMagic) return kInvalidImage;
  auto loaded = std::make_unique<CUmod_st>();
  loaded->library = open_library(static_cast<const char*>(image) + sizeof(head), head.bytes);
  if (loaded->library == nullptr) return kInvalidImage;
  *module = loaded.release();
  return kSuccess;
}

EMULATED CUresult cuModuleUnload(CUmodule module) {
  delete module;
  return kSuccess;
}

EMULATED CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const void* entry = dlsym(module->library, ("emulated_" + std::string(name)).c_str());
  if (entry == nullptr) return kNotFound;
  auto& kept = module->functions[name];
  if (kept == nullptr) {
    kept = std::make_unique<CUfunc_st>();
    kept->entry = static_cast<const Entry*>(entry);
    kept->name = name;
  }
  *function = kept.get();
  return kSuccess;
}

EMULATED CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  constexpr int registers = 64;  // of no meaning here
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *value = int(function->entry->max_threads);
      return kSuccess;
    case kSharedSizeBytes:
    case kLocalSizeBytes:
      *value = 0;
      return kSuccess;
    case kNumRegisters:
      *value = registers;
      return kSuccess;
    default:
      return not_supported("function attribute " + std::to_string(attribute));
  }
}

EMULATED CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  if (attribute == kMaxDynamicSharedSizeBytes) {
    if (value < 0 || value > kMostSharedBytes) return kInvalidValue;
    function->dynamic_bytes = value;
    return kSuccess;
  }
  if (attribute != kNonPortableClusterSizeAllowed)
    return not_supported("setting function attribute " + std::to_string(attribute));
  function->large_clusters = value != 0;
  return kSuccess;
}

EMULATED CUresult cuFuncLoad(CUfunction) { return kSuccess; }

EMULATED CUresult cuLaunchKernelEx(const LaunchConfig* config, CUfunction function,
                                   void** parameters, void** extra) {
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    if (config->attributes[i].id != kProgrammaticStreamSerialization)
      return not_supported("launch attribute " + std::to_string(config->attributes[i].id));
  }
  if (extra != nullptr) return not_supported("a launch with extra");
  if (const CUresult refused = check(function, *config)) return refused;
  KernelCall call;
  call.function = function;
  call.request.entry = function->entry;
  call.request.name = function->name;
  call.request.grid = {config->grid[0], config->grid[1], config->grid[2]};
  call.request.block = {config->block[0], config->block[1], config->block[2]};
  call.request.shared_bytes = config->smem_bytes;
  for (u32 i = 0; i < function->entry->parameter_count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    call.parameters.emplace_back(bytes, bytes + function->entry->parameter_bytes[i]);
  }
  return submit(config->stream, [call]() mutable { return run(call); });
}

EMULATED CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned smem_bytes, CUstream stream,
                                 void** parameters, void** extra) {
  const LaunchConfig config{.grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .smem_bytes = smem_bytes,
                            .stream = stream,
                            .attributes = nullptr,
                            .attribute_count = 0};
  return cuLaunchKernelEx(&config, function, parameters, extra);
}

EMULATED CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                               const LaunchConfig* config) {
  const CUresult refused = check(function, *config);
  *clusters = refused == kSuccess ? int(16 / function->entry->cluster) : 0;
  return refused;
}
