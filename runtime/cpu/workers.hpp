// A pool of threads for the blocks of a launch.
#pragma once

#include <atomic>
#include <cstdint>

namespace splitkv {

class Workers {
 public:
  // `threads` in all, the caller of parallel_for being one of them: threads - 1 are started.
  explicit Workers(int threads);
  ~Workers();  // no parallel_for may be running
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Runs body(context, i) for every i of [0, n), once each, in any order, and returns when all are
  // done. The caller works too. Several threads may call at once, and body may call again: whoever
  // waits for a job first works off all that is left of it.
  void parallel_for(int64_t n, void (*body)(void* context, int64_t i), void* context);

  int threads() const;

 private:
  struct State;
  State& state() const;

  const int wanted_;
  // A child of fork has no threads of its parent's: its first call makes a state of its own, and
  // leaves the parent's behind, which nobody can stop or join there.
  mutable std::atomic<State*> state_;
};

}  // namespace splitkv
