#include "runtime/cuda/symbols.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/library_file.hpp"
#include "runtime/cuda/library_paths.hpp"
#include "runtime/fork.hpp"

namespace splitkv::cuda {
namespace {

// One exported name and the pointer that it fills.
template <class Library>
struct Symbol {
  const char* name;
  void (*bind)(Library& library, void* address);
  bool required = true;
};

template <auto Member, class Library>
void bind(Library& library, void* address) {
  library.*Member = reinterpret_cast<std::decay_t<decltype(library.*Member)>>(address);
}

using D = Driver;
constexpr Symbol<Driver> kDriverSymbols[] = {
    {"cuInit", bind<&D::cuInit>},
    {"cuDriverGetVersion", bind<&D::cuDriverGetVersion>},
    {"cuGetErrorName", bind<&D::cuGetErrorName>},
    {"cuGetErrorString", bind<&D::cuGetErrorString>},
    {"cuDeviceGetCount", bind<&D::cuDeviceGetCount>},
    {"cuDeviceGet", bind<&D::cuDeviceGet>},
    {"cuDeviceGetName", bind<&D::cuDeviceGetName>},
    {"cuDeviceGetAttribute", bind<&D::cuDeviceGetAttribute>},
    {"cuDevicePrimaryCtxRetain", bind<&D::cuDevicePrimaryCtxRetain>},
    {"cuDevicePrimaryCtxRelease_v2", bind<&D::cuDevicePrimaryCtxRelease>},
    {"cuCtxGetCurrent", bind<&D::cuCtxGetCurrent>},
    {"cuCtxPushCurrent_v2", bind<&D::cuCtxPushCurrent>},
    {"cuCtxPopCurrent_v2", bind<&D::cuCtxPopCurrent>},
    {"cuModuleLoadData", bind<&D::cuModuleLoadData>},
    {"cuModuleUnload", bind<&D::cuModuleUnload>},
    {"cuModuleGetFunction", bind<&D::cuModuleGetFunction>},
    {"cuFuncGetAttribute", bind<&D::cuFuncGetAttribute>},
    {"cuFuncSetAttribute", bind<&D::cuFuncSetAttribute>},
    {"cuFuncLoad", bind<&D::cuFuncLoad>, false},
    {"cuLaunchKernel", bind<&D::cuLaunchKernel>},
    {"cuLaunchKernelEx", bind<&D::cuLaunchKernelEx>, false},
    {"cuOccupancyMaxActiveClusters", bind<&D::cuOccupancyMaxActiveClusters>, false},
    {"cuTensorMapEncodeTiled", bind<&D::cuTensorMapEncodeTiled>, false},
    {"cuMemAlloc_v2", bind<&D::cuMemAlloc>},
    {"cuMemFree_v2", bind<&D::cuMemFree>},
    {"cuMemHostAlloc", bind<&D::cuMemHostAlloc>},
    {"cuMemHostGetDevicePointer_v2", bind<&D::cuMemHostGetDevicePointer>},
    {"cuMemFreeHost", bind<&D::cuMemFreeHost>},
    {"cuMemGetInfo_v2", bind<&D::cuMemGetInfo>},
    {"cuMemcpyHtoD_v2", bind<&D::cuMemcpyHtoD>},
    {"cuMemcpyDtoH_v2", bind<&D::cuMemcpyDtoH>},
    {"cuMemsetD8_v2", bind<&D::cuMemsetD8>},
    {"cuMemsetD8Async", bind<&D::cuMemsetD8Async>},
    {"cuStreamCreate", bind<&D::cuStreamCreate>},
    {"cuStreamSynchronize", bind<&D::cuStreamSynchronize>},
    {"cuStreamDestroy_v2", bind<&D::cuStreamDestroy>},
    {"cuEventCreate", bind<&D::cuEventCreate>},
    {"cuEventRecord", bind<&D::cuEventRecord>},
    {"cuEventSynchronize", bind<&D::cuEventSynchronize>},
    {"cuEventElapsedTime", bind<&D::cuEventElapsedTime>},
    {"cuEventDestroy_v2", bind<&D::cuEventDestroy>},
    {"cuStreamBeginCapture_v2", bind<&D::cuStreamBeginCapture>},
    {"cuStreamEndCapture", bind<&D::cuStreamEndCapture>},
    {"cuGraphInstantiateWithFlags", bind<&D::cuGraphInstantiateWithFlags>},
    {"cuGraphLaunch", bind<&D::cuGraphLaunch>},
    {"cuGraphExecDestroy", bind<&D::cuGraphExecDestroy>},
    {"cuGraphDestroy", bind<&D::cuGraphDestroy>},
};

using N = Nvrtc;
constexpr Symbol<Nvrtc> kNvrtcSymbols[] = {
    {"nvrtcGetErrorString", bind<&N::nvrtcGetErrorString>},
    {"nvrtcVersion", bind<&N::nvrtcVersion>},
    {"nvrtcGetNumSupportedArchs", bind<&N::nvrtcGetNumSupportedArchs>, false},
    {"nvrtcGetSupportedArchs", bind<&N::nvrtcGetSupportedArchs>, false},
    {"nvrtcCreateProgram", bind<&N::nvrtcCreateProgram>},
    {"nvrtcDestroyProgram", bind<&N::nvrtcDestroyProgram>},
    {"nvrtcCompileProgram", bind<&N::nvrtcCompileProgram>},
    {"nvrtcGetProgramLogSize", bind<&N::nvrtcGetProgramLogSize>},
    {"nvrtcGetProgramLog", bind<&N::nvrtcGetProgramLog>},
    {"nvrtcGetCUBINSize", bind<&N::nvrtcGetCUBINSize>},
    {"nvrtcGetCUBIN", bind<&N::nvrtcGetCUBIN>},
};

// The fork generation that cuInit was called in.
constexpr uint64_t kNotOpened = ~uint64_t(0);
std::atomic<uint64_t> opened_generation{kNotOpened};

struct Attempt {
  std::string name;
  std::string reason;
};

// Opens `name` and fills every pointer, or says why it does not serve. A library that lacks a
// symbol is closed again.
template <class Library, size_t N>
std::unique_ptr<Library> open_library(const std::string& name, const Symbol<Library> (&symbols)[N],
                                      std::string* reason) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    *reason = text != nullptr ? text : "dlopen failed";
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  library->path = name;
  for (const Symbol<Library>& symbol : symbols) {
    void* address = dlsym(handle, symbol.name);
    if (address == nullptr && symbol.required) {
      *reason = fmt::format("lacks the symbol {}", symbol.name);
      dlclose(handle);
      return nullptr;
    }
    symbol.bind(*library, address);
  }
  return library;
}

template <class Library, size_t N>
std::unique_ptr<Library> first_that_opens(const std::vector<std::string>& candidates,
                                          const Symbol<Library> (&symbols)[N],
                                          std::vector<Attempt>* attempts) {
  for (const std::string& name : candidates) {
    Attempt attempt{name, ""};
    if (auto library = open_library(name, symbols, &attempt.reason)) return library;
    attempts->push_back(std::move(attempt));
  }
  return nullptr;
}

struct BuildSearch {
  const void* base;
  std::string build;
};

int take_build(dl_phdr_info* object, size_t, void* context) {
  auto* search = static_cast<BuildSearch*>(context);
  if (reinterpret_cast<const void*>(object->dlpi_addr) != search->base) return 0;
  for (int i = 0; i < object->dlpi_phnum && search->build.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    search->build = build_id_in(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr),
                                segment.p_memsz);
  }
  return 1;
}

