#include "runtime/background.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "compiler/text.hpp"

namespace splitkv {
namespace {

Error left_behind() {
  return {Status::not_prepared,
          "background jobs of a runtime that was opened before a fork are the parent's; a runtime "
          "that this process opens would work"};
}

Error was_cancelled() { return {Status::not_prepared, "the job was cancelled"}; }

// Signals are for the threads of the program.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

Outcome may_compile(const KernelRuntime& runtime) {
  if (!jit_is_forbidden(runtime.options())) return Unit{};
  return Error{
      Status::not_prepared,
      "SPLITKV_NO_JIT is set: no job may compile; a runtime without it would work, as would "
      "a pack made by `splitkv pack`"};
}

std::string reasons_of(const std::vector<std::string>& untuned) {
  std::string text;
  for (const std::string& one : untuned) text += (text.empty() ? "" : "; ") + one;
  return text;
}

}  // namespace

// ---- one job ------------------------------------------------------------------------------------

BackgroundJob::BackgroundJob(JobOrder order)
    : order_(std::move(order)), if_cancelled_(was_cancelled()) {}

JobView BackgroundJob::view() const {
  if (is_parents()) return {.stage = JobStage::cancelled, .done = 1, .error = left_behind()};
  const std::lock_guard lock(mutex_);
  return view_;
}

bool BackgroundJob::wait(double seconds) const {
  if (is_parents()) return true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return has_ended(view_.stage); });
}

void BackgroundJob::wait() const {
  if (is_parents()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended(view_.stage); });
}

void BackgroundJob::cancel() {
  if (is_parents()) return;
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (view_.stage != JobStage::waiting) return;
  view_.stage = JobStage::cancelled;
  view_.done = 1;
  view_.error = std::move(if_cancelled_);
  changed_.notify_all();
}

Result<std::unique_ptr<PreparedKernel>> BackgroundJob::take(
    const std::function<Outcome(const PreparedKernel&)>& fits) {
  if (is_parents()) return left_behind();
  const std::lock_guard lock(mutex_);
  if (!has_ended(view_.stage)) {
    return Error{Status::not_prepared,
                 "the job has not ended; waiting for it, or asking again later, would work"};
  }
  if (view_.stage != JobStage::done) return view_.error;
  if (kernel_ == nullptr) {
    return Error{Status::not_prepared, "the job's kernel was taken already; it is taken once"};
  }
  if (const Outcome fit = fits(*kernel_); !fit) return fit.error();
  view_.taken = true;
  return std::move(kernel_);
}

bool BackgroundJob::enter(JobStage stage) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  view_.stage = stage;
  view_.done = view_.left_s = 0;
  changed_.notify_all();
  return true;
}

Outcome BackgroundJob::tune(KernelRuntime& runtime) {
  const Result<Tuned> tuned =
      tune_problem(runtime, *order_.tune, [&](const TuningProgress& progress) {
        const std::lock_guard lock(mutex_);
        view_.done = progress.done;
        view_.left_s = progress.left_s;
        return !cancelled_;
      });
  if (!tuned) return tuned.error();
  const auto& records = tuned->report.records;
  const TuningBucket wanted = bucket_of(*parse_problem(order_.problem), order_.workload);
  const bool is_there =
      std::any_of(records.begin(), records.end(),
                  [&](const TuningRecord& record) { return record.bucket == wanted; });
  if (is_there || tuned->report.untuned.empty()) return Unit{};
  return Error{Status::not_prepared,
               "no schedule was found by measuring: " + reasons_of(tuned->report.untuned)};
}

Result<std::unique_ptr<PreparedKernel>> BackgroundJob::work(KernelRuntime& runtime) {
  if (order_.tune) {
    if (!enter(JobStage::tuning)) return was_cancelled();
    if (const Outcome tuned = tune(runtime); !tuned) return tuned.error();
  }
  if (!enter(JobStage::compiling)) return was_cancelled();
  return runtime.prepare({.device = order_.device,
                          .problem = order_.problem,
                          .workload = order_.workload,
                          .schedule = order_.schedule ? order_.schedule->c_str() : nullptr});
}

void BackgroundJob::end(Result<std::unique_ptr<PreparedKernel>> made) {
  const std::lock_guard lock(mutex_);
  if (view_.stage == JobStage::cancelled) return;
  if (cancelled_) made = std::move(if_cancelled_);
  if (made) {
    kernel_ = *std::move(made);
    view_.stage = JobStage::done;
  } else {
    view_.error = made.error();
    view_.stage = cancelled_ ? JobStage::cancelled : JobStage::failed;
  }
  view_.done = 1;
  view_.left_s = 0;
  changed_.notify_all();
}

void BackgroundJob::end_wordless(Status status) {
  const std::lock_guard lock(mutex_);
  if (has_ended(view_.stage)) return;
  view_.error.status = cancelled_ ? Status::not_prepared : status;
  view_.stage = cancelled_ ? JobStage::cancelled : JobStage::failed;
  view_.done = 1;
  view_.left_s = 0;
  changed_.notify_all();
}

// An exception must not end the thread, nor may one of telling about another.
void BackgroundJob::run(KernelRuntime& runtime) {
  try {
    try {
      end(work(runtime));
    } catch (const std::bad_alloc&) {
      end(Error{Status::out_of_memory, "host memory is used up"});
    } catch (const std::exception& exception) {
      end(Error{Status::internal, exception.what()});
    }
  } catch (const std::bad_alloc&) {
    end_wordless(Status::out_of_memory);
  } catch (...) {
    end_wordless(Status::internal);
  }
}

// ---- their thread -------------------------------------------------------------------------------

Background::~Background() {
  if (generation_ != fork_generation()) {
    (void)state_.release();  // its thread is the parent's, and cannot be joined here
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    for (const auto& job : state_->waiting) job->cancel();
    if (state_->running != nullptr) state_->running->cancel();
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

Result<std::shared_ptr<BackgroundJob>> Background::start(JobOrder order) {
  if (generation_ != fork_generation()) return left_behind();
  if (const Outcome may = order.tune ? may_tune(runtime_) : may_compile(runtime_); !may) {
    return may.error();
  }
  auto job = std::make_shared<BackgroundJob>(std::move(order));
  const std::lock_guard lock(state_->mutex);
  if (!state_->thread.joinable()) {
    const SignalsBlocked blocked;
    try {
      state_->thread = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      return Error{
          Status::internal,
          fmt::format("the thread of background jobs cannot be started: {}", error.what())};
    }
  }
  state_->waiting.push_back(job);
  state_->changed.notify_all();
  return job;
}

void Background::work() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.closing || !state.waiting.empty(); });
    if (state.closing) return;
    state.running = std::move(state.waiting.front());
    state.waiting.pop_front();
    const std::shared_ptr<BackgroundJob> job = state.running;
    lock.unlock();
    job->run(runtime_);
    lock.lock();
    state.running = nullptr;
  }
}

}  // namespace splitkv
