// The few types and constants of the CUDA driver API and of NVRTC that SplitKV uses, declared here
// so that building needs no CUDA. Values and layouts are ABI: they never change between releases.
#pragma once

#include <cstddef>
#include <cstdint>

namespace splitkv::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kInvalidDevice = 101;

// Arguments of cuDeviceGetAttribute.
enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kMemoryClockKhz = 36,
  kMemoryBusBits = 37,
  kL2CacheBytes = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxRegistersPerMultiprocessor = 82,
  kMaxSharedMemoryPerBlockOptin = 97,
  kMaxBlocksPerMultiprocessor = 106,
};

// Arguments of cuFuncGetAttribute and cuFuncSetAttribute.
enum FunctionAttribute : int {
  kSharedSizeBytes = 1,  // static shared memory
  kLocalSizeBytes = 3,   // spills and stack, a thread
  kNumRegisters = 4,
  kMaxDynamicSharedSizeBytes = 8,
};

// Dynamic shared memory that a block may have without asking, static included.
inline constexpr int64_t kDefaultSharedBytes = 48 * 1024;

// Flags of cuStreamCreate, cuEventCreate and cuStreamBeginCapture.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr int kCaptureModeThreadLocal = 1;

// Flags of cuMemHostAlloc.
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocMapped = 2;

using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;

inline constexpr nvrtcResult kNvrtcSuccess = 0;
inline constexpr nvrtcResult kNvrtcOutOfMemory = 1;

}  // namespace splitkv::cuda
