// The autotuner: of the schedules of a problem, the few that are fastest over a range of workloads.
//
// Candidates are compiled side by side, each is checked on a small shape before it may win, and
// measured at every point by successive halving: all of them once, a quarter of them with their
// neighbours in merge and pdl three times, the last ones nine times. What a bucket is
// judged by is the worst ratio to the floor over its points. All within a budget of time: what is
// not measured when it ends does not win, and the library's own choice is always measured first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/tuning_bench.hpp"

namespace splitkv {

inline constexpr int kMostTunedKernels = 4;  // of a problem, over all buckets
inline constexpr double kTunedSlack = 0.02;  // a bucket's schedule is this near to its best

struct TuningRequest {
  Problem problem;  // verifies on the target
  Target target;
  std::vector<TuningPoint> points;
  double budget_s = 20;
  int candidates = 64;  // a point, at most
  int compiles = 0;     // side by side, at most; 0: as many as the bench is worth
  // Of records that are made.
  std::string compiler = "none", driver = "none", date;
};

struct TuningFailure {
  std::string schedule;
  std::string stage;  // "compile", "check", "measure 8x8192"
  std::string why;
};

// All that was measured at a point.
struct PointTimes {
  struct Timed {
    Schedule schedule;
    double us = 0;
    int repeat = 0;  // measurements that it is the middle of
  };

  TuningPoint point;
  double floor_us = 0;       // 0: it could not be measured, and nothing was
  Schedule own;              // what the library chooses there of itself
  std::vector<Timed> times;  // of schedules that never failed, the fastest first
};

struct TuningReport {
  std::vector<TuningRecord> records;  // of a bucket each
  std::vector<PointTimes> points;     // of the request, in its order
  std::vector<TuningFailure> failures;
  std::vector<std::string> untuned;  // buckets without a record, and why
  int candidates = 0, compiled = 0, checked = 0, measured = 0;
  int kernels = 0;  // distinct ones in the records
  double seconds = 0;
  bool out_of_time = false;  // not every candidate was measured
  // Of each record, in order: the library's own choice on the same points, as a ratio to the floor;
  // 0 where it was not measured.
  std::vector<double> untuned_ratio;
};

struct TuningProgress {
  std::string stage;  // "compiling", "measuring 8x8192"
  double done = 0;    // of the budget, 0 to 1
  double left_s = 0;  // at most
};

struct TuningHooks {
  std::function<void(const TuningProgress&)> progress = [](const TuningProgress&) {};
  std::function<double()> now_s;  // empty: the steady clock
  std::function<bool()> is_cancelled = [] { return false; };
};

// What would be compiled, each once, the library's own choices first.
std::vector<Schedule> tuning_plan(const TuningRequest& request);

TuningReport autotune(const TuningRequest& request, TuningBench& bench, const TuningHooks& hooks);

}  // namespace splitkv
