// Tensors on the CPU that runs go through in turn, and times of runs beside reads of as many bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/splitkv.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/step_memory.hpp"

namespace splitkv::tool {

// The model as the system names it; "CPU" where it does not.
std::string cpu_name();

// Threads that read memory together and sleep in between.
class ReadPool {
 public:
  explicit ReadPool(int threads);
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;
  ~ReadPool();

  double read_us(const std::byte* data, int64_t bytes);

 private:
  void serve(int share);
  void read_share(int share);

  const int threads_;
  std::vector<std::thread> others_;
  const std::byte* data_ = nullptr;
  int64_t words_ = 0;
  std::atomic<uint32_t> turn_ = 0;
  std::atomic<int> left_ = 0;
  std::atomic<uint64_t> kept_ = 0;  // so that the reads are not left out
};

// One problem's tensors, and further copies of its K and V to go through in turn.
struct CpuSets {
  std::unique_ptr<DeviceMemory> memory;
  std::optional<StepMemory> step;
  std::vector<Buffer> copies;  // K, and V behind it where it is its own
  size_t k_bytes = 0;

  splitkv_tensors tensors(size_t copy) const {
    splitkv_tensors t = step->tensors();
    const char* data = static_cast<const char*>(copies[copy].data());
    t.k = data;
    if (t.v != nullptr) t.v = data + k_bytes;
    return t;
  }
};

Result<CpuSets> place_on_cpu(const Problem& problem, const Inputs& inputs, uint64_t seed,
                             int64_t copies);

// Copies that together are more than caches hold, within reason: cold says whether they are.
int64_t copies_on_cpu(int64_t kv_bytes, bool& cold);

// Of each round: a run, the mean of the reads just before and just after it, and their ratio.
struct CpuTimes {
  std::vector<double> runs, floors, ratios;
};
struct CpuRounds {
  int64_t kv_bytes = 0;  // that a run reads
  int repeat = 9;        // after two that do not count
};

// Rounds of a read, a run and a read, each of another copy.
Result<CpuTimes> time_on_cpu(const CpuSets& sets, const Kernel& kernel, ReadPool& readers,
                             const CpuRounds& rounds);

}  // namespace splitkv::tool
