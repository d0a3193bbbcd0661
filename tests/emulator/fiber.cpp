#include "tests/emulator/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <vector>

// Callee-saved registers, then the place to return to.
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, . - emulator_switch
)");

namespace emulator {
namespace {

constexpr size_t kGuardBytes = 64 * 1024;
constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kSavedRegisters = 6;

std::vector<char*>& stacks() {
  static std::vector<char*> all;  // each begins with its guard
  return all;
}

char* make_stack() {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  return static_cast<char*>(memory);
}

}  // namespace

void* start_of_fiber(size_t number, void (*main)()) {
  while (stacks().size() <= number) stacks().push_back(make_stack());
  // Tops at different places of a page, or all would share a few lines of the caches.
  const size_t stagger = number * 832 % 16384;
  auto* top = reinterpret_cast<uintptr_t*>(stacks()[number] + kGuardBytes + kStackBytes - stagger);
  *--top = 0;  // where main would return to
  *--top = reinterpret_cast<uintptr_t>(main);
  for (size_t i = 0; i < kSavedRegisters; ++i) *--top = 0;
  return top;
}

bool is_stack_guard(const void* address) {
  const auto* at = static_cast<const char*>(address);
  for (const char* stack : stacks()) {
    if (at >= stack && at < stack + kGuardBytes) return true;
  }
  return false;
}

}  // namespace emulator
