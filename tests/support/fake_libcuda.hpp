// A stand-in for libcuda that records what is called. It has no GPU: memory is the host's, modules
// are taken unread, launches run nothing. Tests open it as SPLITKV_LIBCUDA and link it to read the
// record. Calls of cuGetErrorName and cuGetErrorString are not recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fake_cuda {

struct Attribute {
  int id = 0;
  int value = 0;

  bool operator==(const Attribute&) const = default;
};

struct Call {
  std::string name;   // "cuLaunchKernel", as the driver exports it
  std::string entry;  // cuModuleGetFunction, cuLaunchKernel*, cuFunc*: the kernel's name
  unsigned grid[3] = {};
  unsigned block[3] = {};
  unsigned smem_bytes = 0;
  void* stream = nullptr;
  void* context = nullptr;            // that was current, or that the call names
  int64_t values[2] = {};             // attribute and value; ordinal; bytes
  std::vector<uint8_t> argument;      // cuLaunchKernel*: the bytes of its one parameter
  std::vector<Attribute> attributes;  // cuLaunchKernelEx
};

// Everything back to the start: two devices of capability 9.0, no failures, an empty record, no
// current context on this thread. Contexts and modules stay valid.
__attribute__((visibility("default"))) void reset();
__attribute__((visibility("default"))) void set_device_count(int count);
__attribute__((visibility("default"))) void set_capability(int major, int minor);
__attribute__((visibility("default"))) void set_static_smem(int bytes);  // of every kernel
// What cuOccupancyMaxActiveClusters says of every kernel; at first 8.
__attribute__((visibility("default"))) void set_active_clusters(int count);

// The n-th call (from 1, counted from now) of the exported name returns `result` and does nothing.
__attribute__((visibility("default"))) void fail(const std::string& name, int nth, int result);

__attribute__((visibility("default"))) std::vector<Call> calls();
__attribute__((visibility("default"))) void clear_calls();
// Names alone, in order.
__attribute__((visibility("default"))) std::vector<std::string> call_names();

// The primary context of a device, and how many retains of it are open; modules loaded and not yet
// unloaded.
__attribute__((visibility("default"))) void* primary_context(int ordinal);
__attribute__((visibility("default"))) int retains(int ordinal);
__attribute__((visibility("default"))) int live_modules();

// Notes a call; what the caller must return instead of working, or 0. For the stand-in's own files.
__attribute__((visibility("default"))) int record(Call call);

// This thread's current context, unrecorded.
__attribute__((visibility("default"))) void* current_context();
__attribute__((visibility("default"))) void make_current(void* context);

}  // namespace fake_cuda
