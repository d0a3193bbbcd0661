// `splitkv bench-host`, taken apart: what the library costs the host, by the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "compiler/result.hpp"
#include "compiler/target.hpp"
#include "runtime/kernel.hpp"

namespace splitkv::tool {

struct HostPlan {
  Problem problem;
  Target target;
  std::string target_words;  // "cuda:sm_90a", "cuda:0", "cpu"
  std::string device;        // "cuda:0", "cpu"; empty: the target is no device of this machine
  std::string schedule;      // words
  int64_t batch = 8, kv_len = 4096;
  int samples = 20;
  std::string folder;  // of a disk cache of its own
};

struct HostRow {
  std::string name, what;
  std::vector<double> us;  // a sample each
};

// A compile into the plan's cache, then each hit as a process that has nothing in memory makes it:
// the entry alone; and, on a device, prepare in a runtime of its own, loading included.
Result<std::vector<HostRow>> time_disk(const HostPlan& plan);

// `splitkv compile` from nothing, and from the plan's cache.
Result<std::vector<HostRow>> time_processes(const HostPlan& plan);

// What is there already: facts by a kernel's handle, and prepare of the same once more.
Result<std::vector<HostRow>> time_memory(const HostPlan& plan);

// splitkv_run on rows of one key, beside the bare launches of the same code with the same
// arguments, in turn; and what the former takes beyond the latter.
Result<std::vector<HostRow>> time_runs(const HostPlan& plan);

#ifdef SPLITKV_HAS_CUDA
// Puts the kernel's launches on the stream through the driver alone, from a module of its own.
Result<std::function<Outcome()>> bare_launches(const HostPlan& plan, const PreparedKernel& kernel,
                                               const LaunchArgs& args, const LaunchShape& shape,
                                               void* stream);
#endif

// Mean microseconds of `calls` calls. An outcome that is an error ends it.
Result<double> mean_us(int calls, const std::function<Outcome()>& call);

// A line: median, least and greatest in ns, us or ms, whichever suits the median.
std::string print(const HostRow& row);

}  // namespace splitkv::tool