// Of the loaded file that `symbol` is of.
std::string build_of(const void* symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0) return "";
  BuildSearch search{info.dli_fbase, ""};
  dl_iterate_phdr(&take_build, &search);
  return search.build;
}

Error missing(const char* library, const char* variable, const char* remedy,
              const std::vector<Attempt>& attempts) {
  std::string message = fmt::format(
      "{} cannot be opened; {}, or set {} to its file. Tried:", library, remedy, variable);
  for (const Attempt& attempt : attempts) {
    message += fmt::format("\n  {} ({})", attempt.name, attempt.reason);
  }
  return {Status::library_missing, message};
}

}  // namespace

Error driver_error(const Driver& driver, const char* call, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  const std::string known = name != nullptr ? name : fmt::format("CUresult {}", result);
  return {result == kOutOfMemory ? Status::out_of_memory : Status::device_error,
          fmt::format("{}: {} ({})", call, known, text != nullptr ? text : "no description")};
}

Outcome check_not_forked() {
  const uint64_t opened_at = opened_generation.load(std::memory_order_relaxed);
  if (opened_at == kNotOpened || opened_at == fork_generation()) return Unit{};
  return Error{Status::device_error,
               "CUDA does not outlive a fork: a parent of this process had opened libcuda; open it "
               "here first, or start processes by exec (spawn), and it would work. The CPU target "
               "works here"};
}

