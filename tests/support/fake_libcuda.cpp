#include "tests/support/fake_libcuda.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

namespace fake_cuda {
namespace {

constexpr int kDevices = 8;
// sizeof of LaunchArgs, MergeArgs and AppendArgs.
constexpr int kLaunchArgsBytes = 896;
constexpr int kMergeArgsBytes = 128;
constexpr int kAppendArgsBytes = 336;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kInvalidContext = 201;

struct Module;
struct Function {
  std::string entry;
};
struct Module {
  std::list<Function> functions;
};
struct Context {
  int retains = 0;
};
struct PlannedFailure {
  int nth = 0;
  int result = 0;
};

struct State {
  std::mutex mutex;
  int device_count = 2;
  int major = 9, minor = 0;
  int static_smem = 0;
  int active_clusters = 8;
  std::vector<Call> calls;
  std::map<std::string, PlannedFailure> failures;
  Context contexts[kDevices];
  std::map<void*, Module> modules;
};

State& state() {
  static State instance;
  return instance;
}

thread_local std::vector<void*> context_stack;

void* current() { return context_stack.empty() ? nullptr : context_stack.back(); }

int needs_context() { return current() == nullptr ? kInvalidContext : 0; }

std::string entry_of(void* function) { return static_cast<Function*>(function)->entry; }

int record_launch(Call call, void** parameters) {
  const auto* argument = static_cast<const uint8_t*>(parameters[0]);
  const auto is = [&](const char* kind) { return call.entry.find(kind) != std::string::npos; };
  const int bytes = is("merge")    ? kMergeArgsBytes
                    : is("append") ? kAppendArgsBytes
                                   : kLaunchArgsBytes;
  call.argument.assign(argument, argument + bytes);
  if (const int failed = record(std::move(call))) return failed;
  return needs_context();
}

}  // namespace

int record(Call call) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (call.context == nullptr) call.context = current();
  const std::string name = call.name;
  s.calls.push_back(std::move(call));
  const auto planned = s.failures.find(name);
  if (planned == s.failures.end() || --planned->second.nth > 0) return 0;
  const int result = planned->second.result;
  s.failures.erase(planned);
  return result;
}

void reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.device_count = 2;
  s.major = 9;
  s.minor = 0;
  s.static_smem = 0;
  s.active_clusters = 8;
  s.calls.clear();
  s.failures.clear();
  context_stack.clear();
}

void set_device_count(int count) { state().device_count = std::min(count, kDevices); }

void set_capability(int major, int minor) {
  state().major = major;
  state().minor = minor;
}

void set_static_smem(int bytes) { state().static_smem = bytes; }

void set_active_clusters(int count) { state().active_clusters = count; }

void fail(const std::string& name, int nth, int result) {
  const std::lock_guard lock(state().mutex);
  state().failures[name] = {nth, result};
}

std::vector<Call> calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

void clear_calls() {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
}

std::vector<std::string> call_names() {
  std::vector<std::string> names;
  for (const Call& call : calls()) names.push_back(call.name);
  return names;
}

void* primary_context(int ordinal) { return &state().contexts[ordinal]; }

int retains(int ordinal) {
  const std::lock_guard lock(state().mutex);
  return state().contexts[ordinal].retains;
}

int live_modules() {
  const std::lock_guard lock(state().mutex);
  return int(state().modules.size());
}

void* current_context() { return current(); }

void make_current(void* context) {
  context_stack.clear();
  if (context != nullptr) context_stack.push_back(context);
}

}  // namespace fake_cuda

// ---- the driver's symbols
// ------------------------------------------------------------------------

using fake_cuda::Call;
using fake_cuda::current;
using fake_cuda::entry_of;
using fake_cuda::needs_context;
using fake_cuda::record;
using fake_cuda::state;

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int cuInit(unsigned) { return record({.name = "cuInit"}); }

FAKE_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return record({.name = "cuDriverGetVersion"});
}

