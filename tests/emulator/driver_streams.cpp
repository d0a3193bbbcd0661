// Streams, events and graphs of the stand-in for libcuda.
#include <chrono>
#include <memory>

#include "tests/emulator/driver.hpp"

using namespace emulator;

using Work = std::vector<std::function<CUresult()>>;

struct splitkv::cuda::CUgraph_st {
  Work work;
};
struct splitkv::cuda::CUgraphExec_st {
  Work work;
};
struct splitkv::cuda::CUstream_st {
  std::unique_ptr<CUgraph_st> captured;  // while a capture is under way
};
struct splitkv::cuda::CUevent_st {
  std::chrono::steady_clock::time_point at;
};

namespace emulator {

CUresult submit(CUstream stream, std::function<CUresult()> work) {
  if (const CUresult none = needs_context()) return none;
  if (stream == nullptr || stream->captured == nullptr) return work();
  stream->captured->work.push_back(std::move(work));
  return kSuccess;
}

}  // namespace emulator

EMULATED CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = new CUstream_st;
  return kSuccess;
}

EMULATED CUresult cuStreamSynchronize(CUstream stream) {
  const bool captures = stream != nullptr && stream->captured != nullptr;
  return captures ? CUresult(kCaptureUnsupported) : kSuccess;
}

EMULATED CUresult cuStreamDestroy_v2(CUstream stream) {
  delete stream;
  return kSuccess;
}

EMULATED CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = new CUevent_st;
  return kSuccess;
}

EMULATED CUresult cuEventRecord(CUevent event, CUstream) {
  event->at = std::chrono::steady_clock::now();
  return kSuccess;
}

EMULATED CUresult cuEventSynchronize(CUevent) { return kSuccess; }

EMULATED CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return kSuccess;
}

EMULATED CUresult cuEventDestroy_v2(CUevent event) {
  delete event;
  return kSuccess;
}

EMULATED CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  if (stream == nullptr || stream->captured != nullptr) return kCaptureUnsupported;
  stream->captured = std::make_unique<CUgraph_st>();
  return kSuccess;
}

EMULATED CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (stream == nullptr || stream->captured == nullptr) return kInvalidValue;
  *graph = stream->captured.release();
  return kSuccess;
}

EMULATED CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, u64) {
  *executable = new CUgraphExec_st{graph->work};
  return kSuccess;
}

EMULATED CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  for (const auto& work : executable->work) {
    if (const CUresult failed = submit(stream, work)) return failed;
  }
  return kSuccess;
}

EMULATED CUresult cuGraphExecDestroy(CUgraphExec executable) {
  delete executable;
  return kSuccess;
}

EMULATED CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return kSuccess;
}
