#include "runtime/cuda/nvrtc.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/cuda/symbols.hpp"
#include "runtime/saved_source.hpp"

namespace splitkv {
namespace {

using cuda::kNvrtcOutOfMemory;
using cuda::kNvrtcSuccess;
using cuda::Nvrtc;
using cuda::nvrtcProgram;
using cuda::nvrtcResult;

// First toolkit whose NVRTC knows an architecture.
struct ArchSince {
  int number;
  const char* toolkit;
};
constexpr ArchSince kArchSince[] = {{80, "11.1"},  {86, "11.1"},  {87, "11.4"},  {89, "11.8"},
                                    {90, "12.0"},  {100, "12.8"}, {120, "12.8"}, {103, "12.9"},
                                    {121, "12.9"}, {110, "13.0"}, {88, "13.0"}};

std::string version_text(const Nvrtc& library) {
  return fmt::format("{}.{}", library.major, library.minor);
}

// 90 of "sm_90a"; 0 where the text is no architecture.
int arch_number(std::string_view arch) {
  int number = 0;
  if (!arch.starts_with("sm_")) return 0;
  std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

Outcome check_arch(const Nvrtc& library, const std::string& arch) {
  if (library.nvrtcGetSupportedArchs == nullptr || library.nvrtcGetNumSupportedArchs == nullptr) {
    return Unit{};
  }
  int count = 0;
  if (library.nvrtcGetNumSupportedArchs(&count) != kNvrtcSuccess || count <= 0) return Unit{};
  std::vector<int> known(count);
  if (library.nvrtcGetSupportedArchs(known.data()) != kNvrtcSuccess) return Unit{};
  const int number = arch_number(arch);
  if (std::find(known.begin(), known.end(), number) != known.end()) return Unit{};
  const auto* since = std::find_if(std::begin(kArchSince), std::end(kArchSince),
                                   [&](const ArchSince& entry) { return entry.number == number; });
  const std::string fits = since != std::end(kArchSince)
                               ? fmt::format("NVRTC {} or newer would fit", since->toolkit)
                               : std::string("a newer NVRTC may know it");
  return Error{
      Status::unsupported,
      fmt::format("arch={} is unknown to NVRTC {} ({}), which compiles for sm_{}; {}", arch,
                  version_text(library), library.path, fmt::join(known, ", sm_"), fits)};
}

// Owns an nvrtcProgram.
class Program {
 public:
  explicit Program(const Nvrtc& library) : library_(library) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (handle_ != nullptr) library_.nvrtcDestroyProgram(&handle_);
  }

  nvrtcResult create(const std::string& text) {
    return library_.nvrtcCreateProgram(&handle_, text.c_str(), "splitkv_kernel.cu", 0, nullptr,
                                       nullptr);
  }

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return library_.nvrtcCompileProgram(handle_, int(texts.size()), texts.data());
  }

  std::string log() const {
    size_t size = 0;
    if (library_.nvrtcGetProgramLogSize(handle_, &size) != kNvrtcSuccess || size <= 1) return "";
    std::string text(size, '\0');
    if (library_.nvrtcGetProgramLog(handle_, text.data()) != kNvrtcSuccess) return "";
    text.resize(size - 1);  // its NUL
    return text;
  }

  nvrtcResult cubin(std::string* bytes) const {
    size_t size = 0;
    const nvrtcResult result = library_.nvrtcGetCUBINSize(handle_, &size);
    if (result != kNvrtcSuccess) return result;
    bytes->resize(size);
    return library_.nvrtcGetCUBIN(handle_, bytes->data());
  }

