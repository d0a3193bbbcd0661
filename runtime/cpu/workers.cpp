#include "runtime/cpu/workers.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/fork.hpp"

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
  // `count` in all, the caller being one.
  explicit State(int count) {
    // A machine that has no more threads to give leaves the pool smaller; the caller's own always
    // works.
    try {
      for (int i = 1; i < count; ++i) threads.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work_added.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  const uint64_t generation = fork_generation();
  State* parents = nullptr;  // the state that a parent process left behind
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

Workers::Workers(int threads) : wanted_(threads), state_(new State(threads)) {}

Workers::~Workers() {
  State* state = state_.load();
  if (state->generation == fork_generation()) delete state;
}

Workers::State& Workers::state() const {
  State* found = state_.load(std::memory_order_acquire);
  if (found->generation == fork_generation()) return *found;
  auto made = std::make_unique<State>(wanted_);
  made->parents = found;
  if (state_.compare_exchange_strong(found, made.get())) return *made.release();
  return *found;  // another thread of the child was first
}

int Workers::threads() const { return int(state().threads.size()) + 1; }

void Workers::parallel_for(int64_t n, void (*body)(void*, int64_t), void* context) {
  if (n <= 0) return;
  Job job{n, body, context};
  if (n == 1) return job.work();
  State& pool = state();
  if (pool.threads.empty()) return job.work();
  {
    const std::lock_guard lock(pool.mutex);
    pool.jobs.push_back(&job);
  }
  const int64_t wanted = std::min<int64_t>(n - 1, int64_t(pool.threads.size()));
  for (int64_t i = 0; i < wanted; ++i) pool.work_added.notify_one();
  job.work();
  std::unique_lock lock(pool.mutex);
  std::erase(pool.jobs, &job);
  pool.job_left.wait(lock, [&] { return job.holders == 0; });
}

}  // namespace splitkv
