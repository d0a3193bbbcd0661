// Small kernels on the emulated device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace splitkv::testing_support {

struct SmallKernel {
  std::string body;  // sees `float* out`, `const float* in` and `float shared[]`
  unsigned threads = 32;
  unsigned shared_floats = 64;
  std::vector<float> in = std::vector<float>(64, 1.0f);
};

struct Ran {
  std::string refusal;  // of the compiler or of the launch
  std::vector<float> out;
};

// One block of it; `times` launches, of which the last is told. `out` has 64 floats.
Ran run(const SmallKernel& kernel, int times = 1);

}  // namespace splitkv::testing_support
