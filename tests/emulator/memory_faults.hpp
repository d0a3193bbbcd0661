// Accesses of kernels that the host's memory protection stops become faults of the launch.
#pragma once

#include <csignal>

namespace emulator {

// While it lives, signals of bad accesses end the fiber that runs instead of the process.
class MemoryFaultScope {
 public:
  MemoryFaultScope();
  MemoryFaultScope(const MemoryFaultScope&) = delete;
  MemoryFaultScope& operator=(const MemoryFaultScope&) = delete;
  ~MemoryFaultScope();

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction before_[3];
  stack_t stack_before_;
};

}  // namespace emulator
