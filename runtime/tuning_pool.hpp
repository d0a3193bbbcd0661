// What the autotuner knows of its candidates while it runs.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/tuning_bench.hpp"

namespace splitkv {

inline constexpr double kNotMeasured = std::numeric_limits<double>::infinity();

struct Candidate {
  struct Measured {
    double us = 0;
    int repeat = 0;
  };

  Schedule schedule;
  std::string text;
  bool compiled = false, checked = false, failed = false;
  std::map<size_t, Measured> at;  // by point
};

// A bucket and the points that fall into it.
struct PointBucket {
  TuningBucket bucket;
  std::vector<size_t> points;
};

class TuningPool {
 public:
  TuningPool(const Problem& problem, const Target& target, std::vector<TuningPoint> points);

  // The candidate of that schedule; a new one where there is none yet.
  size_t add(const Schedule& schedule);

  Candidate& operator[](size_t i) { return candidates_[i]; }
  const Candidate& operator[](size_t i) const { return candidates_[i]; }
  size_t size() const { return candidates_.size(); }

  const std::vector<TuningPoint>& points() const { return points_; }
  const std::vector<PointBucket>& buckets() const { return buckets_; }
  double floor_us(size_t point) const { return floors_[point]; }
  void set_floor(size_t point, double us) { floors_[point] = us; }
  bool has_floor(size_t point) const { return floors_[point] > 0; }

  // The worst of the bucket's points, of measurements of at least `repeat`; kNotMeasured where one
  // is missing.
  double ratio(size_t candidate, const PointBucket& bucket, int repeat = 1) const;
  // The point that decides it.
  size_t worst_point(size_t candidate, const PointBucket& bucket) const;
  // Candidates that have a ratio, the best first.
  std::vector<size_t> ranking(const PointBucket& bucket, int repeat = 1) const;
  // The most repeats that any candidate has on all of the bucket's points; 0: none has.
  int level(const PointBucket& bucket) const;

  // Equal for candidates whose compiled code is the same: all but what is a launch's.
  const std::string& kernel(size_t candidate);

 private:
  const Problem& problem_;
  const Target& target_;
  std::vector<TuningPoint> points_;
  std::vector<PointBucket> buckets_;
  std::vector<double> floors_;
  std::vector<Candidate> candidates_;
  std::map<std::string, size_t> by_text_;
  std::map<size_t, std::string> kernels_;
};

// One for each size and kind of rows, and one of rows=any where both kinds of a size are there.
// Deterministic problems have one.
std::vector<PointBucket> buckets_of(const Problem& problem, const std::vector<TuningPoint>& points);

}  // namespace splitkv
