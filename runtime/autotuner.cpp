#include "runtime/autotuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "runtime/kernel_cover.hpp"
#include "runtime/splitkv.h"
#include "runtime/tuning_pool.hpp"
#include "runtime/tuning_space.hpp"

namespace splitkv {
namespace {

constexpr size_t kRunnersUp = 3;
constexpr double kLongestCall = 20;  // seconds, of one call
// Of a check, whose shapes are small: so that a candidate that hangs leaves time for the others.
constexpr double kCheckOfBudget = 1.0 / 3;
constexpr double kShortestCheck = 3;  // seconds
// Seconds beyond the budget that a call in flight is left, so that it can tell why it is late.
constexpr double kGrace = 1;

// A round of measurements: how often each is repeated, and when it ends as a part of the budget.
struct Round {
  int repeat;
  double until;
};
constexpr double kCompiledUntil = 0.4;
constexpr Round kScreening = {1, 0.7};
constexpr Round kRefining = {3, 0.85};
constexpr Round kDeciding = {9, 1.0};

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

class Tuner {
 public:
  Tuner(const TuningRequest& request, TuningBench& bench, const TuningHooks& hooks)
      : request_(request),
        bench_(bench),
        hooks_(hooks),
        pool_(request.problem, request.target, request.points),
        begin_(now()) {}

  TuningReport run();

 private:
  using Set = std::set<size_t>;

  double now() const { return hooks_.now_s ? hooks_.now_s() : steady_seconds(); }
  double spent() const { return now() - begin_; }
  bool is_over(double until) const {
    return spent() >= until * request_.budget_s || hooks_.is_cancelled();
  }
  double limit_s() const {
    return std::clamp(request_.budget_s + kGrace - spent(), kGrace, kLongestCall);
  }
  double check_limit_s() const {
    return std::min(limit_s(), std::max(kShortestCheck, kCheckOfBudget * request_.budget_s));
  }
  void tell(const std::string& stage) const {
    const double done = std::clamp(spent() / request_.budget_s, 0.0, 1.0);
    hooks_.progress({stage, done, std::max(0.0, request_.budget_s - spent())});
  }
  void fail(size_t candidate, const std::string& stage, const Error& error);

  void add_candidates();
  void make_ready(const std::vector<size_t>& candidates, double until);
  void check(size_t candidate);
  void measure(const std::vector<Set>& wanted, const Round& round);
  bool measure_at(size_t point, const Set& candidates, const Round& round, double until);
  std::vector<Set> everything() const;
  std::vector<Set> of_buckets(const std::vector<Set>& of_bucket) const;
  std::vector<Set> survivors(double share, size_t least) const;
  std::vector<Set> refined();
  std::vector<Set> finalists();
  void decide();
  PointTimes times_at(size_t point) const;
  void record(const PointBucket& bucket, const std::vector<size_t>& ranked, size_t best);
  double default_ratio(const PointBucket& bucket) const;
  std::string why_untuned(const PointBucket& bucket) const;

