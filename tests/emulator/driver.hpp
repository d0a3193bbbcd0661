// What the files of the stand-in for libcuda share. It has one device, and every call is done when
// it returns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/cuda/driver_types.hpp"
#include "tests/emulator/machine.hpp"

#define EMULATED extern "C" __attribute__((visibility("default")))

namespace emulator {

using namespace splitkv::cuda;

enum Result : CUresult {
  kInvalidValue = 1,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};

inline constexpr int kMostSharedBytes = 227 * 1024;

// Says on stderr what this device lacks.
CUresult not_supported(const std::string& what);

// kSuccess, or that no context is current on this thread.
CUresult needs_context();

// The result of a launch; a fault's report is what cuGetErrorString says of its code from now on.
CUresult result_of(const Fault& fault);

// Work on a stream: done now, or kept by the capture that is under way.
CUresult submit(CUstream stream, std::function<CUresult()> work);

}  // namespace emulator

struct splitkv::cuda::CUfunc_st {
  const emulator::Entry* entry = nullptr;
  std::string name;
  int dynamic_bytes = splitkv::cuda::kDefaultSharedBytes;  // that a launch may ask for
  bool large_clusters = false;
  emulator::u32 launches = 0;
};
