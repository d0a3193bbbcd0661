// The CUDA side of the runtime: devices by ordinal, cubins by key, loaded modules by key and
// context, and launches.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <map>
#include <new>

#include "runtime/cuda/module.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "runtime/cuda/symbols.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "runtime/platform.hpp"
#include "runtime/single_flight.hpp"

namespace splitkv {
namespace {

using cuda::ContextScope;
using cuda::CUresult;
using cuda::Device;
using cuda::driver_error;
using cuda::Function;
using cuda::kSuccess;
using cuda::Module;

// "cuda:1" is 1.
Result<int> ordinal_of(const std::string& device) {
  constexpr std::string_view kPrefix = "cuda:";
  int ordinal = 0;
  if (device.starts_with(kPrefix)) {
    const char* end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(device.data() + kPrefix.size(), end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) return ordinal;
  }
  return invalid_argument(
      fmt::format("device={} names no CUDA device by its ordinal; cuda:0 would fit", device));
}

// Pinned host memory that the device reads and writes through its own address.
class MappedErrors final : public ErrorMemory {
 public:
  static Result<std::shared_ptr<const ErrorMemory>> make(std::shared_ptr<const Device> device) {
    ContextScope scope(*device);
    if (!scope.entered()) return scope.entered().error();
    const cuda::Driver& driver = device->driver();
    auto errors = std::make_shared<MappedErrors>(std::move(device));
    void* memory = nullptr;
    CUresult result = driver.cuMemHostAlloc(&memory, sizeof(ErrorRecord),
                                            cuda::kHostAllocPortable | cuda::kHostAllocMapped);
    if (result != kSuccess) return driver_error(driver, "cuMemHostAlloc", result);
    errors->host_ = new (memory) ErrorRecord;
    result = driver.cuMemHostGetDevicePointer(&errors->address_, memory, 0);
    if (result != kSuccess) return driver_error(driver, "cuMemHostGetDevicePointer", result);
    if (const Outcome left = scope.leave(); !left) return left.error();
    return std::shared_ptr<const ErrorMemory>(std::move(errors));
  }

  explicit MappedErrors(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  MappedErrors(const MappedErrors&) = delete;
  MappedErrors& operator=(const MappedErrors&) = delete;
  ~MappedErrors() override {
    if (host_ == nullptr) return;
    const ContextScope scope(*device_);
    if (scope.entered()) device_->driver().cuMemFreeHost(host_);
  }

  ErrorRecord* host() const override { return host_; }
  ErrorRecord* device() const override { return reinterpret_cast<ErrorRecord*>(address_); }
  Outcome readable() const override { return cuda::check_not_forked(); }

 private:
  std::shared_ptr<const Device> device_;
  ErrorRecord* host_ = nullptr;
  cuda::CUdeviceptr address_ = 0;
};

size_t image_bytes(const StoredCode& code) {
  size_t bytes = 0;
  for (const std::string& image : code.images) bytes += image.size();
  return bytes;
}

Error launches_are_plain(const cuda::Driver& driver) {
  return {Status::unsupported,
          fmt::format("pdl=on needs cuLaunchKernelEx, which {} lacks; pdl=off, or the driver of "
                      "CUDA 11.8 or newer, would fit",
                      driver.path)};
}

Error maps_are_unknown(const cuda::Driver& driver) {
  return {Status::unsupported,
          fmt::format("loads=tensor needs cuTensorMapEncodeTiled, which {} lacks; loads=copy, or "
                      "the driver of CUDA 12.0 or newer, would fit",
                      driver.path)};
}

class CudaCode final : public LoadedCode {
 public:
  CudaCode(std::shared_ptr<const Module> module, size_t cubin_bytes)
      : module_(std::move(module)), cubin_bytes_(cubin_bytes) {}