  const TuningRequest& request_;
  TuningBench& bench_;
  const TuningHooks& hooks_;
  TuningPool pool_;
  const double begin_;
  std::vector<size_t> defaults_;                    // of each point
  std::vector<Set> proposed_;                       // for each point, as against for others
  std::vector<std::optional<Error>> point_faults_;  // why a point has no floor
  TuningReport report_;
};

void Tuner::fail(size_t candidate, const std::string& stage, const Error& error) {
  pool_[candidate].failed = true;
  report_.failures.push_back({pool_[candidate].text, stage, error.message});
}

// The library's own choices first, then the points' candidates in turn.
void Tuner::add_candidates() {
  std::vector<std::vector<Schedule>> lists;
  size_t longest = 0;
  for (const TuningPoint& point : request_.points) {
    lists.push_back(
        tuning_candidates(request_.problem, point, request_.target, request_.candidates));
    longest = std::max(longest, lists.back().size());
    defaults_.push_back(pool_.add(lists.back().front()));
  }
  proposed_.resize(lists.size());
  for (size_t rank = 0; rank < longest; ++rank) {
    for (size_t point = 0; point < lists.size(); ++point) {
      if (rank < lists[point].size()) proposed_[point].insert(pool_.add(lists[point][rank]));
    }
  }
  point_faults_.resize(request_.points.size());
  report_.candidates = int(pool_.size());
}

void Tuner::check(size_t candidate) {
  const Outcome right = bench_.check(pool_[candidate].schedule, check_limit_s());
  if (!right) return fail(candidate, "check", right.error());
  pool_[candidate].checked = true;
  ++report_.checked;
}

// Compiles and checks, in order, those that are not. The library's own choices are made ready
// whatever the time.
void Tuner::make_ready(const std::vector<size_t>& candidates, double until) {
  const int most = request_.compiles > 0 ? request_.compiles : bench_.workers();
  const size_t at_once = size_t(std::max(1, std::min(most, bench_.workers())));
  std::vector<size_t> left;
  for (const size_t i : candidates) {
    if (!pool_[i].compiled && !pool_[i].failed) left.push_back(i);
  }
  for (size_t begin = 0; begin < left.size();) {
    const bool is_own =
        std::find(defaults_.begin(), defaults_.end(), left[begin]) != defaults_.end();
    if (is_over(until) && !(is_own && !is_over(1))) {
      report_.out_of_time = true;
      return;
    }
    tell(fmt::format("compiling and checking {} of {}", begin + 1, left.size()));
    const size_t end = std::min(left.size(), begin + at_once);
    std::vector<Schedule> schedules;
    for (size_t i = begin; i < end; ++i) schedules.push_back(pool_[left[i]].schedule);
    const std::vector<Outcome> outcomes = bench_.prepare(schedules, limit_s());
    for (size_t i = begin; i < end; ++i) {
      const Outcome& outcome = outcomes[i - begin];
      if (!outcome) {
        fail(left[i], "compile", outcome.error());
        continue;
      }
      pool_[left[i]].compiled = true;
      ++report_.compiled;
      if (!is_over(1)) check(left[i]);
    }
    begin = end;
  }
}

bool Tuner::measure_at(size_t point, const Set& candidates, const Round& round, double until) {
  const TuningPoint& shape = pool_.points()[point];
  if (!pool_.has_floor(point)) {
    if (point_faults_[point]) return true;
    const Result<double> floor = bench_.floor_us(shape, limit_s());
    if (!floor) {
      point_faults_[point] = floor.error();
      return true;
    }
    pool_.set_floor(point, *floor);
  }
  // The library's own choice first: whatever wins is at least as good. Then what was proposed for
  // this point, as time may not be enough for all.
  std::vector<size_t> order(candidates.begin(), candidates.end());
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return proposed_[point].contains(i); });
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return i == defaults_[point]; });
  for (const size_t i : order) {
    Candidate& candidate = pool_[i];
    const auto known = candidate.at.find(point);
    if (!candidate.checked || candidate.failed) continue;
    if (known != candidate.at.end() && known->second.repeat >= round.repeat) continue;
    const bool is_own = i == defaults_[point] && known == candidate.at.end();
    if (is_over(is_own ? 1 : until)) return false;
    tell(fmt::format("measuring {}, {} times each", print(shape), round.repeat));
    const Result<double> us = bench_.time_us(candidate.schedule, shape, round.repeat, limit_s());
    if (us) {
      candidate.at[point] = {*us, round.repeat};
      ++report_.measured;
    } else {
      fail(i, "measure " + print(shape), us.error());
    }
  }
  return true;
}

// wanted: of each point, who is measured there. Points share what is left of the round's time.
void Tuner::measure(const std::vector<Set>& wanted, const Round& round) {
  const double begin = std::min(round.until, spent() / request_.budget_s);
  for (size_t point = 0; point < wanted.size(); ++point) {
    const double share = double(point + 1) / double(wanted.size());
    const double until = begin + (round.until - begin) * share;
    if (!measure_at(point, wanted[point], round, until)) report_.out_of_time = true;
  }
}

std::vector<Tuner::Set> Tuner::everything() const {
  Set all;
  for (size_t i = 0; i < pool_.size(); ++i) all.insert(i);
  return std::vector<Set>(pool_.points().size(), all);
}