FAKE_EXPORT int cuGetErrorName(int result, const char** text) {
  static const std::map<int, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {100, "CUDA_ERROR_NO_DEVICE"},
                                                   {200, "CUDA_ERROR_INVALID_IMAGE"},
                                                   {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                   {500, "CUDA_ERROR_NOT_FOUND"},
                                                   {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                                                   {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  const auto found = names.find(result);
  if (found == names.end()) return fake_cuda::kInvalidValue;
  *text = found->second;
  return 0;
}

FAKE_EXPORT int cuGetErrorString(int result, const char** text) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != 0) return fake_cuda::kInvalidValue;
  *text = "said by the stand-in";
  return 0;
}

FAKE_EXPORT int cuDeviceGetCount(int* count) {
  *count = state().device_count;
  return record({.name = "cuDeviceGetCount"});
}

FAKE_EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (const int failed = record({.name = "cuDeviceGet", .values = {ordinal}})) return failed;
  if (ordinal < 0 || ordinal >= state().device_count) return fake_cuda::kInvalidDevice;
  *device = ordinal;
  return 0;
}

FAKE_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  if (const int failed = record({.name = "cuDeviceGetName", .values = {device}})) return failed;
  std::strncpy(name, "Stand-in", length);
  return 0;
}

// Figures of an H200.
FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const int failed = record({.name = "cuDeviceGetAttribute", .values = {device, attribute}})) {
    return failed;
  }
  const std::map<int, int> values = {{16, 132},           {36, 3201000}, {37, 6144},
                                     {38, 62914560},      {39, 2048},    {75, state().major},
                                     {76, state().minor}, {81, 233472},  {82, 65536},
                                     {97, 232448},        {106, 32}};
  const auto found = values.find(attribute);
  if (found == values.end()) return fake_cuda::kInvalidValue;
  *value = found->second;
  return 0;
}

FAKE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int failed = record({.name = "cuDevicePrimaryCtxRetain", .values = {device}})) {
    return failed;
  }
  const std::lock_guard lock(state().mutex);
  ++state().contexts[device].retains;
  *context = &state().contexts[device];
  return 0;
}

FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  if (const int failed = record({.name = "cuDevicePrimaryCtxRelease_v2", .values = {device}})) {
    return failed;
  }
  const std::lock_guard lock(state().mutex);
  --state().contexts[device].retains;
  return 0;
}

FAKE_EXPORT int cuCtxGetCurrent(void** context) {
  *context = current();
  return record({.name = "cuCtxGetCurrent"});
}

FAKE_EXPORT int cuCtxPushCurrent_v2(void* context) {
  if (const int failed = record({.name = "cuCtxPushCurrent_v2", .context = context})) return failed;
  fake_cuda::context_stack.push_back(context);
  return 0;
}

FAKE_EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (const int failed = record({.name = "cuCtxPopCurrent_v2"})) return failed;
  if (const int none = needs_context()) return none;
  *context = current();
  fake_cuda::context_stack.pop_back();
  return 0;
}

FAKE_EXPORT int cuModuleLoadData(void** module, const void* image) {
  if (const int failed = record({.name = "cuModuleLoadData"})) return failed;
  if (const int none = needs_context()) return none;
  // A cubin is an ELF image.
  if (std::memcmp(image, "\177ELF", 4) != 0) return 200;
  const std::lock_guard lock(state().mutex);
  void* handle = std::malloc(1);
  state().modules[handle];
  *module = handle;
  return 0;
}

FAKE_EXPORT int cuModuleUnload(void* module) {
  if (const int failed = record({.name = "cuModuleUnload"})) return failed;
  if (const int none = needs_context()) return none;
  const std::lock_guard lock(state().mutex);
  if (state().modules.erase(module) == 0) return fake_cuda::kInvalidValue;
  std::free(module);
  return 0;
}

FAKE_EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int failed = record({.name = "cuModuleGetFunction", .entry = name})) return failed;
  const std::lock_guard lock(state().mutex);
  auto& functions = state().modules.at(module).functions;
  functions.push_back({name});
  *function = &functions.back();
  return 0;
}

FAKE_EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  if (const int failed = record(
          {.name = "cuFuncGetAttribute", .entry = entry_of(function), .values = {attribute}})) {
    return failed;
  }
  const std::map<int, int> values = {{0, 128}, {1, state().static_smem}, {3, 16}, {4, 42}};
  const auto found = values.find(attribute);
  if (found == values.end()) return fake_cuda::kInvalidValue;
  *value = found->second;
  return 0;
}

FAKE_EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  return record(
      {.name = "cuFuncSetAttribute", .entry = entry_of(function), .values = {attribute, value}});
}

FAKE_EXPORT int cuFuncLoad(void* function) {
  return record({.name = "cuFuncLoad", .entry = entry_of(function)});
}

