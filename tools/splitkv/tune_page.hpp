// The page that `splitkv tune --report=FILE` writes: what was tuned, how near it is to the floor,
// and what each choice is worth, as one HTML file that loads nothing and runs no script.
#pragma once

#include <string>
#include <vector>

#include "runtime/autotuner.hpp"

namespace splitkv::tool {

struct ReportedDevice {
  std::string name;      // "cuda:0"
  std::string card;      // "NVIDIA H200", the CPU's model
  std::string target;    // tuned_target()
  std::string compiler;  // "NVRTC-13.0"
  std::string driver;    // "580.65.06", "none"

  bool operator==(const ReportedDevice&) const = default;
};

struct ReportedRecord {
  TuningRecord record;
  double untuned_ratio = 0;  // of the library's own choice to the floor; 0: it was not measured
  std::string origin;        // "FILE:LINE" of a record that was there before; empty: measured now
};

struct ReportedProblem {
  std::string problem;  // its text
  std::string devices;  // of its machine: "cuda:0, cuda:1"
  std::vector<ReportedRecord> records;
  std::vector<PointTimes> points;
  std::vector<TuningFailure> failures;
  std::vector<std::string> untuned;  // buckets without a record, and why
};

struct TuneReportData {
  std::string version;  // SplitKV's
  std::string date;
  double seconds = 0;  // that the command took
  std::vector<ReportedDevice> devices;
  std::vector<ReportedProblem> problems;
};

// What one run of the tuner found joins what is known of that problem.
void add_report(ReportedProblem& problem, const TuningReport& report);

// Any text may stand in the data; it is escaped.
std::string tune_report(const TuneReportData& data);

}  // namespace splitkv::tool
