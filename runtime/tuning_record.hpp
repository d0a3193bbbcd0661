// What tuning found, as a value and as one line of text:
//
//   PROBLEM | BUCKET | TARGET -> SCHEDULE | us=12.4 ratio=1.03 workloads=2 tried=64 failed=0
//     | then SCHEDULE us=12.6 ratio=1.05 | then ... | splitkv=0.5.0 compiler=NVRTC-13.0
//     driver=580.65.06 date=2026-01-31 | sum=0123abcd
//
// on a single line. BUCKET is "batch=8 kv_len=8192 rows=equal", or "batch=* kv_len=* rows=any"
// where the problem is deterministic. The sum is XXH32 of all that stands before " | sum=", so that
// a line that was cut or changed anywhere is known. parse_record(print(x)) == x.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "compiler/workload.hpp"

namespace splitkv {

// How the lengths of a batch relate. equal: within a tenth of the longest in the mean. any: good
// for both, for callers that do not say.
enum class RowLengths { equal, ragged, any };
std::string_view name(RowLengths rows);

// Workloads that share a record. Each number stands for itself and all below it down to half of it:
// batch 1, 2, 4, 8 ...; kv_len 128 (and all below), 256, 512 ... 0 in both: all workloads.
struct TuningBucket {
  int64_t batch = 0;
  int64_t kv_len = 0;
  RowLengths rows = RowLengths::any;

  bool operator==(const TuningBucket&) const = default;
};

// One batch row is always `equal`; several are what kv_len_mean says, and `any` where it says
// nothing. Deterministic problems have one bucket.
TuningBucket bucket_of(const Problem& problem, const Workload& workload);
std::string print(const TuningBucket& bucket);

struct TunedTime {
  Schedule schedule;
  double us = 0;     // of the workload with the worst ratio
  double ratio = 0;  // to a plain read of the same bytes: the worst of the bucket's workloads

  bool operator==(const TunedTime&) const = default;
};

struct TuningRecord {
  std::string problem;  // tuned_problem()
  TuningBucket bucket;
  std::string target;  // tuned_target()
  TunedTime best;
  std::vector<TunedTime> runners_up;
  int workloads = 0;  // of the bucket that were measured
  int tried = 0;      // schedules that were measured on them
  int failed = 0;     // that did not compile, gave a wrong result, or ended otherwise
  std::string splitkv, compiler, driver;  // versions, without blanks; "none" where there is none
  std::string date;                       // "2026-01-31"

  bool operator==(const TuningRecord&) const = default;
};

// The text that records are kept under: canonical, without checked=, which does not change which
// schedule is best.
std::string tuned_problem(const Problem& problem);

// The machine as far as it decides what is best: "cuda:sm_90a sms=132 l2=52428800 read=4655", or
// "cpu:znver3:256 threads=8". Its first word is the architecture.
std::string tuned_target(const Target& target);
std::string_view architecture_of(std::string_view tuned_target);

std::string print(const TuningRecord& record);
// invalid_argument says what is wrong with the line.
Result<TuningRecord> parse_record(std::string_view line);

// To four digits, as records hold times.
double rounded_time(double value);

}  // namespace splitkv
