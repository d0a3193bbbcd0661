// What the benchmark found, and its three written forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/splitkv/bench_rows.hpp"

namespace splitkv::tool {

// One schedule on one row.
struct OurTime {
  std::string label;     // the caller's name of it, else "default" or its words
  std::string schedule;  // canonical text
  double us = 0, least_us = 0, greatest_us = 0;
  double beside_ratio = 0;  // to reads taken just before and after; 0: to the row's floor
  double error = 0;         // the greatest relative L2 error of a row of out, over all copies
  double error_limit = 0;
  int registers_split = 0, registers_reduce = 0;
  int local_bytes = 0;     // spills and stack, bytes a thread, of both kernels
  int64_t smem_bytes = 0;  // of a split block
  bool named = true;       // not called by its words
  std::string failure;     // why there is no time; or empty

  bool operator==(const OurTime&) const = default;
};

struct PeerTime {
  std::string name;
  double us = 0;
  bool handed = false;  // measured earlier on another machine: only the ratio counts
  double ratio = 0;     // to the floor
  std::string cannot;   // why there is no time; or empty

  bool operator==(const PeerTime&) const = default;
};

// The best of a row with each value of a word, or of several.
struct ComparedRow {
  std::string row;
  int64_t schedules = 0;         // that count
  double best_ratio = 0;         // of them, to the floor
  std::vector<double> relative;  // of each column to that; 0: none was run

  bool operator==(const ComparedRow&) const = default;
};

struct Comparison {
  std::vector<std::string> words;
  std::vector<std::string> columns;  // values: "lse"; of several words "flat, last_block"
  std::vector<ComparedRow> rows;

  bool operator==(const Comparison&) const = default;
};

struct RowReport;

// Leaves, of the schedules without a name, the fastest whose result is right, as "best of N"; a
// wrong result of any is left too. N counts those that ran.
void keep_best(RowReport& report);

struct RowReport {
  BenchRow row;
  int64_t kv_bytes = 0;
  int64_t sets = 0, launches = 0;
  bool cold = true;
  double floor_us = 0;  // measured
  std::string floor_method;
  std::vector<OurTime> ours;
  int64_t refused = 0;  // schedules that the verifier does not let run on this problem
  std::vector<PeerTime> peers;
  std::string broken;  // why the floor cannot be; or empty

  bool operator==(const RowReport&) const = default;
};

struct BenchHeader {
  std::string card, driver, cuda, nvrtc, date, version, note;

  bool operator==(const BenchHeader&) const = default;
};

// What times are compared with: the measured floor, or the time of the row's operations at
// kHandedMatrixFlops where that is longer.
double bound_us(const RowReport& report);

// A time as a multiple of that, or of reads just before and after it.
double ratio_of(const RowReport& report, const OurTime& ours);

// The handed peers that were not measured: name, time, and ratio to the handed bound, or, where no
// floor was handed, to this run's.
void add_handed_peers(RowReport& report);

// The fastest of ours that has a time, or nothing.
const OurTime* best_of(const RowReport& report);

// A floor that cannot be, a time that could not be taken, or a result outside its limit.
bool is_failed(const RowReport& report);

std::string header_text(const BenchHeader& header);
std::string text_of(const RowReport& report);  // several lines

std::string markdown_of(const BenchHeader& header, const std::vector<RowReport>& reports);
std::string json_of(const BenchHeader& header, const std::vector<RowReport>& reports,
                    const std::vector<Comparison>& comparisons = {});
// One line of JSON a schedule, for sweeps.
std::string json_line_of(const RowReport& report, const OurTime& time);

}  // namespace splitkv::tool
