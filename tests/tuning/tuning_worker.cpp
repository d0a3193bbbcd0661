// A measuring process of the tests. Schedules misbehave by their number of splits, and where the
// variable TUNING_WORKER_CRASHES or TUNING_WORKER_HANGS holds words of their text.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "compiler/text.hpp"
#include "runtime/tuning_process.hpp"

using namespace splitkv;

namespace {

enum Misbehaviour { kCrash = 101, kHang = 102, kExit = 103, kFail = 104, kCrashInCompile = 105 };

bool is_named(const char* variable, const Schedule& schedule) {
  const char* words = std::getenv(variable);
  return words != nullptr && print(schedule).find(words) != std::string::npos;
}

Outcome fate(const Schedule& schedule) {
  if (is_named("TUNING_WORKER_CRASHES", schedule)) raise(SIGSEGV);
  if (is_named("TUNING_WORKER_HANGS", schedule)) {
    for (;;) pause();
  }
  switch (schedule.splits) {
    case kCrash:
      raise(SIGSEGV);
      break;
    case kHang:
      for (;;) pause();
    case kExit:
      _exit(7);
    case kFail:
      return Error{Status::device_error, "two\nlines \\ and a backslash"};
    default:
      break;
  }
  return Unit{};
}

class WorkerBench final : public TuningBench {
 public:
  int workers() const override { return 3; }
  std::vector<Outcome> prepare(const std::vector<Schedule>& schedules, double) override {
    std::vector<Outcome> outcomes;
    for (const Schedule& schedule : schedules) {
      if (schedule.splits == kCrashInCompile) raise(SIGABRT);
      outcomes.push_back(schedule.splits == kFail ? fate(schedule) : Outcome(Unit{}));
    }
    return outcomes;
  }
  Outcome check(const Schedule& schedule, double) override { return fate(schedule); }
  Result<double> floor_us(const TuningPoint& point, double) override {
    return double(point.batch) + (point.rows == RowLengths::ragged ? 0.5 : 0.0);
  }
  Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                         double) override {
    const Outcome fine = fate(schedule);
    if (!fine) return fine.error();
    return double(repeat) * 1e6 + double(point.batch) * 1e3 + double(point.kv_len) +
           double(schedule.splits) / 1024;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  if (std::strcmp(how, "never_ready") == 0) return 3;
  if (std::strcmp(how, "silent") == 0) {
    for (;;) pause();
  }
  if (std::strcmp(how, "no_bench") == 0) {
    serve_bench(Error{Status::library_missing, "no such device"}, STDIN_FILENO, STDOUT_FILENO);
    return 0;
  }
  serve_bench(std::unique_ptr<TuningBench>(std::make_unique<WorkerBench>()), STDIN_FILENO,
              STDOUT_FILENO);
  return 0;
}
