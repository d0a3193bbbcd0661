// What the runtime asks of a kind of device. Two answer: cuda/cuda_platform.cpp and
// cpu_platform.cpp. No type of the driver or of LLVM passes through here.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "codegen/append_source.hpp"
#include "codegen/kernel_source.hpp"
#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "codegen/merge_source.hpp"
#include "compiler/result.hpp"
#include "compiler/target.hpp"
#include "runtime/disk_cache.hpp"
#include "runtime/kernel_key.hpp"
#include "runtime/log.hpp"
#include "runtime/options.hpp"
#include "runtime/pack.hpp"

namespace splitkv {

// Counts of one runtime, as splitkv_get_statistics reports them. Thread-safe.
class Counters {
 public:
  struct Values {
    uint64_t memory_hits = 0;
    uint64_t compiles = 0;
    uint64_t compile_failures = 0;
    double compile_ms_total = 0;
    uint64_t disk_hits = 0;
    double disk_ms_total = 0;
    uint64_t pack_hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
  };

  void count_hit() {
    add([](Values& values) { ++values.memory_hits; });
  }
  void count_disk_hit(double milliseconds) {
    add([&](Values& values) {
      ++values.disk_hits;
      values.disk_ms_total += milliseconds;
    });
  }
  void count_pack_hit() {
    add([](Values& values) { ++values.pack_hits; });
  }
  void count_miss() {
    add([](Values& values) { ++values.misses; });
  }
  void count_failure() {
    add([](Values& values) { ++values.compile_failures; });
  }
  void count_compile(double milliseconds) {
    add([&](Values& values) {
      ++values.compiles;
      values.compile_ms_total += milliseconds;
    });
  }
  Values values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  template <class Change>
  void add(const Change& change) {
    const std::lock_guard lock(mutex_);
    change(values_);
  }

  mutable std::mutex mutex_;
  Values values_;
};

// What both platforms need of their runtime; owned by it and outlived by nothing that keeps it.
struct Services {
  explicit Services(const RuntimeOptions& given) : options(given), log(given), disk(options, log) {}
  Services(const Services&) = delete;  // its cache refers to its options and log
  Services& operator=(const Services&) = delete;

  const RuntimeOptions options;
  const Log log;
  Counters counters;
  DiskCache disk;
  Packs packs;
};

// Facts of compiled and loaded code. Registers and local bytes are 0 on the CPU.
struct CodeFacts {
  size_t module_bytes = 0;
  int registers_split = 0;
  int registers_reduce = 0;
  int local_bytes_split = 0;
  int local_bytes_reduce = 0;
};

// Compiled code on its device, ready to run. Immutable: any threads may use it at once.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;

  virtual CodeFacts facts() const = 0;
  // Launches all blocks of the split grid, then all of the reduce grid. CUDA: on `stream`, without
  // waiting. CPU: returns when done.
  virtual Outcome run(const LaunchArgs& args, const LaunchShape& shape, void* stream) const = 0;
  // CPU: split blocks part, part + parts, ... on this thread.
  virtual Outcome run_part(const LaunchArgs& args, const LaunchShape& shape, int64_t part,
                           int64_t parts) const = 0;
  virtual Outcome zero(void* data, size_t bytes, void* stream) const = 0;
  // Code of emit_merge only. CUDA: on `stream`, without waiting. CPU: returns when done.
  virtual Outcome merge(const MergeArgs& args, void* stream) const = 0;
  // Code of emit_append only. CUDA: a grid of `blocks` on `stream`, without waiting. CPU: returns
  // when done.
  virtual Outcome append(const AppendArgs& args, int64_t blocks, void* stream) const = 0;
};

// The error record of a checked kernel, in memory that host and device both see; all zero at first.
class ErrorMemory {
 public:
  virtual ~ErrorMemory() = default;

  virtual ErrorRecord* host() const = 0;
  virtual ErrorRecord* device() const = 0;  // what kernels are given
  // An error where host() may not be looked at.
  virtual Outcome readable() const { return Unit{}; }
};

struct LoadRequest {
  const std::string& device;  // "cuda:1", "cpu", ...
  const Target& target;
  const KernelSource& source;
  int64_t split_smem_bytes;
  int cluster = 1;           // blocks of a cluster of the split kernel
  bool pdl = false;          // runs will launch with programmatic stream serialization
  bool tensor_maps = false;  // runs will encode tensor maps
  std::string_view problem = {}, schedule = {};  // canonical, for messages; empty for merges
};

// Where a request had its code from.
enum class Origin { compiled, disk, memory, pack };
const char* name(Origin origin);  // "compiled", "disk", "memory", "pack"

// Where a request's code would come from, without loading it. `origin` compiled: it is not there.
struct Located {
  KernelKey key;
  Origin origin = Origin::compiled;
};

struct Loaded {
  std::shared_ptr<const LoadedCode> code;
  KernelKey key;
  Origin origin = Origin::compiled;
  double compile_ms = 0;  // of the compile that made it
  double disk_ms = 0;     // finding and verifying it, where this request had it from disk
};

class Platform {
 public:
  virtual ~Platform() = default;

  virtual Result<Target> target_of(const std::string& device) = 0;
  // Finds in a pack, in memory or on disk, or compiles, and loads. Of code in a pack no compiler is
  // asked and no cache. not_prepared where it would have to compile and SPLITKV_NO_JIT is set.
  virtual Result<Loaded> load(const LoadRequest& request) = 0;
  // Looks as load does, and neither loads nor compiles. library_missing where code is in no pack
  // and its compiler, whose version is in the key, is not there.
  virtual Result<Located> locate(const LoadRequest& request) = 0;
  virtual Result<std::shared_ptr<const ErrorMemory>> make_error_memory(
      const std::string& device) = 0;
};

std::unique_ptr<Platform> make_cuda_platform(Services& services);
std::unique_ptr<Platform> make_cpu_platform(Services& services);

// The code of a request's key from disk, or made by make(), which counts and logs for itself. Disk
// hits are counted here. not_prepared where it would have to be made and SPLITKV_NO_JIT is set.
Result<DiskCache::Found> find_or_make(Services& services, const KernelSource& source,
                                      const KernelKey& key, const DiskCache::Make& make);
Origin origin_of(Services& services, const KernelKey& key);  // disk, or compiled: not there

// The refusal of a compile under SPLITKV_NO_JIT. why: more of it, in a sentence without its end.
Error jit_is_off(const KernelKey& key, const std::string& why);

// The code of a request in a pack; null where there is none, which the log is told where packs are
// there. arch: as in CompilerFacts.
std::shared_ptr<const PackedKernel> find_packed(Services& services, const LoadRequest& request,
                                                const std::string& arch);

// SPLITKV_NO_JIT without a disk cache: then a kernel is in a pack or cannot be had.
bool only_packs(const Services& services);

}  // namespace splitkv
