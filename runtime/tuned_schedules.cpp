#include "runtime/tuned_schedules.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "compiler/cost_model.hpp"
#include "compiler/schedule_candidates.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr double kMostSteps = 2;

double steps_between(int64_t a, int64_t b) {
  return std::abs(double(std::bit_width(uint64_t(a))) - double(std::bit_width(uint64_t(b))));
}

// Nothing where the one cannot stand for the other.
std::optional<double> distance_of(const TuningBucket& kept, const TuningBucket& asked) {
  if (kept == asked) return 0;
  if (kept.batch == 0 || asked.batch == 0) return std::nullopt;
  double steps = steps_between(kept.batch, asked.batch) + steps_between(kept.kv_len, asked.kv_len);
  // One row is of equal lengths whatever batch it came from.
  if (kept.rows != asked.rows && kept.batch > 1 && asked.batch > 1) {
    if (kept.rows != RowLengths::any) return std::nullopt;
    steps += 0.5;
  }
  return steps <= kMostSteps ? std::optional(steps) : std::nullopt;
}

bool is_better(const TunedMatch& a, const TunedMatch& b) {
  if (a.match != b.match) return a.match < b.match;
  return a.distance < b.distance;
}

// The record's kernel with every count of splits or blocks that is worth weighing, its own first.
std::vector<Schedule> launches_like(const Schedule& kept, const Problem& problem,
                                    const Workload& workload, const Target& target) {
  std::vector<Schedule> launches = {kept};
  for (Schedule launch : all_launches(problem, workload, kept, target)) {
    if (launch.partition != kept.partition || launch.reduce != kept.reduce ||
        launch.cluster != kept.cluster) {
      continue;
    }
    launch.pdl = kept.pdl;
    launches.push_back(launch);
  }
  std::erase_if(launches, [&](const Schedule& launch) {
    return verify(problem, launch, target).has_value();
  });
  return launches;
}

Schedule fitted(const Schedule& kept, const Problem& problem, const Workload& workload,
                const Target& target) {
  if (target.kind != TargetKind::cuda || problem.deterministic) return kept;
  Schedule best = kept;
  double least = std::numeric_limits<double>::infinity();
  for (const Schedule& launch : launches_like(kept, problem, workload, target)) {
    const double us = predict(problem, workload, launch, target).total_us();
    if (us < least) best = launch, least = us;
  }
  return best;
}

}  // namespace

const char* name(Match match) {
  switch (match) {
    case Match::exact:
      return "exact";
    case Match::near_bucket:
      return "near bucket";
    case Match::other_device:
      return "other device of the same architecture";
  }
  return "?";
}

std::vector<TunedMatch> matching(const std::vector<KeptRecord>& records, const Problem& problem,
                                 const Workload& workload, const Target& target) {
  const std::string text = tuned_problem(problem), machine = tuned_target(target);
  const TuningBucket bucket = bucket_of(problem, workload);
  std::vector<TunedMatch> found;
  for (auto kept = records.rbegin(); kept != records.rend(); ++kept) {
    const TuningRecord& record = kept->record;
    if (record.problem != text || architecture_of(record.target) != architecture_of(machine)) {
      continue;
    }
    const auto distance = distance_of(record.bucket, bucket);
    if (!distance) continue;
    const bool is_here = record.target == machine;
    const Match match = !is_here         ? Match::other_device
                        : *distance == 0 ? Match::exact
                                         : Match::near_bucket;
    found.push_back({&*kept, match, *distance});
  }
  std::stable_sort(found.begin(), found.end(), is_better);
  return found;
}