// From sets of each bucket to sets of each point, with the points' own choices.
std::vector<Tuner::Set> Tuner::of_buckets(const std::vector<Set>& of_bucket) const {
  std::vector<Set> of_point(pool_.points().size());
  for (size_t b = 0; b < of_bucket.size(); ++b) {
    for (const size_t point : pool_.buckets()[b].points) {
      of_point[point].insert(of_bucket[b].begin(), of_bucket[b].end());
    }
  }
  for (size_t point = 0; point < of_point.size(); ++point) of_point[point].insert(defaults_[point]);
  return of_point;
}

// Of each bucket the best, as a share of those that are measured.
std::vector<Tuner::Set> Tuner::survivors(double share, size_t least) const {
  std::vector<Set> sets;
  for (const PointBucket& bucket : pool_.buckets()) {
    const std::vector<size_t> ranked = pool_.ranking(bucket);
    const size_t count =
        std::min(ranked.size(), std::max(least, size_t(share * double(ranked.size()))));
    sets.emplace_back(ranked.begin(), ranked.begin() + std::ptrdiff_t(count));
  }
  return sets;
}

// The survivors with the neighbours of the two best of each bucket, which are compiled for it.
std::vector<Tuner::Set> Tuner::refined() {
  constexpr size_t best = 2;
  std::vector<Set> sets = survivors(0.25, 4);
  Set fresh;
  for (size_t b = 0; b < sets.size(); ++b) {
    std::vector<size_t> ranked = pool_.ranking(pool_.buckets()[b]);
    ranked.resize(std::min(best, ranked.size()));
    for (const size_t i : ranked) {
      const Schedule schedule = pool_[i].schedule;
      for (const Schedule& other : neighbours(schedule, request_.problem, request_.target)) {
        const size_t candidate = pool_.add(other);
        fresh.insert(candidate);
        sets[b].insert(candidate);
      }
    }
  }
  make_ready({fresh.begin(), fresh.end()}, (kScreening.until + kRefining.until) / 2);
  report_.candidates = int(pool_.size());
  return sets;
}

// Of each bucket the four best, and the best there of each kernel that is among the two best
// anywhere, so that few kernels can be found that serve all.
std::vector<Tuner::Set> Tuner::finalists() {
  std::vector<Set> sets = survivors(0, 4);
  std::set<std::string> kernels;
  for (const PointBucket& bucket : pool_.buckets()) {
    const std::vector<size_t> ranked = pool_.ranking(bucket);
    for (size_t i = 0; i < std::min<size_t>(2, ranked.size()); ++i) {
      kernels.insert(pool_.kernel(ranked[i]));
    }
  }
  for (size_t b = 0; b < sets.size(); ++b) {
    std::set<std::string> missing = kernels;
    for (const size_t i : pool_.ranking(pool_.buckets()[b])) {
      if (missing.empty()) break;
      if (missing.erase(pool_.kernel(i)) > 0) sets[b].insert(i);
    }
  }
  return sets;
}

double Tuner::default_ratio(const PointBucket& bucket) const {
  double worst = 0;
  for (const size_t point : bucket.points) {
    const Candidate& own = pool_[defaults_[point]];
    const auto found = own.at.find(point);
    if (found == own.at.end() || !pool_.has_floor(point)) return 0;
    worst = std::max(worst, found->second.us / pool_.floor_us(point));
  }
  return worst;
}

std::string Tuner::why_untuned(const PointBucket& bucket) const {
  for (const size_t point : bucket.points) {
    if (!point_faults_[point]) continue;
    return fmt::format("{}: {}", print(pool_.points()[point]), point_faults_[point]->message);
  }
  const bool all_failed = report_.failures.size() >= pool_.size();
  return all_failed ? "every candidate failed" : "the budget ended before anything was measured";
}

void Tuner::record(const PointBucket& bucket, const std::vector<size_t>& ranked, size_t best) {
  TuningRecord record;
  record.problem = tuned_problem(request_.problem);
  record.bucket = bucket.bucket;
  record.target = tuned_target(request_.target);
  const auto timed = [&](size_t i) -> TunedTime {
    const size_t point = pool_.worst_point(i, bucket);
    return {pool_[i].schedule, rounded_time(pool_[i].at.at(point).us),
            rounded_time(pool_.ratio(i, bucket))};
  };
  record.best = timed(best);
  for (const size_t i : ranked) {
    if (i != best && record.runners_up.size() < kRunnersUp) record.runners_up.push_back(timed(i));
  }
  record.workloads = int(bucket.points.size());
  record.tried = int(pool_.ranking(bucket).size());
  record.failed = int(report_.failures.size());
  record.splitkv = splitkv_version();
  record.compiler = request_.compiler;
  record.driver = request_.driver;
  record.date = request_.date;
  report_.records.push_back(std::move(record));
  report_.untuned_ratio.push_back(default_ratio(bucket));
}

