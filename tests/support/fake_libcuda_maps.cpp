// Tensor maps of the stand-in, which a driver from before CUDA 12.0 has not.
#include <algorithm>
#include <cstdint>

#include "tests/support/fake_libcuda.hpp"

using fake_cuda::record;

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// The map becomes the words a real one is made of: the address, rank and type, and what follows.
FAKE_EXPORT int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* data,
                                       const uint64_t* ends, const uint64_t* strides,
                                       const uint32_t* box, const uint32_t*, int, int swizzle, int,
                                       int) {
  if (const int failed =
          record({.name = "cuTensorMapEncodeTiled", .values = {int64_t(type), int64_t(swizzle)}})) {
    return failed;
  }
  if (rank != 5) return 1;  // CUDA_ERROR_INVALID_VALUE
  auto* words = static_cast<uint64_t*>(map);
  words[0] = reinterpret_cast<uint64_t>(data);
  std::copy_n(ends, 5, words + 1);
  std::copy_n(strides, 4, words + 6);
  std::copy_n(box, 5, words + 10);
  return 0;
}
