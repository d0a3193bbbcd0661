// Streams, events and graphs of the stand-in: handles and a record, no work.
#include <cstdlib>

#include "tests/support/fake_libcuda.hpp"

using fake_cuda::record;

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kOutOfMemory = 2;

// Makes a handle for a call that creates something.
int create(const char* name, void** handle) {
  if (const int failed = record({.name = name})) return failed;
  *handle = std::malloc(1);
  return *handle != nullptr ? 0 : kOutOfMemory;
}

int destroy(const char* name, void* handle) {
  if (const int failed = record({.name = name})) return failed;
  std::free(handle);
  return 0;
}

}  // namespace

FAKE_EXPORT int cuStreamCreate(void** stream, unsigned) { return create("cuStreamCreate", stream); }

FAKE_EXPORT int cuStreamSynchronize(void* stream) {
  return record({.name = "cuStreamSynchronize", .stream = stream});
}

FAKE_EXPORT int cuStreamDestroy_v2(void* stream) { return destroy("cuStreamDestroy_v2", stream); }

FAKE_EXPORT int cuEventCreate(void** event, unsigned) { return create("cuEventCreate", event); }

FAKE_EXPORT int cuEventRecord(void*, void* stream) {
  return record({.name = "cuEventRecord", .stream = stream});
}

FAKE_EXPORT int cuEventSynchronize(void*) { return record({.name = "cuEventSynchronize"}); }

FAKE_EXPORT int cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return record({.name = "cuEventElapsedTime"});
}

FAKE_EXPORT int cuEventDestroy_v2(void* event) { return destroy("cuEventDestroy_v2", event); }

FAKE_EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  return record({.name = "cuStreamBeginCapture_v2", .stream = stream});
}

FAKE_EXPORT int cuStreamEndCapture(void*, void** graph) {
  return create("cuStreamEndCapture", graph);
}

FAKE_EXPORT int cuGraphInstantiateWithFlags(void** executable, void*, unsigned long long) {
  return create("cuGraphInstantiateWithFlags", executable);
}

FAKE_EXPORT int cuGraphLaunch(void*, void* stream) {
  return record({.name = "cuGraphLaunch", .stream = stream});
}

FAKE_EXPORT int cuGraphExecDestroy(void* executable) {
  return destroy("cuGraphExecDestroy", executable);
}

FAKE_EXPORT int cuGraphDestroy(void* graph) { return destroy("cuGraphDestroy", graph); }
