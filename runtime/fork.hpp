// What a child of fork inherits of this library: memory, but neither its threads nor CUDA.
#pragma once

#include <cstdint>

namespace splitkv {

// Grows by one in the child at every fork of this process and its ancestors after the first call.
// What was made at another generation belongs to a parent. Costs a load.
uint64_t fork_generation();

}  // namespace splitkv