 private:
  const Nvrtc& library_;
  nvrtcProgram handle_ = nullptr;
};

Error refused(const Nvrtc& library, nvrtcResult result, const KernelSource& source,
              const std::vector<std::string>& options, const std::string& log) {
  return {result == kNvrtcOutOfMemory ? Status::out_of_memory : Status::compile_failed,
          fmt::format("NVRTC {} ({}) refused the source ({})\noptions: {}\nsource: {}\nlog: {}",
                      version_text(library), library.path, library.nvrtcGetErrorString(result),
                      fmt::join(options, " "), save_source(source), log.empty() ? "(empty)" : log)};
}

// One kernel's compilation.
struct CompiledUnit {
  nvrtcResult result = kNvrtcSuccess;
  std::string image;
  std::string log;
};

CompiledUnit compile_unit(const Nvrtc& library, const std::string& text,
                          const std::vector<std::string>& options) {
  Program program(library);
  CompiledUnit unit;
  unit.result = program.create(text);
  if (unit.result != kNvrtcSuccess) return unit;
  unit.result = program.compile(options);
  unit.log = program.log();
  if (unit.result == kNvrtcSuccess) unit.result = program.cubin(&unit.image);
  return unit;
}

// Both kernels at once; where the system gives no thread, one after the other.
std::vector<CompiledUnit> compile_units(const Nvrtc& library, const KernelSource& source,
                                        const std::vector<std::string>& options) {
  std::vector<CompiledUnit> units(source.reduce_entry.empty() ? 1 : 2);
  const auto compile = [&](size_t i) {
    const std::string& entry = i == 0 ? source.split_entry : source.reduce_entry;
    units[i] = compile_unit(library, cuda_unit_of(source, entry), options);
  };
  std::thread beside;
  bool is_beside = false;
  if (units.size() == 2) {
    try {
      beside = std::thread(compile, 1);
      is_beside = true;
    } catch (const std::system_error&) {
      is_beside = false;
    }
  }
  compile(0);
  if (is_beside) beside.join();
  if (units.size() == 2 && !is_beside) compile(1);
  return units;
}

}  // namespace

size_t Cubin::image_bytes() const {
  size_t bytes = 0;
  for (const std::string& image : images) bytes += image.size();
  return bytes;
}

std::vector<std::string> nvrtc_options(const std::string& arch, int nvrtc_major) {
  std::vector<std::string> options = {"-arch=" + arch, "-std=c++20", "-default-device",
                                      "--ptxas-options=-v"};
  if (nvrtc_major >= 13) {
    options.push_back("--minimal");  // no textures, no device runtime: nothing of them is used
    options.push_back("--no-cache");
  }
  return options;
}

Result<CompilerFacts> nvrtc_facts(const std::string& arch) {
  // Updates of a release keep its version; the build tells them apart, and needs no opening.
  if (const auto identity = cuda::nvrtc_identity()) {
    return CompilerFacts{
        .compiler = fmt::format("NVRTC {} build {}", identity->major, identity->build),
        .options = nvrtc_options(arch, identity->major),
        .arch = arch};
  }
  const Result<const Nvrtc*> opened = cuda::nvrtc();
  if (!opened) return opened.error();
  const Nvrtc& library = **opened;
  return CompilerFacts{.compiler = "NVRTC " + version_text(library),
                       .options = nvrtc_options(arch, library.major),
                       .arch = arch};
}

Result<std::string> nvrtc_version() {
  const Result<const Nvrtc*> library = cuda::nvrtc();
  if (!library) return library.error();
  return version_text(**library);
}

Result<Cubin> compile_cuda(const KernelSource& source, const std::string& arch) {
  const Result<const Nvrtc*> opened = cuda::nvrtc();
  if (!opened) return opened.error();
  const Nvrtc& library = **opened;
  if (arch_number(arch) == 0) {
    return invalid_argument(fmt::format("arch={} is no CUDA architecture; sm_90a would fit", arch));
  }
  if (const Outcome known = check_arch(library, arch); !known) return known.error();

  const std::vector<std::string> options = nvrtc_options(arch, library.major);
  const auto begin = std::chrono::steady_clock::now();
  Cubin cubin;
  for (CompiledUnit& unit : compile_units(library, source, options)) {
    if (unit.result != kNvrtcSuccess) {
      return refused(library, unit.result, source, options, unit.log);
    }
    cubin.images.push_back(std::move(unit.image));
    cubin.log += unit.log;
  }
  cubin.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  cubin.nvrtc_version = version_text(library);
  return cubin;
}

}  // namespace splitkv
