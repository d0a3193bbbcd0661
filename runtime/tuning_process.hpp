// A TuningBench in a process of its own, so that a candidate that crashes, hangs or leaves a GPU
// context unusable costs that process alone: it is ended, the candidate is named, and a new process
// goes on. Parent and process exchange lines of text over the process's standard input and output.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cache_folder.hpp"
#include "runtime/tuning_bench.hpp"

namespace splitkv {

struct ProcessOptions {
  std::vector<std::string> environment;  // "NAME=VALUE", over the variables of this process
  bool quiet = false;                    // what it writes to stderr is dropped
  uint64_t memory_bytes = 0;             // what it is limited to; 0: it is not
  // Asked some ten times a second while a process is waited for. true: it is ended, and nothing is
  // asked of another one.
  std::function<bool()> is_cancelled = [] { return false; };
};

class ProcessBench final : public TuningBench {
 public:
  // command: a program and its arguments, which calls serve_bench on descriptors 0 and 1 at once.
  // Seconds it may take to be ready. An error where it cannot be started, is never ready, or is of
  // another version of SplitKV: it would measure other kernels.
  static Result<std::unique_ptr<ProcessBench>> start(std::vector<std::string> command,
                                                     double ready_limit_s = 60,
                                                     ProcessOptions options = {});
  ~ProcessBench() override;

  int workers() const override { return workers_; }
  std::vector<Outcome> prepare(const std::vector<Schedule>& schedules, double limit_s) override;
  Outcome check(const Schedule& schedule, double limit_s) override;
  Result<double> floor_us(const TuningPoint& point, double limit_s) override;
  Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                         double limit_s) override;
  Outcome limit_memory(uint64_t bytes) override;

  int starts() const { return starts_; }  // of processes so far

 private:
  ProcessBench(std::vector<std::string> command, double ready_limit_s, ProcessOptions options)
      : command_(std::move(command)), ready_limit_s_(ready_limit_s), options_(std::move(options)) {}
  Outcome begin();  // starts a process where none is alive
  Outcome spawn();
  Outcome greet();
  Outcome send(const std::string& text);
  Result<std::string> receive(double until_s);
  Error ended(const std::string& how);
  Result<std::string> ask(const std::string& line, double limit_s);

  const std::vector<std::string> command_;
  const double ready_limit_s_;
  ProcessOptions options_;
  FileHandle socket_;
  pid_t process_ = -1;
  std::string unread_;
  int workers_ = 1;
  int starts_ = 0;
  int barren_ = 0;  // starts in a row that were never ready
};

// Answers requests from descriptor `in` on `out` until `in` ends. opened: the bench, or why there
// is none, which is told instead of being ready.
void serve_bench(const Result<std::unique_ptr<TuningBench>>& opened, int in, int out);

}  // namespace splitkv