  CodeFacts facts() const override {
    return {.module_bytes = cubin_bytes_,
            .registers_split = module_->split().registers,
            .registers_reduce = module_->reduce().registers,
            .local_bytes_split = module_->split().local_bytes,
            .local_bytes_reduce = module_->reduce().local_bytes};
  }

  Outcome run(const LaunchArgs& args, const LaunchShape& shape, void* stream) const override {
    if (shape.k_box.columns == 0) return run_kernels(args, shape, stream);
    LaunchArgs mapped = args;
    const Outcome encoded = encode_tensor_maps(module_->device().driver(), shape, mapped);
    if (!encoded) return encoded;
    return run_kernels(mapped, shape, stream);
  }

  Outcome run_kernels(const LaunchArgs& args, const LaunchShape& shape, void* stream) const {
    ContextScope scope(module_->device());
    if (!scope.entered()) return scope.entered();
    Outcome launched = launch(module_->split(),
                              {.blocks = shape.split_blocks,
                               .threads = shape.split_threads,
                               .smem_bytes = shape.split_smem_bytes,
                               .pdl = shape.pdl},
                              args, stream);
    if (launched && shape.reduce_blocks > 0) {
      launched =
          launch(module_->reduce(),
                 {.blocks = shape.reduce_blocks, .threads = shape.reduce_threads, .pdl = shape.pdl},
                 args, stream);
    }
    if (!launched) return launched;
    return scope.leave();
  }

  Outcome run_part(const LaunchArgs&, const LaunchShape&, int64_t, int64_t) const override {
    return invalid_argument(
        "splitkv_run_part: the kernel is on a CUDA device; only CPU kernels "
        "run in parts, splitkv_run would fit");
  }

  Outcome zero(void* data, size_t bytes, void* stream) const override {
    ContextScope scope(module_->device());
    if (!scope.entered()) return scope.entered();
    const cuda::Driver& driver = module_->device().driver();
    const CUresult result = driver.cuMemsetD8Async(reinterpret_cast<cuda::CUdeviceptr>(data), 0,
                                                   bytes, static_cast<cuda::CUstream>(stream));
    if (result != kSuccess) return driver_error(driver, "cuMemsetD8Async", result);
    return scope.leave();
  }

  Outcome merge(const MergeArgs& args, void* stream) const override {
    const int64_t blocks = (args.rows + kMergeWarps - 1) / kMergeWarps;
    return launch_alone({.blocks = blocks, .threads = kMergeWarps * 32}, args, stream);
  }

  Outcome append(const AppendArgs& args, int64_t blocks, void* stream) const override {
    return launch_alone({.blocks = blocks, .threads = kAppendWarps * 32}, args, stream);
  }

 private:
  struct Grid {
    int64_t blocks = 0;
    int threads = 0;
    int64_t smem_bytes = 0;
    bool pdl = false;
  };

  // The one kernel of a module.
  template <class Args>
  Outcome launch_alone(const Grid& grid, const Args& args, void* stream) const {
    ContextScope scope(module_->device());
    if (!scope.entered()) return scope.entered();
    const Outcome launched = launch(module_->split(), grid, args, stream);
    if (!launched) return launched;
    return scope.leave();
  }

  template <class Args>
  Outcome launch(const Function& function, const Grid& grid, const Args& args, void* stream) const {
    const cuda::Driver& driver = module_->device().driver();
    Args argument = args;
    void* parameters[] = {&argument};
    if (grid.pdl) return launch_early(function, grid, parameters, stream);
    const CUresult result = driver.cuLaunchKernel(
        function.handle, unsigned(grid.blocks), 1, 1, unsigned(grid.threads), 1, 1,
        unsigned(grid.smem_bytes), static_cast<cuda::CUstream>(stream), parameters, nullptr);
    if (result != kSuccess) return driver_error(driver, "cuLaunchKernel", result);
    return Unit{};
  }

