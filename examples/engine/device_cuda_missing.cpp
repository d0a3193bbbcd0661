// Stands in for device_cuda.cu in a build without CUDA.
#include <stdexcept>

#include "device.hpp"

namespace engine {

bool built_with_cuda() { return false; }

std::unique_ptr<Device> open_cuda(int ordinal, Dtype) {
  throw std::runtime_error("--device cuda:" + std::to_string(ordinal) +
                           " needs a build that found nvcc and cuBLAS; cpu would fit");
}

}  // namespace engine
