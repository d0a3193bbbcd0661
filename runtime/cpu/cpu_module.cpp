#include "runtime/cpu/cpu_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/cpu/orc_interface.h"

namespace splitkv {
namespace {

constexpr const char* kLibraryName = "libsplitkv_cpu.so";

struct OrcLibrary {
  splitkv_orc_describe_function* describe = nullptr;
  splitkv_orc_compile_function* compile = nullptr;
  splitkv_orc_load_function* load = nullptr;
  splitkv_orc_object_bytes_function* object_bytes = nullptr;
  splitkv_orc_release_object_function* release_object = nullptr;
  splitkv_orc_release_function* release = nullptr;
};

// What `$SPLITKV_CPU_LIBRARY` names is meant: nothing else is tried then.
std::vector<std::string> candidates() {
  if (const char* named = std::getenv("SPLITKV_CPU_LIBRARY")) return {named};
  std::vector<std::string> names;
  // Beside the library, or beside the program that it is linked into.
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&candidates), &here) != 0 && here.dli_fname != nullptr) {
    const auto folder = std::filesystem::path(here.dli_fname).parent_path();
    if (!folder.empty()) names.push_back((folder / kLibraryName).string());
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    names.push_back((program.parent_path() / kLibraryName).string());
    names.push_back((program.parent_path().parent_path() / "lib" / kLibraryName).string());
  }
  names.push_back(kLibraryName);
  return names;
}

std::string last_dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown error";
}

template <class Function>
Function* symbol(void* handle, const char* name) {
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

// The functions of an opened library, or why it is not the one that is wanted.
Result<OrcLibrary> functions_of(void* handle) {
  const auto version = symbol<splitkv_orc_version_function>(handle, SPLITKV_ORC_VERSION_NAME);
  OrcLibrary library;
  library.compile = symbol<splitkv_orc_compile_function>(handle, SPLITKV_ORC_COMPILE_NAME);
  library.load = symbol<splitkv_orc_load_function>(handle, SPLITKV_ORC_LOAD_NAME);
  library.object_bytes =
      symbol<splitkv_orc_object_bytes_function>(handle, SPLITKV_ORC_OBJECT_BYTES_NAME);
  library.release_object =
      symbol<splitkv_orc_release_object_function>(handle, SPLITKV_ORC_RELEASE_OBJECT_NAME);
  library.release = symbol<splitkv_orc_release_function>(handle, SPLITKV_ORC_RELEASE_NAME);
  if (!version) return Error{Status::library_missing, "is not SplitKV's CPU compiler"};
  if (version() != SPLITKV_ORC_VERSION) {
    return Error{Status::library_missing, fmt::format("has interface {}, this library needs {}",
                                                      version(), SPLITKV_ORC_VERSION)};
  }
  library.describe = symbol<splitkv_orc_describe_function>(handle, SPLITKV_ORC_DESCRIBE_NAME);
  if (!library.describe || !library.compile || !library.load || !library.object_bytes ||
      !library.release_object || !library.release) {
    return Error{Status::library_missing, "lacks functions of SplitKV's CPU compiler"};
  }
  return library;
}

Result<OrcLibrary> open_library() {
  std::string tried;
  for (const std::string& name : candidates()) {
    // RTLD_LOCAL keeps its LLVM apart from any other in the process; it is never closed again,
    // since LLVM's globals do not survive that.
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why;
    if (handle == nullptr) {
      why = last_dl_error();
    } else {
      Result<OrcLibrary> library = functions_of(handle);
      if (library) return library;
      why = name + ": " + library.error().message;
      dlclose(handle);
    }
    tried += fmt::format("\n  {}", why);
  }
  return Error{Status::library_missing,
               fmt::format("the CPU compiler {} cannot be opened; SPLITKV_CPU_LIBRARY may name it. "
                           "Tried:{}",
                           kLibraryName, tried)};
}

// A failure is not remembered, so that a library put in place later is found.
Result<OrcLibrary> orc_library() {
  static std::mutex mutex;
  static OrcLibrary opened;
  const std::lock_guard lock(mutex);
  if (opened.compile == nullptr) {
    Result<OrcLibrary> library = open_library();
    if (!library) return library;
    opened = *library;
  }
  return opened;
}

}  // namespace

