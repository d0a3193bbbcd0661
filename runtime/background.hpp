// Jobs that compile, or tune and then compile, while their caller goes on. Nothing begins by itself
// and nothing is swapped by itself: a job's kernel lies there until it is taken.
//
// A runtime has one thread for them, started with the first: jobs run one after the other in the
// order they came, since two that measure would slow each other down. A child of fork does not have
// that thread: there jobs of its parent count as cancelled, and no job is begun.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/fork.hpp"
#include "runtime/kernel.hpp"
#include "runtime/tune_problem.hpp"

namespace splitkv {

enum class JobStage { waiting, tuning, compiling, done, failed, cancelled };
constexpr bool has_ended(JobStage stage) { return stage >= JobStage::done; }

struct JobOrder {
  std::string device, problem;
  Workload workload;
  std::optional<std::string> schedule;  // words, as of a prepare
  std::optional<TuneOrder> tune;        // before it compiles
};

struct JobView {
  JobStage stage = JobStage::waiting;
  double done = 0;     // of the stage, 0 to 1; known while it tunes
  double left_s = 0;   // at most, of the tuning
  bool taken = false;  // its kernel
  Error error;         // of one that failed or was cancelled
};

// Thread-safe.
class BackgroundJob {
 public:
  explicit BackgroundJob(JobOrder order);

  JobView view() const;
  // Until it has ended, at most so long. False: it has not ended.
  bool wait(double seconds) const;
  void wait() const;
  // One that waits ends at once, one that tunes within about a tenth of a second; a compile is
  // finished and dropped. Nothing happens to one that has ended.
  void cancel();

  // The kernel, once: only where fits() says so, otherwise it stays. not_prepared where it has not
  // ended or was taken; else why there is none.
  Result<std::unique_ptr<PreparedKernel>> take(
      const std::function<Outcome(const PreparedKernel&)>& fits);

 private:
  friend class Background;
  void run(KernelRuntime& runtime);
  Result<std::unique_ptr<PreparedKernel>> work(KernelRuntime& runtime);
  Outcome tune(KernelRuntime& runtime);
  bool enter(JobStage stage);  // false: it was cancelled
  void end(Result<std::unique_ptr<PreparedKernel>> made);
  void end_wordless(Status status);  // allocates nothing
  bool is_parents() const { return generation_ != fork_generation(); }

  const JobOrder order_;
  const uint64_t generation_ = fork_generation();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool cancelled_ = false;
  Error if_cancelled_;  // made with the job, so that to cancel it allocates nothing
  JobView view_;
  std::unique_ptr<PreparedKernel> kernel_;
};

class Background {
 public:
  // The runtime must outlive it.
  explicit Background(KernelRuntime& runtime) : runtime_(runtime) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // Cancels all jobs and waits for the one that runs.
  ~Background();

  // not_prepared where the runtime's flags forbid it.
  Result<std::shared_ptr<BackgroundJob>> start(JobOrder order);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<BackgroundJob>> waiting;
    std::shared_ptr<BackgroundJob> running;
    bool closing = false;
    std::thread thread;
  };
  void work();

  KernelRuntime& runtime_;
  const uint64_t generation_ = fork_generation();
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace splitkv
