// Many kernels at once: a plan of the work, and doing it side by side within the machine's cores
// and memory. What comes out is what prepares one after the other would give.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/kernel.hpp"

namespace splitkv {

// What one compile is expected to need: estimates for planning. Typical kernels take less: both of
// a common one some 0.3 s and 100 MiB of NVRTC.
struct CompileCost {
  double seconds = 0;
  uint64_t memory_bytes = 0;  // while it runs
  uint64_t kept_bytes = 0;    // on disk afterwards
};
CompileCost cost_of_compile(TargetKind kind);

struct PrepareLimits {
  int workers = 0;            // at most; 0: as many as the process has cores
  uint64_t memory_bytes = 0;  // for all compiles at once; 0: half of what is free
};

// Bytes that the process could still take: what the system says is available, or the rest of the
// memory limit of its control group where that is less. 0 where neither is told.
uint64_t available_memory();

// At least 1; no more than there are compiles, cores, and compiles that fit the memory at once.
int workers_for(int64_t compiles, uint64_t bytes_each, const PrepareLimits& limits);

struct PreparePlan {
  int64_t items = 0;    // that were asked for
  int64_t refused = 0;  // of these: cannot be prepared, whatever is done
  int64_t kernels = 0;  // distinct ones of the others: the sum of the next four
  int64_t in_packs = 0, in_memory = 0, on_disk = 0, to_compile = 0;
  int workers = 1;
  double seconds = 0;         // of the compiles, estimated
  uint64_t memory_bytes = 0;  // of the compiles that run at once, estimated
  uint64_t kept_bytes = 0;    // that compiles will add to the disk cache, estimated
};

// body(i) for each i below n, on at most `workers` threads, this one among them. body throws
// nothing.
void side_by_side(int workers, size_t n, const std::function<void(size_t)>& body);

// From where each item's code would come; error: it is refused. All of one kind of target.
PreparePlan plan_of(const std::vector<Result<Located>>& items, TargetKind kind,
                    const PrepareLimits& limits);

struct PrepareProgress {
  int64_t done = 0, items = 0;
  double seconds_left = 0;  // estimated
};

struct PrepareHooks {
  // Before the first item and after each, from any thread, one call at a time. false: no further
  // item is begun; those that are being compiled are finished.
  std::function<bool(const PrepareProgress&)> progress;
};

struct PreparedMany {
  PreparePlan plan;
  std::vector<Result<std::unique_ptr<PreparedKernel>>> kernels;  // an item each, in order
  bool cancelled = false;
};

// Where each would come from.
std::vector<Result<Located>> locate_many(KernelRuntime& runtime,
                                         const std::vector<PrepareRequest>& requests);

// Items of the same kernel compile once, and share its failure. An item that was not begun is
// not_prepared.
PreparedMany prepare_many(KernelRuntime& runtime, const std::vector<PrepareRequest>& requests,
                          const PrepareLimits& limits, const PrepareHooks& hooks);

}  // namespace splitkv
