// What the stand-in's cuTensorMapEncodeTiled writes into the 128 bytes of a tensor map.
#pragma once

#include <vector>

#include "tests/emulator/device_api.hpp"

namespace emulator {

struct TensorMapImage {
  static constexpr u64 kMagic = 0x70616d726f736e74;

  u64 magic;
  u64 data;
  u64 strides[4];  // bytes, of all dimensions but the innermost
  u32 ends[5];
  u32 box[5];
  u16 dimensions;
  u16 element_bytes;
  u32 swizzle_bytes;  // 0, 32, 64 or 128
};
static_assert(sizeof(TensorMapImage) <= 128);

// The box at these coordinates as it goes into shared memory, before the swizzle: elements outside
// the tensor are 0.
std::vector<u8> read_box(const TensorMapImage& map, const int* at);

// Where byte `address` of shared memory lies once swizzled.
inline u32 swizzled(u32 address, u32 swizzle_bytes) {
  if (swizzle_bytes == 0) return address;
  return address ^ (address >> 3 & (swizzle_bytes - 16));
}

}  // namespace emulator
