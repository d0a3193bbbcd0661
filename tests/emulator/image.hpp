// What takes a cubin's place: this, then a shared library of as many bytes.
#pragma once

#include <cstdint>

namespace emulator {

struct ImageHead {
  static constexpr uint64_t kMagic = 0x64657461'6c756d65;

  uint64_t magic = kMagic;
  uint64_t bytes = 0;
};

}  // namespace emulator
