// What the autotuner asks of whoever compiles, checks and measures. Behind it stand a device and
// its memory, a process of its own that keeps their faults away (tuning_process.hpp), or a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/result.hpp"
#include "compiler/schedule.hpp"
#include "runtime/tuning_record.hpp"

namespace splitkv {

// One batch that schedules are measured on. rows is equal or ragged.
struct TuningPoint {
  int64_t batch = 1;
  int64_t kv_len = 4096;  // of the longest row
  RowLengths rows = RowLengths::equal;

  bool operator==(const TuningPoint&) const = default;
};

// "8x8192", and "8x8192 ragged".
std::string print(const TuningPoint& point);

// Tokens of each row. ragged: an eighth of the rows is as long as can be, half of the others has an
// eighth of that and the rest a 64th; the long ones are spread among the others.
std::vector<int32_t> lengths_of(const TuningPoint& point);

// What a caller who knows these lengths says of them.
Workload workload_of(const TuningPoint& point);

// Of one problem on one device. Every limit is in seconds from the call; a call that cannot end in
// time gives an error, where the bench can enforce that at all.
class TuningBench {
 public:
  virtual ~TuningBench() = default;

  // How many schedules are worth handing over at once.
  virtual int workers() const = 0;
  // Compiles them side by side. An outcome each.
  virtual std::vector<Outcome> prepare(const std::vector<Schedule>& schedules, double limit_s) = 0;
  // Runs it on a small shape in buffers of its own, poisoned before, and compares the result with
  // what an independent implementation gives.
  virtual Outcome check(const Schedule& schedule, double limit_s) = 0;
  // Microseconds of a plain read of the bytes that the point's queries see.
  virtual Result<double> floor_us(const TuningPoint& point, double limit_s) = 0;
  // Microseconds of a run at that point, from `repeat` measurements.
  virtual Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                                 double limit_s) = 0;
  // Bytes that tensors may take of the device's memory from now on. An error where this bench
  // cannot keep to it.
  virtual Outcome limit_memory(uint64_t bytes);
};

}  // namespace splitkv
