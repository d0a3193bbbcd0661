// Lanes of a warp that do something together.
#pragma once

#include "tests/emulator/machine.hpp"

namespace emulator {

// Waits for the lanes of `mask`, all of which call this with the same name and mask. The last to
// come runs `act`, which finds what each of them brings.
void meet(const char* what, u32 mask, void* brings, void (*act)(Warp&, u32 mask));

template <class T>
T& brought_by(Warp& warp, u32 lane) {
  return *static_cast<T*>(warp.lanes[lane].brings);
}

// The thread ends: a cluster's barrier no longer waits for it.
void leave_cluster_barrier();

}  // namespace emulator
