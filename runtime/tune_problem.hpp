// Tuning one problem from start to end: what has no record yet is measured in a process of its own,
// and the records are kept, in a file or in the runtime.
//
// The process is the program `splitkv`, which holds what measuring needs: inputs, the fp64
// reference that candidates are checked against, floors and clocks. So a candidate that crashes,
// hangs or leaves a GPU's context unusable never does so in the process that asked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/autotuner.hpp"
#include "runtime/kernel.hpp"
#include "runtime/tuning_file.hpp"

namespace splitkv {

struct TuneOrder {
  std::string device, problem;
  std::vector<Workload> workloads;
  double budget_s = 20;
  int candidates = 64;        // a workload, at most
  uint64_t memory_bytes = 0;  // that tensors may take of the device's memory; 0: what is free
  std::string worker;         // the program `splitkv`; empty: find_worker's
  std::string file;           // that records are added to; empty: the user's
  bool kept = true;           // in that file; false: in the runtime alone
  bool again = false;         // also what has a record of this problem and machine
};

struct Tuned {
  TuningReport report;
  std::string worker, file;  // empty: none was needed
  int known = 0;             // workloads that were left out, as they have records
  int processes = 0;         // that measured: one, and one more for each that was ended
};

// Before each step and some ten times a second. false: it is given up, and nothing is kept.
using TuneProgress = std::function<bool(const TuningProgress&)>;

// Prepares of `runtime` find the records from then on. not_prepared where it is forbidden
// (SPLITKV_NO_TUNING, SPLITKV_NO_JIT) or was given up.
Result<Tuned> tune_problem(KernelRuntime& runtime, const TuneOrder& order,
                           const TuneProgress& progress);

// Why a runtime may not tune; ok where it may.
Outcome may_tune(const KernelRuntime& runtime);

// `given`, where there is one, else the first there is of: `splitkv` beside this library or the
// running program, in bin/ beside the library's folder, in a folder of PATH. library_missing tells
// all that was tried.
Result<std::string> find_worker(const std::string& given);

// What a workload is measured at. One whose mean length is not told: equal and ragged rows.
std::vector<TuningPoint> tuning_points(const Problem& problem,
                                       const std::vector<Workload>& workloads);

// Without those whose buckets all have a record of this problem and machine.
std::vector<TuningPoint> points_without_records(const std::vector<TuningPoint>& points,
                                                const Problem& problem, const Target& target,
                                                const std::vector<KeptRecord>& records);

// Records, and remarks of what failed: what a tuning file is given.
std::vector<std::string> kept_lines(const TuningReport& report, const Problem& problem,
                                    const Target& target);

}  // namespace splitkv