Result<ScheduleChoice> schedule_of(const TunedMatch& found, const Problem& problem,
                                   const Workload& workload, const Target& target) {
  const TuningRecord& record = found.kept->record;
  ScheduleChoice choice;
  if (const auto refusal = verify(problem, record.best.schedule, target)) return to_error(*refusal);
  choice.schedule = record.best.schedule;
  if (found.match != Match::exact) {
    choice.schedule = fitted(record.best.schedule, problem, workload, target);
    if (const auto refusal = verify(problem, choice.schedule, target)) return to_error(*refusal);
  }
  choice.why = fmt::format("tuned, {} match: {} ({}", name(found.match), found.kept->origin,
                           print(record.bucket));
  if (found.match == Match::other_device) choice.why += ", " + record.target;
  choice.why += fmt::format("; {:g} us, {:g} of the floor, {}", record.best.us, record.best.ratio,
                            record.date);
  if (choice.schedule != record.best.schedule) {
    choice.why +=
        fmt::format("; its kernel with {}={} by the cost model",
                    choice.schedule.partition == Partition::flat ? "blocks" : "splits",
                    choice.schedule.partition == Partition::flat ? choice.schedule.blocks
                                                                 : choice.schedule.splits);
  }
  choice.why += ")";
  choice.decider = found.match == Match::exact         ? Decider::record_exact
                   : found.match == Match::near_bucket ? Decider::record_near
                                                       : Decider::record_other_device;
  return choice;
}

TunedSchedules::TunedSchedules(const Log& log, std::string_view shipped)
    : log_(log), shipped_text_(shipped) {}

bool TunedSchedules::Stamp::operator==(const Stamp& other) const {
  return path == other.path && device == other.device && inode == other.inode &&
         bytes == other.bytes && changed.tv_sec == other.changed.tv_sec &&
         changed.tv_nsec == other.changed.tv_nsec;
}

TunedSchedules::Stamp TunedSchedules::stamp_of(const std::string& path) {
  struct stat facts = {};
  if (path.empty() || stat(path.c_str(), &facts) != 0) return {path, 0, 0, -1, {}};
  return {path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim};
}

void TunedSchedules::read_user_file(const std::string& path) {
  const Stamp stamp = stamp_of(path);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  user_.clear();
  if (stamp.bytes < 0) return;
  const Result<std::string> text = read_tuning_file(path);
  if (!text) {
    log_.warning(text.error().message + "; its records are left out");
    return;
  }
  user_ = read_records(*text, path, [&](const std::string& line) { log_.warning(line); });
}

void TunedSchedules::add(std::vector<KeptRecord> records) {
  const std::lock_guard lock(mutex_);
  for (KeptRecord& record : records) added_.push_back(std::move(record));
}

void TunedSchedules::add_own(std::vector<KeptRecord> records) {
  const std::lock_guard lock(mutex_);
  for (KeptRecord& record : records) own_.push_back(std::move(record));
}

void TunedSchedules::ignore_user_file() {
  const std::lock_guard lock(mutex_);
  reads_user_file_ = false;
  user_.clear();
}

std::optional<ScheduleChoice> TunedSchedules::find(const Problem& problem, const Workload& workload,
                                                   const Target& target,
                                                   const Environment& environment) {
  if (tuning_is_off(environment)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (reads_user_file_) read_user_file(user_tuning_file(environment));
  if (!shipped_read_) {
    shipped_read_ = true;
    shipped_ = read_records(shipped_text_, "the library's records",
                            [&](const std::string& line) { log_.warning(line); });
  }
  std::vector<TunedMatch> found;
  for (const auto* records : {&own_, &user_, &added_, &shipped_}) {
    const std::vector<TunedMatch> some = matching(*records, problem, workload, target);
    found.insert(found.end(), some.begin(), some.end());
  }
  std::stable_sort(found.begin(), found.end(), is_better);
  for (const TunedMatch& one : found) {
    Result<ScheduleChoice> choice = schedule_of(one, problem, workload, target);
    if (choice) return std::move(*choice);
    log_.warning(fmt::format("{}: this tuning record is left out: {}", one.kept->origin,
                             choice.error().message));
  }
  return std::nullopt;
}

}  // namespace splitkv
