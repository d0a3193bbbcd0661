#include "runtime/cpu/workers.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace splitkv {
namespace {

// One parallel_for. It lives on its caller's stack: the caller leaves only when every index is done
// and no worker holds the job any more.
struct Job {
  int64_t n;
  void (*body)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};  // first index not yet taken
  int holders = 0;               // workers inside; guarded by the pool's mutex

  void work() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(context, i);
  }
  bool has_work() const { return next.load(std::memory_order_relaxed) < n; }
};

}  // namespace

struct Workers::State {
  std::mutex mutex;
  std::condition_variable work_added;
  std::condition_variable job_left;
  std::vector<Job*> jobs;  // with indices left when they were put here; oldest first
  bool stopping = false;
  std::vector<std::thread> threads;

  Job* job_with_work() {
    const auto found =
        std::find_if(jobs.begin(), jobs.end(), [](const Job* job) { return job->has_work(); });
    return found == jobs.end() ? nullptr : *found;
  }

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      Job* job = nullptr;
      work_added.wait(lock, [&] { return stopping || (job = job_with_work()) != nullptr; });
      if (job == nullptr) return;
      ++job->holders;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->holders == 0) job_left.notify_all();
    }
  }
};

Workers::Workers(int threads) : state_(std::make_unique<State>()) {
  // A machine that has no more threads to give leaves the pool smaller; the caller's own always
  // works.
  try {
    for (int i = 1; i < threads; ++i) state_->threads.emplace_back([this] { state_->serve(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work_added.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int Workers::threads() const { return int(state_->threads.size()) + 1; }

void Workers::parallel_for(int64_t n, void (*body)(void*, int64_t), void* context) {
  if (n <= 0) return;
  Job job{n, body, context};
  if (n == 1 || state_->threads.empty()) return job.work();
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(&job);
  }
  const int64_t wanted = std::min<int64_t>(n - 1, int64_t(state_->threads.size()));
  for (int64_t i = 0; i < wanted; ++i) state_->work_added.notify_one();
  job.work();
  std::unique_lock lock(state_->mutex);
  std::erase(state_->jobs, &job);
  state_->job_left.wait(lock, [&] { return job.holders == 0; });
}

}  // namespace splitkv
