// CUDA C++ source to a cubin for one exact architecture, through NVRTC. Needs no GPU and no driver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_source.hpp"
#include "compiler/result.hpp"
#include "runtime/kernel_key.hpp"

namespace splitkv {

struct Cubin {
  // ELF images for cuModuleLoadData: one of each kernel, the split (or only) one first. Kernels are
  // compiled side by side.
  std::vector<std::string> images;
  std::string log;            // NVRTC's and ptxas's, of all
  double compile_ms = 0;      // source to cubin, without opening NVRTC
  std::string nvrtc_version;  // "13.0"

  size_t image_bytes() const;
  bool operator==(const Cubin&) const = default;
};

// What ptxas says of one kernel entry.
struct PtxasEntry {
  std::string name;
  int registers = 0;
  int stack_bytes = 0;  // a thread
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int smem_bytes = 0;  // static

  bool operator==(const PtxasEntry&) const = default;
};

// Every option that compile_cuda passes to an NVRTC of this major version, in order. From 13 on its
// own cache of results is off: kernels are kept under SplitKV's keys, and a cached result has no
// log.
std::vector<std::string> nvrtc_options(const std::string& arch, int nvrtc_major);

// All that compile_cuda's result depends on besides the source, for a key: of the NVRTC that is
// open or would be opened, without opening it where its file says which it is. library_missing.
Result<CompilerFacts> nvrtc_facts(const std::string& arch);

// "13.0", or library_missing.
Result<std::string> nvrtc_version();

// arch: "sm_90a". compile_failed with options, log and the path where the source was saved;
// unsupported, naming both versions, where this NVRTC does not know the architecture;
// library_missing. May be called from several threads at once.
Result<Cubin> compile_cuda(const KernelSource& source, const std::string& arch);

// The entries of a log written with --ptxas-options=-v, in its order.
std::vector<PtxasEntry> parse_ptxas_log(std::string_view log);

}  // namespace splitkv
