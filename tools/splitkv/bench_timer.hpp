// Times of a prepared kernel over copies of its tensors, as replays of a graph.
#pragma once

#include <vector>

#include "runtime/splitkv.hpp"
#include "tools/splitkv/bench_report.hpp"
#include "tools/splitkv/bench_sets.hpp"

namespace splitkv::tool {

// How many copies a device has room for and needs, so that launches find nothing in L2. most_bytes:
// of all copies, where it is not 0.
Result<Rotation> rotation_on(const Gpu& gpu, const Problem& problem,
                             const std::vector<int32_t>& kv_len, int64_t most_bytes = 0);

// Must not outlive the Gpu.
class KernelTimer {
 public:
  explicit KernelTimer(Gpu& gpu) : gpu_(gpu) {}

  // Poisons what is written, times, and compares every copy's out with what is expected where that
  // is known (else the error is 0).
  Result<OurTime> time(const Kernel& kernel, const BenchSets& sets, const TimingPlan& timing);

 private:
  Outcome reserve(Buffer& buffer, size_t bytes);
  Result<std::vector<splitkv_args>> arguments(const Kernel& kernel, const BenchSets& sets);

  Gpu& gpu_;
  Buffer scratch_, state_;  // of all kernels in turn
};

}  // namespace splitkv::tool
