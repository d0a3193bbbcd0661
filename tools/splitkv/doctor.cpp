// `splitkv doctor`: what this machine offers, in a line each, and how to mend what is missing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "runtime/disk_cache.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/verb.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv::tool {
namespace {

[[maybe_unused]] constexpr const char* kMendCpu =
    "`apt-get install llvm-19-dev libzstd-dev` and a new build with -DSPLITKV_CPU=ON";
[[maybe_unused]] constexpr const char* kProbe = "attention q=fp32 kv=fp32 heads=1 dim=8";

// Messages of several lines, such as the names that were tried, become one.
void line(std::string_view what, bool well, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  fmt::print("{:<13} {:<8} {}\n", what, well ? "ok" : "missing", text);
}

[[maybe_unused]] void missing(std::string_view what, std::string_view mend,
                              const std::string& reason) {
  line(what, false, fmt::format("{} mends it. {}", mend, reason));
}

std::vector<std::string_view> cpu_features() {
  std::vector<std::string_view> features;
#if defined(__x86_64__)
  const auto add = [&](std::string_view name, int there) {
    if (there) features.push_back(name);
  };
  __builtin_cpu_init();
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("f16c", __builtin_cpu_supports("f16c"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512_bf16", __builtin_cpu_supports("avx512bf16"));
#endif
  return features;
}

// Compiles a small problem: nothing less shows that the compiler library opens and works.
bool examine_cpu() {
#ifdef SPLITKV_HAS_CPU
  const Result<Target> target = chosen_target("cpu");
  if (!target) {
    line("cpu", false, target.error().message);
    return false;
  }
  line("cpu", true,
       fmt::format("{}, vectors of {} bits, {} threads, features {}", target->arch,
                   target->vector_bits, target->threads, fmt::join(cpu_features(), " ")));
  const Result<Kernel> kernel = guarded([] {
    Options options;
    options.no_disk = true;  // a kernel that was kept would show nothing
    return Runtime(options).prepare("cpu", kProbe);
  });
  if (!kernel) {
    line("cpu compiler", false,
         kernel.error().message +
             "; `apt-get install llvm-19-dev libzstd-dev` and a new build "
             "with -DSPLITKV_CPU=ON mend it");
    return false;
  }
  line("cpu compiler", true,
       fmt::format("LLVM ORC, a small kernel in {:.1f} ms", kernel->info().compile_ms));
  return true;
#else
  missing(
      "cpu", kMendCpu,
      fmt::format("This build has SPLITKV_CPU=OFF; features {}", fmt::join(cpu_features(), " ")));
  return false;
#endif
}

#ifdef SPLITKV_HAS_CUDA
std::string print_cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string print_memory(const cuda::Driver& driver, int ordinal) {
  const Result<cuda::Device> device = cuda::Device::open(ordinal);
  if (!device) return device.error().message;
  const cuda::ContextScope scope(*device);
  if (!scope.entered()) return scope.entered().error().message;
  size_t free = 0, total = 0;
  const cuda::CUresult asked = driver.cuMemGetInfo(&free, &total);
  if (asked != cuda::kSuccess) return cuda::driver_error(driver, "cuMemGetInfo", asked).message;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return fmt::format("{:.1f} of {:.1f} GiB free", double(free) / kGiB, double(total) / kGiB);
}

bool examine_device(const cuda::Driver& driver, int ordinal) {
  const std::string what = fmt::format("cuda:{}", ordinal);
  const Result<Target> target = cuda_target(ordinal);
  if (!target) {
    line(what, false, target.error().message);
    return false;
  }
  char name[128] = "unnamed";
  cuda::CUdevice handle = 0;
  if (driver.cuDeviceGet(&handle, ordinal) == cuda::kSuccess) {
    driver.cuDeviceGetName(name, sizeof name, handle);
  }
  line(what, true,
       fmt::format("{}, {}, {} multiprocessors, {}", name, target->arch, target->sm_count,
                   print_memory(driver, ordinal)));
  return true;
}

bool examine_driver() {
  const Result<const cuda::Driver*> driver = cuda::driver();
  if (!driver) {
    missing("libcuda", "NVIDIA's driver (`apt-get install libcuda1`; in containers --gpus all)",
            driver.error().message);
    return false;
  }
  int version = 0, count = 0;
  (*driver)->cuDriverGetVersion(&version);
  line("libcuda", true,
       fmt::format("{}, for CUDA {}", (*driver)->path, print_cuda_version(version)));
  const cuda::CUresult counted = (*driver)->cuDeviceGetCount(&count);
  if (counted != cuda::kSuccess || count == 0) {
    line("cuda devices", false,
         counted == cuda::kSuccess
             ? "the driver sees none; CUDA_VISIBLE_DEVICES may hide them"
             : cuda::driver_error(**driver, "cuDeviceGetCount", counted).message);
    return false;
  }
  bool any = false;
  for (int i = 0; i < count; ++i) any = examine_device(**driver, i) || any;
  return any;
}

bool examine_nvrtc() {
  const Result<const cuda::Nvrtc*> nvrtc = cuda::nvrtc();
  if (!nvrtc) {
    missing("libnvrtc", "`pip install nvidia-cuda-nvrtc`", nvrtc.error().message);
    return false;
  }
  line("libnvrtc", true,
       fmt::format("{}, version {}.{}", (*nvrtc)->path, (*nvrtc)->major, (*nvrtc)->minor));
  return true;
}
#endif

bool examine_cuda() {
#ifdef SPLITKV_HAS_CUDA
  const bool device = examine_driver();
  const bool compiler = examine_nvrtc();
  return device && compiler;
#else
  missing("cuda", "a new build with -DSPLITKV_CUDA=ON", "This build has SPLITKV_CUDA=OFF");
  return false;
#endif
}

void examine_cache() {
  const CachePlace place = cache_place({}, read_environment());
  if (!place.complaint.empty()) line("cache", false, place.complaint);
  if (place.folder.empty()) {
    line("cache", place.why_not.empty(),
         place.why_not.empty() ? "SPLITKV_NO_DISK is set: kernels are not kept on disk"
                               : place.why_not + "; kernels are not kept on disk");
    return;
  }
  const auto folder = CacheFolder::open(place.folder, true);
  if (!folder) {
    missing("cache", "SPLITKV_CACHE_DIR with a folder of your own", folder.error().message);
    return;
  }
  line("cache", true,
       fmt::format("{} kernels in {}", (*folder)->entries().size(), (*folder)->path()));
}

int run_doctor() {
  fmt::print("{:<13} {:<8} {}\n", "splitkv", "ok", splitkv_version());
  const bool cpu = examine_cpu();
  const bool cuda = examine_cuda();
  examine_cache();
  fmt::print("targets       {}\n", cpu && cuda ? "cpu and cuda work"
                                   : cpu       ? "cpu works, cuda does not"
                                   : cuda      ? "cuda works, cpu does not"
                                               : "neither cpu nor cuda works");
  return cpu || cuda ? kExitOk : kExitMachine;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* verb =
      app.add_subcommand("doctor", "Says what this machine offers and how to mend what is missing");
  verb->callback([&status] { status = run_doctor(); });
}

}  // namespace splitkv::tool
