#include "tests/emulator/memory_faults.hpp"

#include <ucontext.h>

#include <cstdint>

#include "tests/emulator/machine.hpp"

namespace emulator {
namespace {

constexpr size_t kStackBytes = 64 * 1024;
alignas(64) char handler_stack[kStackBytes];
alignas(64) char report_stack[kStackBytes];  // the fiber's own may be what is full

int caught_signal;
const void* caught_address;

[[noreturn]] void report() {
  if (caught_signal == SIGFPE) fault(FaultKind::launch, "an integer divided by zero");
  fault(FaultKind::address, "an access %s", describe_address(caught_address).c_str());
}

// Goes on in report() instead of where it was.
void handle(int signal, siginfo_t* info, void* context) {
  if (current == nullptr) {  // not a kernel's
    std::signal(signal, SIG_DFL);
    return;
  }
  caught_signal = signal;
  caught_address = info->si_addr;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RSP] = reinterpret_cast<greg_t>(report_stack + kStackBytes - 8);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&report);
}

}  // namespace

MemoryFaultScope::MemoryFaultScope() {
  stack_t stack{};
  stack.ss_sp = handler_stack;
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &before_[i]);
}

MemoryFaultScope::~MemoryFaultScope() {
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

}  // namespace emulator