FAKE_EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned smem_bytes, void* stream, void** parameters, void**) {
  Call call{.name = "cuLaunchKernel",
            .entry = entry_of(function),
            .grid = {grid_x, grid_y, grid_z},
            .block = {block_x, block_y, block_z},
            .smem_bytes = smem_bytes,
            .stream = stream};
  return fake_cuda::record_launch(std::move(call), parameters);
}

// The driver of the build with FAKE_WITHOUT_LAUNCH_EX is one from before CUDA 11.8.
#ifndef FAKE_WITHOUT_LAUNCH_EX
// Of CUlaunchAttribute, the part that its number is in.
struct FakeAttribute {
  int id;
  int padding;
  int number;
  int unused[15];
};

// CUlaunchConfig.
struct FakeConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned smem_bytes;
  void* stream;
  const FakeAttribute* attributes;
  unsigned attribute_count;
};

FAKE_EXPORT int cuLaunchKernelEx(const FakeConfig* config, void* function, void** parameters,
                                 void**) {
  Call call{.name = "cuLaunchKernelEx",
            .entry = entry_of(function),
            .grid = {config->grid[0], config->grid[1], config->grid[2]},
            .block = {config->block[0], config->block[1], config->block[2]},
            .smem_bytes = config->smem_bytes,
            .stream = config->stream};
  for (unsigned i = 0; i < config->attribute_count; ++i)
    call.attributes.push_back({config->attributes[i].id, config->attributes[i].number});
  return fake_cuda::record_launch(std::move(call), parameters);
}

FAKE_EXPORT int cuOccupancyMaxActiveClusters(int* clusters, void* function,
                                             const FakeConfig* config) {
  Call call{.name = "cuOccupancyMaxActiveClusters",
            .entry = entry_of(function),
            .grid = {config->grid[0], config->grid[1], config->grid[2]},
            .block = {config->block[0], config->block[1], config->block[2]},
            .smem_bytes = config->smem_bytes};
  if (const int failed = record(std::move(call))) return failed;
  *clusters = state().active_clusters;
  return needs_context();
}
#endif

FAKE_EXPORT int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  if (const int failed = record({.name = "cuMemAlloc_v2", .values = {int64_t(bytes)}})) {
    return failed;
  }
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = reinterpret_cast<unsigned long long>(data);
  return data != nullptr ? 0 : fake_cuda::kOutOfMemory;
}

FAKE_EXPORT int cuMemFree_v2(unsigned long long pointer) {
  if (const int failed = record({.name = "cuMemFree_v2"})) return failed;
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}

FAKE_EXPORT int cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  if (const int failed = record({.name = "cuMemHostAlloc", .values = {int64_t(bytes), flags}})) {
    return failed;
  }
  if (const int none = needs_context()) return none;
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *pointer != nullptr ? 0 : fake_cuda::kOutOfMemory;
}

FAKE_EXPORT int cuMemHostGetDevicePointer_v2(unsigned long long* device, void* host, unsigned) {
  *device = reinterpret_cast<unsigned long long>(host);
  return record({.name = "cuMemHostGetDevicePointer_v2"});
}

FAKE_EXPORT int cuMemFreeHost(void* pointer) {
  if (const int failed = record({.name = "cuMemFreeHost"})) return failed;
  if (const int none = needs_context()) return none;
  std::free(pointer);
  return 0;
}

FAKE_EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t(1) << 30;
  return record({.name = "cuMemGetInfo_v2"});
}

FAKE_EXPORT int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  if (const int failed = record({.name = "cuMemcpyHtoD_v2", .values = {int64_t(bytes)}})) {
    return failed;
  }
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}

FAKE_EXPORT int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  if (const int failed = record({.name = "cuMemcpyDtoH_v2", .values = {int64_t(bytes)}})) {
    return failed;
  }
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}

FAKE_EXPORT int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t bytes) {
  if (const int failed = record({.name = "cuMemsetD8_v2", .values = {int64_t(bytes)}})) {
    return failed;
  }
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}

FAKE_EXPORT int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes,
                                void* stream) {
  if (const int failed =
          record({.name = "cuMemsetD8Async", .stream = stream, .values = {int64_t(bytes)}})) {
    return failed;
  }
  if (const int none = needs_context()) return none;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
