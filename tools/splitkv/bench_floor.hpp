// The floor: the fastest plain read of as many bytes as a run must read.
#pragma once

#include <string>
#include <vector>

#include "tools/splitkv/bench_gpu.hpp"

namespace splitkv::tool {

// Where the copies lie that launches read in turn: copy i begins at base + i * stride.
struct FloorRange {
  const void* base = nullptr;
  int64_t stride = 0;
  int64_t copies = 1;
  int64_t bytes = 0;  // that a launch reads of a copy; a multiple of 16
};

struct Floor {
  Timing timing;
  std::string method;  // "16-byte loads x8, 264 blocks"

  bool operator==(const Floor&) const = default;
};

// Reads of several kinds and grids, none of which asks for a prefetch into L2: 16-byte loads, four
// or eight in flight a thread, and from sm_90 on copies of 16 or 8 KB by the bulk copy engine.
class FloorReader {
 public:
  static Result<FloorReader> make(Gpu& gpu);

  // The fastest of all.
  Result<Floor> measure(const FloorRange& range, const TimingPlan& plan) const;
  // `elements` of `type`, about normal with deviation `factor`; on the stream.
  struct Fill {
    void* data;
    int64_t elements;
    int type;
    uint64_t seed;
    float factor;
  };
  Outcome fill(Fill fill) const;

 private:
  explicit FloorReader(Gpu& gpu) : gpu_(&gpu) {}
  struct Read {
    Launch launch;
    std::string method;
  };
  Outcome add(const char* entry, Launch launch, const std::string& method);

  Gpu* gpu_;
  GpuModule module_;
  std::vector<Read> reads_;
  cuda::CUfunction fill_ = nullptr;
  Buffer sink_;
};

}  // namespace splitkv::tool