CpuModule::CpuModule(CpuModule&& other) noexcept { swap(other); }

CpuModule& CpuModule::operator=(CpuModule&& other) noexcept {
  CpuModule taken(std::move(other));
  swap(taken);
  return *this;
}

void CpuModule::swap(CpuModule& other) noexcept {
  std::swap(code_, other.code_);
  std::swap(release_, other.release_);
  std::swap(split_, other.split_);
  std::swap(reduce_, other.reduce_);
  std::swap(code_bytes_, other.code_bytes_);
}

CpuModule::~CpuModule() {
  if (code_ != nullptr) release_(code_);
}

Result<CpuCompiler> cpu_compiler(const Target& target) {
  const Result<OrcLibrary> library = orc_library();
  if (!library) return library.error();
  std::string text(library->describe(target.arch.c_str(), nullptr, 0), '\0');
  library->describe(target.arch.c_str(), text.data(), text.size());
  text.pop_back();  // the NUL
  std::istringstream lines(text);
  CpuCompiler compiler;
  std::getline(lines, compiler.llvm);
  std::getline(lines, compiler.cpu);
  std::getline(lines, compiler.features);
  std::getline(lines, compiler.passes);
  return compiler;
}

CompilerFacts facts_of(const CpuCompiler& compiler, const Target& target) {
  return {
      .compiler = fmt::format("LLVM {}, interface {}", compiler.llvm, SPLITKV_ORC_VERSION),
      .options = {compiler.passes},
      .arch = fmt::format("{} {} {} bits", compiler.cpu, compiler.features, target.vector_bits)};
}

Result<CpuObject> compile_cpu_object(const KernelSource& source, const Target& target) {
  const auto start = std::chrono::steady_clock::now();
  const Result<OrcLibrary> library = orc_library();
  if (!library) return library.error();
  const splitkv_orc_request request{source.text.data(), source.text.size(), target.arch.c_str()};
  splitkv_orc_object* compiled = nullptr;
  std::vector<char> message(8192);
  if (library->compile(&request, &compiled, message.data(), message.size()) != 0) {
    return Error{Status::compile_failed, fmt::format("LLVM refused generated IR for cpu={}: {}",
                                                     target.arch, message.data())};
  }
  const std::unique_ptr<splitkv_orc_object, splitkv_orc_release_object_function*> owner(
      compiled, library->release_object);
  CpuObject object;
  size_t bytes = 0;
  const char* first = library->object_bytes(compiled, &bytes);
  object.bytes.assign(first, bytes);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  object.compile_ms = taken.count();
  return object;
}

Result<CpuModule> load_cpu(const std::string& object, const KernelSource& source,
                           const Target& target) {
  const Result<OrcLibrary> library = orc_library();
  if (!library) return library.error();
  const splitkv_orc_load_request request{object.data(), object.size(), target.arch.c_str(),
                                         source.split_entry.c_str(), source.reduce_entry.c_str()};
  splitkv_orc_result result{};
  std::vector<char> message(8192);
  if (library->load(&request, &result, message.data(), message.size()) != 0) {
    return Error{Status::internal,
                 fmt::format("LLVM does not load compiled code: {}", message.data())};
  }
  CpuModule module;
  module.code_ = result.code;
  module.release_ = library->release;
  module.split_ = reinterpret_cast<CpuModule::Entry>(result.split);
  module.reduce_ = reinterpret_cast<CpuModule::Entry>(result.reduce);
  module.code_bytes_ = result.code_bytes;
  return module;
}

Result<CpuModule> compile_cpu(const KernelSource& source, const Target& target) {
  const Result<CpuObject> object = compile_cpu_object(source, target);
  if (!object) return object.error();
  return load_cpu(object->bytes, source, target);
}

}  // namespace splitkv
