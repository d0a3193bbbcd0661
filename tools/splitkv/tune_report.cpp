#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "compiler/text.hpp"
#include "runtime/tuning_pool.hpp"
#include "tools/splitkv/tune.hpp"

namespace splitkv::tool {
namespace {

constexpr double kBarEvery_s = 0.1;
constexpr double kLineEvery_s = 5;
constexpr int kBarWidth = 30;

double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// "measuring 8x8192" of "measuring 8x8192, 3 times each": what makes a new line worth its while.
std::string kind_of(const std::string& stage) {
  return stage.substr(0, stage.find_first_of(",0123456789"));
}

}  // namespace

ProgressLine::ProgressLine(std::string what, bool is_terminal)
    : what_(std::move(what)), is_terminal_(is_terminal) {}

void ProgressLine::show(const TuningProgress& progress) {
  const double now = now_s();
  const bool is_new = kind_of(progress.stage) != kind_of(stage_);
  if (!is_new && now - shown_at_ < (is_terminal_ ? kBarEvery_s : kLineEvery_s)) return;
  shown_at_ = now;
  stage_ = progress.stage;
  if (!is_terminal_) {
    fmt::print(stderr, "{}: {}, at most {:.0f} s left\n", what_, progress.stage, progress.left_s);
    return;
  }
  const int filled = int(progress.done * kBarWidth);
  const std::string text =
      fmt::format("{} [{}{}] {:.0f} s left, {}", what_, std::string(size_t(filled), '#'),
                  std::string(size_t(kBarWidth - filled), '.'), progress.left_s, progress.stage);
  const size_t blanks = width_ > text.size() ? width_ - text.size() : 0;
  fmt::print(stderr, "\r{}{}", text, std::string(blanks, ' '));
  std::fflush(stderr);
  width_ = text.size();
}

void ProgressLine::finish() {
  if (!is_terminal_ || width_ == 0) return;
  fmt::print(stderr, "\r{}\r", std::string(width_, ' '));
  std::fflush(stderr);
  width_ = 0;
}

std::string plan_text(const TuningRequest& request) {
  const std::vector<Schedule> plan = tuning_plan(request);
  std::string text = fmt::format("problem   {}\ntarget    {}\n", tuned_problem(request.problem),
                                 tuned_target(request.target));
  for (const PointBucket& bucket : buckets_of(request.problem, request.points)) {
    std::string points;
    for (const size_t point : bucket.points) {
      points += (points.empty() ? "" : ", ") + print(request.points[point]);
    }
    text += fmt::format("bucket    {}: measured at {}\n", print(bucket.bucket), points);
  }
  text += fmt::format("plan      {} schedules to compile, check and measure, at most {:.0f} s\n",
                      plan.size(), request.budget_s);
  for (const Schedule& schedule : plan) text += fmt::format("candidate {}\n", print(schedule));
  return text;
}

std::string failures_text(const TuningReport& report) {
  std::string text;
  for (const TuningFailure& failure : report.failures) {
    text += fmt::format("failed    {} ({}): {}\n", failure.schedule, failure.stage,
                        failure.why.substr(0, failure.why.find('\n')));
  }
  for (const std::string& bucket : report.untuned) text += fmt::format("untuned   {}\n", bucket);
  return text;
}

std::string summary_text(const std::vector<TuningReport>& reports) {
  std::string text, problem, target;
  for (const TuningReport& report : reports) {
    for (size_t i = 0; i < report.records.size(); ++i) {
      const TuningRecord& record = report.records[i];
      if (record.problem != problem || record.target != target) {
        const bool is_other_target = !target.empty() && record.target != target;
        problem = record.problem, target = record.target;
        if (is_other_target) text += fmt::format("\non {}", target);
        text += fmt::format("\n{}\n{:<36} {:>10} {:>9} {:>9}  {}\n", problem, "bucket", "us",
                            "to floor", "untuned", "schedule");
      }
      const double own = report.untuned_ratio[i];
      text += fmt::format("{:<36} {:>10.2f} {:>9.3f} {:>9}  {}\n", print(record.bucket),
                          record.best.us, record.best.ratio,
                          own > 0 ? fmt::format("{:.3f}", own) : "-", print(record.best.schedule));
    }
  }
  return text;
}

}  // namespace splitkv::tool
