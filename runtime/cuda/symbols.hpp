// libcuda and libnvrtc, opened with dlopen on first use: the same binary starts where neither
// exists. symbols.cpp holds the one list that binds every pointer below to its exported name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/result.hpp"
#include "runtime/cuda/driver_types.hpp"

namespace splitkv::cuda {

// Pointers are named as the API calls them in its manual; symbols.cpp says which version is bound.
struct Driver {
  std::string path;  // the file that was opened

  CUresult (*cuInit)(unsigned) = nullptr;
  CUresult (*cuDriverGetVersion)(int*) = nullptr;
  CUresult (*cuGetErrorName)(CUresult, const char**) = nullptr;
  CUresult (*cuGetErrorString)(CUresult, const char**) = nullptr;

  CUresult (*cuDeviceGetCount)(int*) = nullptr;
  CUresult (*cuDeviceGet)(CUdevice*, int) = nullptr;
  CUresult (*cuDeviceGetName)(char*, int, CUdevice) = nullptr;
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice) = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*cuDevicePrimaryCtxRelease)(CUdevice) = nullptr;
  CUresult (*cuCtxGetCurrent)(CUcontext*) = nullptr;
  CUresult (*cuCtxPushCurrent)(CUcontext) = nullptr;
  CUresult (*cuCtxPopCurrent)(CUcontext*) = nullptr;

  CUresult (*cuModuleLoadData)(CUmodule*, const void*) = nullptr;
  CUresult (*cuModuleUnload)(CUmodule) = nullptr;
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*cuFuncGetAttribute)(int*, int, CUfunction) = nullptr;
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int) = nullptr;
  CUresult (*cuFuncLoad)(CUfunction) = nullptr;  // null before CUDA 12.4
  CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**) = nullptr;
  // null before CUDA 11.8
  CUresult (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void**, void**) = nullptr;
  CUresult (*cuOccupancyMaxActiveClusters)(int*, CUfunction, const LaunchConfig*) = nullptr;

  // null before CUDA 12.0. The map is 128 bytes at a multiple of 64.
  CUresult (*cuTensorMapEncodeTiled)(void* map, int type, uint32_t rank, void* data,
                                     const uint64_t* ends, const uint64_t* strides,
                                     const uint32_t* box, const uint32_t* every, int interleave,
                                     int swizzle, int promotion, int fill) = nullptr;

  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t) = nullptr;
  CUresult (*cuMemFree)(CUdeviceptr) = nullptr;
  CUresult (*cuMemHostAlloc)(void**, size_t, unsigned) = nullptr;
  CUresult (*cuMemHostGetDevicePointer)(CUdeviceptr*, void*, unsigned) = nullptr;
  CUresult (*cuMemFreeHost)(void*) = nullptr;
  CUresult (*cuMemGetInfo)(size_t*, size_t*) = nullptr;
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void*, size_t) = nullptr;
  CUresult (*cuMemcpyDtoH)(void*, CUdeviceptr, size_t) = nullptr;
  CUresult (*cuMemsetD8)(CUdeviceptr, unsigned char, size_t) = nullptr;
  CUresult (*cuMemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream) = nullptr;

  CUresult (*cuStreamCreate)(CUstream*, unsigned) = nullptr;
  CUresult (*cuStreamSynchronize)(CUstream) = nullptr;
  CUresult (*cuStreamDestroy)(CUstream) = nullptr;
  CUresult (*cuEventCreate)(CUevent*, unsigned) = nullptr;
  CUresult (*cuEventRecord)(CUevent, CUstream) = nullptr;
  CUresult (*cuEventSynchronize)(CUevent) = nullptr;
  CUresult (*cuEventElapsedTime)(float*, CUevent, CUevent) = nullptr;
  CUresult (*cuEventDestroy)(CUevent) = nullptr;

  CUresult (*cuStreamBeginCapture)(CUstream, int) = nullptr;
  CUresult (*cuStreamEndCapture)(CUstream, CUgraph*) = nullptr;
  CUresult (*cuGraphInstantiateWithFlags)(CUgraphExec*, CUgraph, unsigned long long) = nullptr;
  CUresult (*cuGraphLaunch)(CUgraphExec, CUstream) = nullptr;
  CUresult (*cuGraphExecDestroy)(CUgraphExec) = nullptr;
  CUresult (*cuGraphDestroy)(CUgraph) = nullptr;
};

struct Nvrtc {
  std::string path;  // the file that was opened
  int major = 0;
  int minor = 0;
  std::string build;  // the linker's ID of the file, hexadecimal; empty where it has none

  const char* (*nvrtcGetErrorString)(nvrtcResult) = nullptr;
  nvrtcResult (*nvrtcVersion)(int*, int*) = nullptr;
  nvrtcResult (*nvrtcGetNumSupportedArchs)(int*) = nullptr;  // null before CUDA 11.2
  nvrtcResult (*nvrtcGetSupportedArchs)(int*) = nullptr;     // null before CUDA 11.2
  nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram*, const char*, const char*, int,
                                    const char* const*, const char* const*) = nullptr;
  nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram*) = nullptr;
  nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram, int, const char* const*) = nullptr;
  nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram, size_t*) = nullptr;
  nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram, size_t*) = nullptr;
  nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram, char*) = nullptr;
};

// The open library; valid until the process ends. Thread-safe. The first success is kept; a failure
// is not, so that a later call looks again. library_missing names every library tried and why each
// did not serve; device_error when cuInit itself fails.
Result<const Driver*> driver();
Result<const Nvrtc*> nvrtc();

// Which NVRTC nvrtc() has opened, or will: from its file, which takes far less than to open it.
// Nothing where only opening tells: the file has no build ID, its name no version, or there is no
// file. Where it is replaced before it is opened, the nvrtc() that finds that out is an error.
struct NvrtcIdentity {
  std::string path;
  int major = 0;
  std::string build;
};
std::optional<NvrtcIdentity> nvrtc_identity();

// device_error in a child of the process that opened libcuda: CUDA does not outlive a fork.
Outcome check_not_forked();

// "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (device kernel image is invalid)", as device_error,
// or as out_of_memory where the driver says so.
Error driver_error(const Driver& driver, const char* call, CUresult result);

}  // namespace splitkv::cuda
