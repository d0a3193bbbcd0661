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
inline constexpr CUresult kInvalidClusterSize = 912;

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
  kMaxThreadsPerBlock = 0,  // not above the launch bounds
  kSharedSizeBytes = 1,     // static shared memory
  kLocalSizeBytes = 3,      // spills and stack, a thread
  kNumRegisters = 4,
  kMaxDynamicSharedSizeBytes = 8,
  kNonPortableClusterSizeAllowed = 14,
};

// Dynamic shared memory that a block may have without asking, static included.
inline constexpr int64_t kDefaultSharedBytes = 48 * 1024;

// Flags of cuStreamCreate, cuEventCreate and cuStreamBeginCapture.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr int kCaptureModeThreadLocal = 1;

// Blocks of a cluster that every device with clusters takes.
inline constexpr int kPortableClusterSize = 8;

// CUlaunchAttribute: an attribute of a launch and its value, a union of 64 bytes.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int32_t number;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);

inline constexpr int kProgrammaticStreamSerialization = 6;  // id; value 1 allows it

// Arguments of cuTensorMapEncodeTiled: the type of elements, and what is done with them.
inline constexpr int kTensorUint8 = 0;
inline constexpr int kTensorUint16 = 1;
inline constexpr int kInterleaveNone = 0;
inline constexpr int kSwizzle64Bytes = 2;
inline constexpr int kSwizzle128Bytes = 3;
inline constexpr int kPromotionNone = 0;
inline constexpr int kFillNone = 0;

// CUlaunchConfig, the argument of cuLaunchKernelEx.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned smem_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// Flags of cuMemHostAlloc.
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocMapped = 2;

using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;

inline constexpr nvrtcResult kNvrtcSuccess = 0;
inline constexpr nvrtcResult kNvrtcOutOfMemory = 1;

}  // namespace splitkv::cuda
