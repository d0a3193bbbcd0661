// `splitkv tune`, taken apart: options, the plan, what is printed while it runs and at its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/autotuner.hpp"
#include "runtime/tuning_file.hpp"
#include "tools/splitkv/tune_bench.hpp"
#include "tools/splitkv/tune_page.hpp"

namespace splitkv::tool {

struct TuneOptions {
  std::vector<std::string> problems;
  std::string file, model, target, out, report;
  std::vector<std::string> devices;  // of several; empty: what target says
  std::vector<int64_t> batch = {1, 8, 64}, kv_len = {4096, 32768};
  std::string rows = "all";  // equal, ragged or all
  double budget_s = 0;       // of the whole command; 0: kSecondsAProblem each, of a device
  int candidates = 64;
  bool retune = false, dry_run = false, in_process = false, worker = false;
};

inline constexpr double kSecondsAProblem = 20;

// Refuses numbers and combinations that cannot be, naming the option.
Outcome check_options(const TuneOptions& options);

// Problems given on the command line, in the file and of the model, each once.
Result<std::vector<Problem>> tuned_problems(const TuneOptions& options);

// Each batch with each length, and both kinds of rows where they differ.
std::vector<TuningPoint> tuned_points(const TuneOptions& options, const Problem& problem);

// The newest record of each bucket that is not among the missing points' ones.
std::vector<ReportedRecord> known_records(const std::vector<TuningPoint>& points,
                                          const std::vector<TuningPoint>& missing,
                                          const Problem& problem, const Target& target,
                                          const std::vector<KeptRecord>& records);

// A line a step, at most every few seconds; on a terminal a bar with the time that is left, drawn
// over itself.
class ProgressLine {
 public:
  ProgressLine(std::string what, bool is_terminal);
  void show(const TuningProgress& progress);
  void finish();

 private:
  const std::string what_;
  const bool is_terminal_;
  std::string stage_;
  double shown_at_ = -1e9;
  size_t width_ = 0;  // of what is on the line
};

std::string plan_text(const TuningRequest& request);
std::string summary_text(const std::vector<TuningReport>& reports);
std::string failures_text(const TuningReport& report);

}  // namespace splitkv::tool