  // Allowed to start before what precedes it in the stream has ended.
  Outcome launch_early(const Function& function, const Grid& grid, void** parameters,
                       void* stream) const {
    const cuda::Driver& driver = module_->device().driver();
    cuda::LaunchAttribute attribute = {};
    attribute.id = cuda::kProgrammaticStreamSerialization;
    attribute.value.number = 1;
    const cuda::LaunchConfig config{.grid = {unsigned(grid.blocks), 1, 1},
                                    .block = {unsigned(grid.threads), 1, 1},
                                    .smem_bytes = unsigned(grid.smem_bytes),
                                    .stream = static_cast<cuda::CUstream>(stream),
                                    .attributes = &attribute,
                                    .attribute_count = 1};
    const CUresult result = driver.cuLaunchKernelEx(&config, function.handle, parameters, nullptr);
    if (result != kSuccess) return driver_error(driver, "cuLaunchKernelEx", result);
    return Unit{};
  }

  std::shared_ptr<const Module> module_;
  size_t cubin_bytes_;
};

class CudaPlatform final : public Platform {
 public:
  explicit CudaPlatform(Services& services) : services_(services) {}

  Result<Target> target_of(const std::string& device) override {
    const Result<int> ordinal = ordinal_of(device);
    if (!ordinal) return ordinal.error();
    return cuda_target(*ordinal);
  }

  Result<Loaded> load(const LoadRequest& request) override {
    const Result<int> ordinal = ordinal_of(request.device);
    if (!ordinal) return ordinal.error();
    const Result<std::shared_ptr<const Device>> device = device_of(*ordinal);
    if (!device) return device.error();
    const cuda::Driver& driver = (*device)->driver();
    if (request.pdl && driver.cuLaunchKernelEx == nullptr) return launches_are_plain(driver);
    if (request.tensor_maps && driver.cuTensorMapEncodeTiled == nullptr)
      return maps_are_unknown(driver);
    Loaded loaded;
    const Result<Code> code = find(request, loaded);
    if (!code) return code.error();

    const std::string place = fmt::format("{}@{}:{}", loaded.key.digest, *ordinal,
                                          static_cast<const void*>((*device)->context()));
    const auto module = modules_.get(place, [&]() -> Result<std::shared_ptr<const Module>> {
      Result<Module> made =
          Module::load(*device, (*code)->images, request.source,
                       {.smem_bytes = request.split_smem_bytes, .cluster = request.cluster});
      if (!made) return made.error();
      return std::make_shared<const Module>(*std::move(made));
    });
    if (!module) return module.error();
    if (loaded.origin == Origin::pack) count_packed(module->made, loaded);
    loaded.code = std::make_shared<const CudaCode>(module->value, image_bytes(**code));
    return loaded;
  }

  Result<Located> locate(const LoadRequest& request) override {
    if (const auto packed = find_packed(services_, request, request.target.arch)) {
      return Located{packed->key, Origin::pack};
    }
    const Result<CompilerFacts> facts = facts_for(request);
    if (!facts) return facts.error();
    KernelKey key = kernel_key(request.source, *facts);
    const Origin origin = cubins_.has(key.digest) ? Origin::memory : origin_of(services_, key);
    return Located{std::move(key), origin};
  }

  Result<std::shared_ptr<const ErrorMemory>> make_error_memory(const std::string& name) override {
    const Result<int> ordinal = ordinal_of(name);
    if (!ordinal) return ordinal.error();
    const Result<std::shared_ptr<const Device>> device = device_of(*ordinal);
    if (!device) return device.error();
    return MappedErrors::make(*device);
  }

 private:
  using Code = std::shared_ptr<const StoredCode>;