// Few kernels that serve every bucket, and of each bucket its best schedule among those.
void Tuner::decide() {
  std::vector<std::string> kernels;
  std::vector<std::vector<size_t>> rankings;
  for (const PointBucket& bucket : pool_.buckets()) {
    const int level = pool_.level(bucket);
    rankings.push_back(level == 0 ? std::vector<size_t>{} : pool_.ranking(bucket, level));
    for (const size_t i : rankings.back()) {
      if (std::find(kernels.begin(), kernels.end(), pool_.kernel(i)) == kernels.end())
        kernels.push_back(pool_.kernel(i));
    }
  }
  std::vector<std::vector<double>> ratios;
  for (size_t b = 0; b < rankings.size(); ++b) {
    ratios.emplace_back(kernels.size(), kNotMeasured);
    for (const size_t i : rankings[b]) {
      const auto at = std::find(kernels.begin(), kernels.end(), pool_.kernel(i)) - kernels.begin();
      ratios[b][size_t(at)] = std::min(ratios[b][size_t(at)], pool_.ratio(i, pool_.buckets()[b]));
    }
  }
  std::set<std::string> chosen;
  for (const int k : fewest_kernels(ratios, kMostTunedKernels, kTunedSlack)) {
    chosen.insert(kernels[size_t(k)]);
  }
  std::set<std::string> used;
  for (size_t b = 0; b < rankings.size(); ++b) {
    const PointBucket& bucket = pool_.buckets()[b];
    const auto best = std::find_if(rankings[b].begin(), rankings[b].end(),
                                   [&](size_t i) { return chosen.contains(pool_.kernel(i)); });
    if (best == rankings[b].end()) {
      report_.untuned.push_back(fmt::format("{}: {}", print(bucket.bucket), why_untuned(bucket)));
      continue;
    }
    used.insert(pool_.kernel(*best));
    record(bucket, rankings[b], *best);
  }
  report_.kernels = int(used.size());
}

PointTimes Tuner::times_at(size_t point) const {
  PointTimes all;
  all.point = pool_.points()[point];
  all.floor_us = pool_.floor_us(point);
  all.own = pool_[defaults_[point]].schedule;
  for (size_t i = 0; i < pool_.size(); ++i) {
    const auto found = pool_[i].at.find(point);
    if (pool_[i].failed || found == pool_[i].at.end()) continue;
    all.times.push_back({pool_[i].schedule, found->second.us, found->second.repeat});
  }
  std::stable_sort(all.times.begin(), all.times.end(),
                   [](const auto& a, const auto& b) { return a.us < b.us; });
  return all;
}

TuningReport Tuner::run() {
  tell("planning");
  add_candidates();
  std::vector<size_t> all(pool_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  make_ready(all, kCompiledUntil);
  measure(everything(), kScreening);
  measure(of_buckets(refined()), kRefining);
  measure(of_buckets(finalists()), kDeciding);
  decide();
  for (size_t i = 0; i < pool_.points().size(); ++i) report_.points.push_back(times_at(i));
  report_.seconds = spent();
  return std::move(report_);
}

}  // namespace

std::vector<Schedule> tuning_plan(const TuningRequest& request) {
  std::vector<Schedule> own, others;
  for (const TuningPoint& point : request.points) {
    const auto list = tuning_candidates(request.problem, point, request.target, request.candidates);
    own.push_back(list.front());
    others.insert(others.end(), list.begin() + 1, list.end());
  }
  own.insert(own.end(), others.begin(), others.end());
  std::vector<Schedule> plan;
  std::set<std::string> known;
  for (const Schedule& schedule : own) {
    if (known.insert(print(schedule)).second) plan.push_back(schedule);
  }
  return plan;
}

TuningReport autotune(const TuningRequest& request, TuningBench& bench, const TuningHooks& hooks) {
  return Tuner(request, bench, hooks).run();
}

}  // namespace splitkv
