// Machine code of one kernel pair on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "codegen/kernel_source.hpp"
#include "codegen/launch_args.hpp"
#include "codegen/merge_source.hpp"
#include "compiler/result.hpp"
#include "compiler/target.hpp"
#include "runtime/kernel_key.hpp"

struct splitkv_orc_code;

namespace splitkv {

class CpuModule {
 public:
  // Runs block `block` of a launch shape's grid. Any threads may run blocks at once.
  using Entry = void (*)(const LaunchArgs* args, int64_t block);

  // Of a merge kernel: joins rows [first_row, end_row). Any threads may take rows at once.
  using MergeEntry = void (*)(const MergeArgs* args, int64_t first_row, int64_t end_row);

  CpuModule() = default;
  CpuModule(CpuModule&& other) noexcept;
  CpuModule& operator=(CpuModule&& other) noexcept;
  CpuModule(const CpuModule&) = delete;
  CpuModule& operator=(const CpuModule&) = delete;
  ~CpuModule();

  Entry split() const { return split_; }
  // The split entry of source that emit_merge gave.
  MergeEntry merge() const { return reinterpret_cast<MergeEntry>(reinterpret_cast<void*>(split_)); }
  Entry reduce() const { return reduce_; }  // null when the last arriving block reduces
  size_t code_bytes() const { return code_bytes_; }

 private:
  void swap(CpuModule& other) noexcept;

  friend Result<CpuModule> load_cpu(const std::string& object, const KernelSource& source,
                                    const Target& target);

  splitkv_orc_code* code_ = nullptr;
  void (*release_)(splitkv_orc_code*) = nullptr;
  Entry split_ = nullptr;
  Entry reduce_ = nullptr;
  size_t code_bytes_ = 0;
};

// Who compiles for a target here, and for which instructions: with the source, all that decides the
// machine code.
struct CpuCompiler {
  std::string llvm;      // exact version, "19.1.7"
  std::string cpu;       // LLVM's name of it, "znver3"; of a target with arch "host" this machine's
  std::string features;  // "+avx,+avx2,-avx512f,..."; empty where the name says all
  std::string passes;    // LLVM's, in its text form

  bool operator==(const CpuCompiler&) const = default;
};
Result<CpuCompiler> cpu_compiler(const Target& target);  // opens the library as compile_cpu does

// Its part of a key.
CompilerFacts facts_of(const CpuCompiler& compiler, const Target& target);

// A relocatable object file, which can be kept.
struct CpuObject {
  std::string bytes;
  double compile_ms = 0;  // opening the library the first time included
};

// Opens libsplitkv_cpu on first use: $SPLITKV_CPU_LIBRARY alone where that is set; else beside the
// executable or in ../lib of it, beside the shared object that holds this code, by its plain name.
// library_missing: every name tried and why it failed. compile_failed: LLVM's message.
Result<CpuObject> compile_cpu_object(const KernelSource& source, const Target& target);

// Machine code, from the object that was compiled of `source` for `target`. internal: what LLVM
// finds wrong with it.
Result<CpuModule> load_cpu(const std::string& object, const KernelSource& source,
                           const Target& target);

// Both.
Result<CpuModule> compile_cpu(const KernelSource& source, const Target& target);

}  // namespace splitkv
