// Compiling, checking and measuring for the autotuner, in this process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/splitkv.hpp"
#include "runtime/tuning_bench.hpp"
#include "runtime/tuning_versions.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::tool {

// What benches of all devices share: a runtime, and the check against the fp64 reference on a few
// short rows, one of them empty.
class CheckedBench : public TuningBench {
 public:
  int workers() const override;
  std::vector<Outcome> prepare(const std::vector<Schedule>& schedules, double limit_s) override;
  Outcome check(const Schedule& schedule, double limit_s) override;
  Outcome limit_memory(uint64_t bytes) override {
    memory_bytes_ = std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max());
    return Unit{};
  }

 protected:
  CheckedBench(std::string device, const Problem& problem, Runtime runtime)
      : device_(std::move(device)), problem_(problem), runtime_(std::move(runtime)) {}
  // The kernel for a point; found in memory where it was compiled for another.
  Result<Kernel> kernel(const Schedule& schedule, const Workload& workload);

  // Whether tensors of so many bytes at a point keep to the limit.
  Outcome fits(const TuningPoint& point, int64_t bytes) const;

  const std::string device_;
  const Problem problem_;
  Runtime runtime_;
  uint64_t memory_bytes_ = 0;  // that tensors may take; 0: what is free

 private:
  std::optional<Inputs> inputs_;  // of the check, made when it is first needed
  std::optional<Expected> expected_;
};

// device: "cpu", "cpu:NAME" or "cuda:N".
Result<std::unique_ptr<TuningBench>> open_tuning_bench(const std::string& device,
                                                       const Problem& problem);

// Words of the problem that measuring on this device cannot give values to, as a refusal.
Outcome check_tunable(const std::string& device, const Problem& problem);

#ifdef SPLITKV_HAS_CUDA
Result<std::unique_ptr<TuningBench>> open_cuda_tuning_bench(int ordinal, const Problem& problem,
                                                            Runtime runtime);
#endif

// As many compiles as cores and free memory have room for; 1 at least.
int compile_workers();

}  // namespace splitkv::tool
