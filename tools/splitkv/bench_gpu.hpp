// A CUDA device as the benchmark uses it: its facts, memory, kernels from source, and times of
// captured launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/target.hpp"
#include "runtime/cuda/device.hpp"
#include "tools/splitkv/device_memory.hpp"

namespace splitkv::tool {

struct GpuFacts {
  std::string card;    // as the driver names it
  std::string driver;  // "580.65.06"; empty where the system does not tell
  std::string cuda;    // the driver's: "13.0"
  std::string nvrtc;   // "13.0"
  Target target;

  bool operator==(const GpuFacts&) const = default;
};

// Kernels of one source, loaded; unloaded when the last copy goes.
class GpuModule {
 public:
  Result<cuda::CUfunction> function(const char* entry, int64_t dynamic_smem_bytes = 0) const;

 private:
  friend class Gpu;
  const cuda::Driver* driver_ = nullptr;
  std::shared_ptr<cuda::CUmod_st> handle_;
};

struct Launch {
  cuda::CUfunction function = nullptr;
  int64_t blocks = 1;
  int threads = 1;
  int64_t smem_bytes = 0;
};

// Microseconds a launch, over the replays of one graph.
struct Timing {
  double median_us = 0, least_us = 0, greatest_us = 0;

  bool operator==(const Timing&) const = default;
};

// `launches` of a graph, timed `repeat` times after two that are not timed.
struct TimingPlan {
  int64_t launches = 1;
  int repeat = 9;
};

// The device's primary context is current on the opening thread while this lives.
class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> open(int ordinal);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  const GpuFacts& facts() const { return facts_; }
  int ordinal() const { return ordinal_; }
  DeviceMemory& memory() { return *memory_; }
  void* stream() const { return stream_; }
  Result<int64_t> free_bytes() const;

  // Compiles for this device.
  Result<GpuModule> load(const std::string& source) const;
  // On the stream. arguments: addresses of the kernel's parameters.
  Outcome launch(const Launch& launch, std::vector<void*> arguments) const;
  Outcome synchronize() const;

  // Captures enqueue(0) ... enqueue(launches - 1), which put work on the stream, into a graph and
  // times its replays.
  Result<Timing> time(const TimingPlan& plan, const std::function<Outcome(int64_t)>& enqueue) const;

 private:
  Gpu() = default;
  Outcome start(int ordinal);
  Outcome outcome(const char* call, cuda::CUresult result) const;
  Result<std::vector<double>> replay(cuda::CUgraphExec graph, const TimingPlan& plan) const;

  std::unique_ptr<DeviceMemory> memory_;  // first: it holds the context
  const cuda::Driver* driver_ = nullptr;
  cuda::CUstream stream_ = nullptr;
  cuda::CUevent begin_ = nullptr, end_ = nullptr;
  GpuFacts facts_;
  int ordinal_ = 0;
};

}  // namespace splitkv::tool
