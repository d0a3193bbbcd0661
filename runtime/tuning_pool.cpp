#include "runtime/tuning_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "runtime/kernel_key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

void add_to(std::vector<PointBucket>& buckets, const TuningBucket& bucket, size_t point) {
  const auto found = std::find_if(buckets.begin(), buckets.end(),
                                  [&](const PointBucket& b) { return b.bucket == bucket; });
  if (found == buckets.end()) {
    buckets.push_back({bucket, {point}});
  } else {
    found->points.push_back(point);
  }
}

}  // namespace

std::string print(const TuningPoint& point) {
  return fmt::format("{}x{}{}", point.batch, point.kv_len,
                     point.rows == RowLengths::ragged ? " ragged" : "");
}

Outcome TuningBench::limit_memory(uint64_t bytes) {
  return Error{Status::unsupported,
               fmt::format("memory_bytes={}: this bench cannot keep to it; 0 would work", bytes)};
}

std::vector<int32_t> lengths_of(const TuningPoint& point) {
  std::vector<int32_t> lengths(size_t(point.batch), int32_t(point.kv_len));
  if (point.rows != RowLengths::ragged || point.batch < 2) return lengths;
  const int64_t every = std::min<int64_t>(8, point.batch);  // one of so many is as long as can be
  for (int64_t row = 0; row < point.batch; ++row) {
    const int64_t share = row % every == 0 ? 1 : row % 2 == 1 ? 64 : 8;
    lengths[size_t(row)] = int32_t(std::max<int64_t>(1, point.kv_len / share));
  }
  return lengths;
}

Workload workload_of(const TuningPoint& point) {
  int64_t sum = 0;
  for (const int32_t length : lengths_of(point)) sum += length;
  return {point.batch, point.kv_len, (sum + point.batch - 1) / point.batch};
}

std::vector<PointBucket> buckets_of(const Problem& problem,
                                    const std::vector<TuningPoint>& points) {
  std::vector<PointBucket> buckets;
  for (size_t i = 0; i < points.size(); ++i) {
    add_to(buckets, bucket_of(problem, workload_of(points[i])), i);
  }
  const std::vector<PointBucket> kinds = buckets;
  for (const PointBucket& equal : kinds) {
    for (const PointBucket& ragged : kinds) {
      TuningBucket other = equal.bucket;
      other.rows = RowLengths::ragged;
      if (equal.bucket.rows != RowLengths::equal || ragged.bucket != other) continue;
      other.rows = RowLengths::any;
      for (const size_t point : equal.points) add_to(buckets, other, point);
      for (const size_t point : ragged.points) add_to(buckets, other, point);
    }
  }
  return buckets;
}

TuningPool::TuningPool(const Problem& problem, const Target& target,
                       std::vector<TuningPoint> points)
    : problem_(problem),
      target_(target),
      points_(std::move(points)),
      buckets_(buckets_of(problem, points_)),
      floors_(points_.size(), 0) {}

size_t TuningPool::add(const Schedule& schedule) {
  const std::string text = print(schedule);
  const auto [at, is_new] = by_text_.try_emplace(text, candidates_.size());
  if (is_new) {
    candidates_.emplace_back();
    candidates_.back().schedule = schedule;
    candidates_.back().text = text;
  }
  return at->second;
}

double TuningPool::ratio(size_t candidate, const PointBucket& bucket, int repeat) const {
  if (candidates_[candidate].failed) return kNotMeasured;
  double worst = 0;
  for (const size_t point : bucket.points) {
    const auto found = candidates_[candidate].at.find(point);
    if (found == candidates_[candidate].at.end() || found->second.repeat < repeat ||
        !has_floor(point)) {
      return kNotMeasured;
    }
    worst = std::max(worst, found->second.us / floors_[point]);
  }
  return worst;
}

size_t TuningPool::worst_point(size_t candidate, const PointBucket& bucket) const {
  const auto ratio_at = [&](size_t point) {
    return candidates_[candidate].at.at(point).us / floors_[point];
  };
  return *std::max_element(bucket.points.begin(), bucket.points.end(),
                           [&](size_t a, size_t b) { return ratio_at(a) < ratio_at(b); });
}

std::vector<size_t> TuningPool::ranking(const PointBucket& bucket, int repeat) const {
  std::vector<std::pair<double, size_t>> rated;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const double ratio = this->ratio(i, bucket, repeat);
    if (ratio != kNotMeasured) rated.emplace_back(ratio, i);
  }
  std::sort(rated.begin(), rated.end());
  std::vector<size_t> ranked;
  for (const auto& [ratio, candidate] : rated) ranked.push_back(candidate);
  return ranked;
}

int TuningPool::level(const PointBucket& bucket) const {
  int best = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.failed) continue;
    int least = std::numeric_limits<int>::max();
    for (const size_t point : bucket.points) {
      const auto found = candidate.at.find(point);
      least = std::min(least, found == candidate.at.end() ? 0 : found->second.repeat);
    }
    best = std::max(best, least);
  }
  return best;
}

const std::string& TuningPool::kernel(size_t candidate) {
  std::string& known = kernels_[candidate];
  if (known.empty()) {
    const std::string source =
        without_comment_lines(emit(problem_, candidates_[candidate].schedule, target_));
    known = fmt::format("{:016x}", XXH3_64bits(source.data(), source.size()));
  }
  return known;
}

}  // namespace splitkv