  // Images from a pack, memory or disk, or compiled; fills all of `loaded` but its code.
  Result<Code> find(const LoadRequest& request, Loaded& loaded) {
    if (auto packed = find_packed(services_, request, request.target.arch)) {
      loaded.key = packed->key;
      loaded.origin = Origin::pack;
      loaded.compile_ms = packed->code.compile_ms;
      return Code(packed, &packed->code);
    }
    const Result<CompilerFacts> facts = facts_for(request);
    if (!facts) return facts.error();
    loaded.key = kernel_key(request.source, *facts);
    const auto cubin = cubins_.get(loaded.key.digest, [&] { return obtain(request, loaded.key); });
    if (!cubin) return cubin.error();
    const DiskCache::Found& found = *cubin->value;
    loaded.compile_ms = found.code.compile_ms;
    if (!cubin->made) {
      loaded.origin = Origin::memory;
      services_.counters.count_hit();
    } else if (found.from_disk) {
      loaded.origin = Origin::disk;
      loaded.disk_ms = found.disk_ms;
    }
    return Code(cubin->value, &found.code);
  }

  // What is in no pack has NVRTC in its key. Where that is missing and nothing would be compiled
  // anyway, the refusal is that of a compile.
  Result<CompilerFacts> facts_for(const LoadRequest& request) {
    const auto missed = [&](const std::string& why) {
      const KernelKey key = pack_key(request.source, request.target.arch);
      return fmt::format("{}; {}",
                         services_.packs.explain_miss(key, request.problem, request.schedule), why);
    };
    const auto refused = [&](const std::string& why) {
      return jit_is_off(pack_key(request.source, request.target.arch), missed(why));
    };
    if (only_packs(services_)) return refused("there is no disk cache");
    Result<CompilerFacts> facts = nvrtc_facts(request.target.arch);
    if (facts) return facts;
    if (jit_is_forbidden(services_.options)) {
      return refused("kernels on disk are found by NVRTC's version, and it is missing");
    }
    if (services_.packs.is_empty()) return facts;
    return Error{facts.error().status, missed(facts.error().message)};
  }

  void count_packed(bool made, Loaded& loaded) {
    if (made) {
      services_.counters.count_pack_hit();
    } else {
      loaded.origin = Origin::memory;
      services_.counters.count_hit();
    }
  }

  Result<std::shared_ptr<const Device>> device_of(int ordinal) {
    const std::lock_guard lock(devices_mutex_);
    std::shared_ptr<const Device>& device = devices_[ordinal];
    if (device != nullptr) return device;
    Result<Device> opened = Device::open(ordinal);
    if (!opened) return opened.error();
    device = std::make_shared<const Device>(*std::move(opened));
    return device;
  }

  Result<std::shared_ptr<const DiskCache::Found>> obtain(const LoadRequest& request,
                                                         const KernelKey& key) {
    const auto compile = [&] { return compile_counted(request, key); };
    Result<DiskCache::Found> found = find_or_make(services_, request.source, key, compile);
    if (!found) return found.error();
    return std::make_shared<const DiskCache::Found>(*std::move(found));
  }

  Result<StoredCode> compile_counted(const LoadRequest& request, const KernelKey& key) {
    Result<Cubin> cubin = compile_cuda(request.source, request.target.arch);
    if (!cubin) {
      services_.counters.count_failure();
      return cubin.error();
    }
    services_.counters.count_compile(cubin->compile_ms);
    services_.log.info(fmt::format("compiled {} for {} with NVRTC {} in {:.0f} ms", key.digest,
                                   request.target.arch, cubin->nvrtc_version, cubin->compile_ms));
    return StoredCode{std::move(cubin->images), std::move(cubin->log), cubin->compile_ms};
  }

  Services& services_;
  std::mutex devices_mutex_;
  std::map<int, std::shared_ptr<const Device>> devices_;
  SingleFlight<std::shared_ptr<const DiskCache::Found>> cubins_;
  SingleFlight<std::shared_ptr<const Module>> modules_;
};

}  // namespace

std::unique_ptr<Platform> make_cuda_platform(Services& services) {
  return std::make_unique<CudaPlatform>(services);
}

}  // namespace splitkv
