#include "thread_pool.hpp"

#include <algorithm>

namespace engine {

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = std::max(1, int(std::thread::hardware_concurrency()));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    leave_ = true;
  }
  begin_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_all() {
  for (int64_t i = next_++; i < n_; i = next_++) (*body_)(i);
}

void ThreadPool::work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock, [&] { return leave_ || round_ != seen; });
    if (leave_) return;
    seen = round_;
    lock.unlock();
    take_all();
    lock.lock();
    if (--busy_ == 0) end_.notify_one();
  }
}

void ThreadPool::for_each(int64_t n, const std::function<void(int64_t)>& body) {
  if (n <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    n_ = n;
    next_ = 0;
    busy_ = workers_.size();
    ++round_;
  }
  begin_.notify_all();
  take_all();
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
}

}  // namespace engine