Result<const Driver*> driver() {
  static std::mutex mutex;
  static std::unique_ptr<const Driver> opened;
  if (Outcome here = check_not_forked(); !here) return here.error();
  const std::lock_guard lock(mutex);
  if (opened != nullptr) return opened.get();
  std::vector<Attempt> attempts;
  std::unique_ptr<Driver> found =
      first_that_opens(driver_candidates(read_environment()), kDriverSymbols, &attempts);
  if (found == nullptr) {
    return missing("libcuda", "SPLITKV_LIBCUDA", "install the NVIDIA driver", attempts);
  }
  if (const CUresult result = found->cuInit(0); result != kSuccess) {
    return driver_error(*found, "cuInit", result);
  }
  opened = std::move(found);
  opened_generation.store(fork_generation(), std::memory_order_relaxed);
  return opened.get();
}

namespace {

struct NvrtcState {
  std::mutex mutex;
  std::unique_ptr<const Nvrtc> opened;
  std::optional<NvrtcIdentity> identified;  // told to someone before it was opened
};

NvrtcState& nvrtc_state() {
  static NvrtcState state;
  return state;
}

// 13 of "libnvrtc.so.13" and of "libnvrtc-1ea278b5.so.13"; 0 of other names.
int major_in(const std::string& soname) {
  constexpr std::string_view mark = ".so.";
  const size_t at = soname.rfind(mark);
  int number = 0;
  if (!soname.starts_with("libnvrtc") || at == std::string::npos) return 0;
  const char* end = soname.data() + soname.size();
  const auto [stop, error] = std::from_chars(soname.data() + at + mark.size(), end, number);
  return error == std::errc() && stop == end ? number : 0;
}

}  // namespace

std::optional<NvrtcIdentity> nvrtc_identity() {
  NvrtcState& state = nvrtc_state();
  const std::lock_guard lock(state.mutex);
  if (state.opened != nullptr) {
    if (state.opened->build.empty()) return std::nullopt;
    return NvrtcIdentity{state.opened->path, state.opened->major, state.opened->build};
  }
  if (state.identified) return state.identified;
  for (const std::string& name : nvrtc_candidates(read_environment())) {
    const bool is_path = name.find('/') != std::string::npos;
    const std::string path = is_path ? name : file_of_name(name);
    if (path.empty() || access(path.c_str(), R_OK) != 0) continue;
    const auto file = read_library_file(path);
    const int major = file ? major_in(file->soname) : 0;
    if (major == 0) return std::nullopt;
    state.identified = NvrtcIdentity{path, major, file->build};
    return state.identified;
  }
  return std::nullopt;
}

Result<const Nvrtc*> nvrtc() {
  NvrtcState& state = nvrtc_state();
  const std::lock_guard lock(state.mutex);
  if (state.opened != nullptr) return state.opened.get();
  std::vector<std::string> candidates = nvrtc_candidates(read_environment());
  // Keys were made for that one.
  if (state.identified) candidates.insert(candidates.begin(), state.identified->path);
  std::vector<Attempt> attempts;
  std::unique_ptr<Nvrtc> found = first_that_opens(candidates, kNvrtcSymbols, &attempts);
  if (found == nullptr) {
    return missing(
        "libnvrtc", "SPLITKV_LIBNVRTC",
        "install NVRTC 12 or 13 (the CUDA toolkit, or the pip package nvidia-cuda-nvrtc)",
        attempts);
  }
  if (const nvrtcResult result = found->nvrtcVersion(&found->major, &found->minor);
      result != kNvrtcSuccess) {
    return Error{Status::device_error, fmt::format("nvrtcVersion of {}: {}", found->path,
                                                   found->nvrtcGetErrorString(result))};
  }
  found->build = build_of(reinterpret_cast<const void*>(found->nvrtcVersion));
  state.opened = std::move(found);
  const auto identified = std::exchange(state.identified, std::nullopt);
  if (identified && identified->build != state.opened->build) {
    return Error{Status::internal,
                 fmt::format("{} was replaced, or can no longer be opened, after kernels were "
                             "looked for by its build ID; another prepare would work, with {}",
                             identified->path, state.opened->path)};
  }
  return state.opened.get();
}

}  // namespace splitkv::cuda
