// Devices, contexts and errors of the stand-in for libcuda.
#include "tests/emulator/driver.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>

namespace emulator {
namespace {

// Both outlive whatever else the thread destroys when it ends: kernels may be unloaded then.
constexpr int kMostContexts = 16;
thread_local CUcontext contexts[kMostContexts];
thread_local int context_count = 0;

struct ErrorText {
  const char* name;
  std::string text;
};
using Errors = std::map<CUresult, ErrorText>;
const Errors kErrors = {
    {kSuccess, {"CUDA_SUCCESS", "no error"}},
    {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {kInvalidDevice, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {kInvalidImage, {"CUDA_ERROR_INVALID_IMAGE", "the emulator's NVRTC did not make it"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "no context is current"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kNotSupported, {"CUDA_ERROR_NOT_SUPPORTED", "not emulated"}},
    {kCaptureUnsupported, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while capturing"}},
    {kInvalidClusterSize, {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "too many blocks in a cluster"}},
    {int(FaultKind::address), {"CUDA_ERROR_ILLEGAL_ADDRESS", ""}},
    {int(FaultKind::misaligned), {"CUDA_ERROR_MISALIGNED_ADDRESS", ""}},
    {int(FaultKind::launch), {"CUDA_ERROR_LAUNCH_FAILED", ""}},
};

Errors& errors() {
  thread_local auto* own = new Errors(kErrors);
  return *own;
}

CUcontext the_context() {
  static int context;
  return reinterpret_cast<CUcontext>(&context);
}

// A device of sm_90a with few multiprocessors, so that grids are small; but as many as the largest
// cluster needs.
const std::map<int, int> attributes = {
    {kMultiprocessorCount, 16},
    {kMemoryClockKhz, 3'201'000},
    {kMemoryBusBits, 768},
    {kL2CacheBytes, 6 << 20},
    {kMaxThreadsPerMultiprocessor, 2048},
    {kComputeCapabilityMajor, 9},
    {kComputeCapabilityMinor, 0},
    {kMaxSharedMemoryPerMultiprocessor, 228 * 1024},
    {kMaxRegistersPerMultiprocessor, 65536},
    {kMaxSharedMemoryPerBlockOptin, kMostSharedBytes},
    {kMaxBlocksPerMultiprocessor, 32},
};

}  // namespace

CUresult not_supported(const std::string& what) {
  std::fprintf(stderr, "emulated device: %s is not emulated\n", what.c_str());
  return kNotSupported;
}

CUresult needs_context() { return context_count == 0 ? CUresult(kInvalidContext) : kSuccess; }

CUresult result_of(const Fault& fault) {
  if (fault.kind == 0) return kSuccess;
  std::fprintf(stderr, "emulated device: %s\n", fault.text.c_str());
  errors()[fault.kind].text = fault.text;
  return fault.kind;
}

}  // namespace emulator

using namespace emulator;

EMULATED CUresult cuInit(unsigned) {
  // Kernels are libraries that find here what they call.
  Dl_info here;
  dladdr(reinterpret_cast<void*>(&cuInit), &here);
  return dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr ? kSuccess
                                                                                 : kNotSupported;
}

EMULATED CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

EMULATED CUresult cuGetErrorName(CUresult result, const char** name) {
  const auto known = errors().find(result);
  if (known == errors().end()) return kInvalidValue;
  *name = known->second.name;
  return kSuccess;
}

EMULATED CUresult cuGetErrorString(CUresult result, const char** text) {
  const auto known = errors().find(result);
  if (known == errors().end()) return kInvalidValue;
  *text = known->second.text.c_str();
  return kSuccess;
}

EMULATED CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}

EMULATED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}

EMULATED CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, size_t(bytes), "emulated sm_90a");
  return kSuccess;
}

EMULATED CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  const auto known = attributes.find(attribute);
  if (known == attributes.end())
    return not_supported("device attribute " + std::to_string(attribute));
  *value = known->second;
  return kSuccess;
}

EMULATED CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = the_context();
  return kSuccess;
}

EMULATED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return kSuccess; }

EMULATED CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_count == 0 ? nullptr : contexts[context_count - 1];
  return kSuccess;
}

EMULATED CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (context != the_context() || context_count == kMostContexts) return kInvalidContext;
  contexts[context_count++] = context;
  return kSuccess;
}

EMULATED CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (context_count == 0) return kInvalidContext;
  *context = contexts[--context_count];
  return kSuccess;
}
