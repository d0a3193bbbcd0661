// Stacks, and the switch between them. x86-64.
#pragma once

#include <cstddef>

namespace emulator {

// Saves this stack's place in *from and goes on where `to` was saved.
extern "C" void emulator_switch(void** from, void* to);

// A stack on which `main`, which never returns, is about to start.
void* start_of_fiber(size_t number, void (*main)());

// Whether an address is in the guard of a fiber's stack.
bool is_stack_guard(const void* address);

}  // namespace emulator
