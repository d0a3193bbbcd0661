// DeviceMemory of a CUDA device, through the driver that the runtime opened.
#pragma once

#include <memory>

#include "tools/splitkv/device_memory.hpp"

namespace splitkv::tool {

// Retains the device's primary context and makes it current on this thread while it lives.
Result<std::unique_ptr<DeviceMemory>> open_cuda_memory(int ordinal);

}  // namespace splitkv::tool
