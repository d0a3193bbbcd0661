// The process's threads: the model's arithmetic on the CPU and SplitKV's CPU target share them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace engine {

class ThreadPool {
 public:
  // threads: together with the caller's; 0: as many as the machine has.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // body(i) for every i in [0, n), in any order, and returns when all are done. One call at a time.
  void for_each(int64_t n, const std::function<void(int64_t)>& body);

  int threads() const { return int(workers_.size()) + 1; }

 private:
  void work();
  void take_all();

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t n_ = 0;
  std::atomic<int64_t> next_ = 0;
  uint64_t round_ = 0;
  size_t busy_ = 0;
  bool leave_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace engine
