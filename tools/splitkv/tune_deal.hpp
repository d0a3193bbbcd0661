// Tuning on several devices at once: each takes the next piece of work when it is free, and
// measures it through a bench of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autotuner.hpp"

namespace splitkv::tool {

struct TuneJob {
  TuningRequest request;  // its budget is set when it is taken
  size_t machine = 0;     // whose devices may take it
};

// Requests for parts of the points, at most `parts` and at least one, of about equal bytes. Points
// of one batch and length, whose rows may differ, stay together, since records need them all; so do
// all points of a deterministic problem.
std::vector<TuningRequest> divided(const TuningRequest& request, size_t parts);

// Called from the devices' threads: done and lost one at a time, the others side by side.
struct DealHooks {
  // The bench ends in the thread that asked for it.
  std::function<Result<std::unique_ptr<TuningBench>>(size_t device, const Problem& problem)> open;
  std::function<void(size_t job, size_t device, const TuningProgress& progress)> progress;
  // Keeps what was found. An error ends the whole.
  std::function<Outcome(size_t job, size_t device, const TuningReport& report)> done;
  // A device that cannot be opened takes no more part; its work goes to others of its machine.
  std::function<void(size_t device, const Error& error)> lost;
};

// A report of each job, in order. machines: the devices of each, by number. An error where a job is
// left that no device could take, or nothing can be kept; what was done before was kept.
Result<std::vector<TuningReport>> deal(const std::vector<TuneJob>& jobs,
                                       const std::vector<std::vector<size_t>>& machines,
                                       double budget_s, const DealHooks& hooks);

}  // namespace splitkv::tool
