#include "tools/splitkv/bench_cpu_sets.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "tools/splitkv/guarded.hpp"

namespace splitkv::tool {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Copies rotate over as much as no cache holds.
constexpr int64_t kColdBytes = int64_t(1) << 30;
constexpr int64_t kMostCopies = 64;

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

ReadPool::ReadPool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; ++i) {
    others_.emplace_back([this, i] { serve(i); });
  }
}

ReadPool::~ReadPool() {
  data_ = nullptr;
  ++turn_;
  turn_.notify_all();
  for (std::thread& other : others_) other.join();
}

double ReadPool::read_us(const std::byte* data, int64_t bytes) {
  const auto begin = Clock::now();
  data_ = data;
  words_ = bytes / 8;
  left_ = threads_ - 1;
  ++turn_;
  turn_.notify_all();
  read_share(0);
  while (left_ != 0) std::this_thread::yield();
  return us_since(begin);
}

void ReadPool::serve(int share) {
  for (uint32_t seen = 0;;) {
    turn_.wait(seen);
    seen = turn_;
    if (data_ == nullptr) return;
    read_share(share);
    --left_;
  }
}

void ReadPool::read_share(int share) {
  const auto* words = reinterpret_cast<const uint64_t*>(data_);
  const int64_t begin = words_ * share / threads_, end = words_ * (share + 1) / threads_;
  uint64_t sums[16] = {};
  int64_t i = begin;
  for (; i + 16 <= end; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
  }
  for (; i < end; ++i) sums[0] += words[i];
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  kept_ += sum;
}

Result<CpuSets> place_on_cpu(const Problem& problem, const Inputs& inputs, uint64_t seed,
                             int64_t copies) {
  CpuSets sets;
  Result<std::unique_ptr<DeviceMemory>> memory = open_device_memory("cpu");
  if (!memory) return memory.error();
  sets.memory = std::move(*memory);
  const KvImage image = lay_out(problem, inputs, seed);
  Result<StepMemory> step =
      StepMemory::place(*sets.memory, problem, inputs, image, sized<splitkv_buffer_sizes>());
  if (!step) return step.error();
  sets.step.emplace(std::move(*step));
  sets.k_bytes = (image.k.size() + 255) / 256 * 256;
  for (int64_t i = 0; i < copies; ++i) {
    Result<Buffer> copy = sets.memory->allocate(sets.k_bytes + image.v.size());
    if (!copy) return copy.error();
    Outcome filled = sets.memory->copy_in(*copy, image.k.data(), image.k.size());
    if (filled) {
      filled = sets.memory->copy_in(*copy, image.v.data(), image.v.size(), sets.k_bytes);
    }
    if (!filled) return filled.error();
    sets.copies.push_back(std::move(*copy));
  }
  return sets;
}

int64_t copies_on_cpu(int64_t kv_bytes, bool& cold) {
  const int64_t wanted = (kColdBytes + kv_bytes - 1) / kv_bytes;
  cold = wanted <= kMostCopies;
  return std::clamp<int64_t>(wanted, 2, kMostCopies);
}

Result<CpuTimes> time_on_cpu(const CpuSets& sets, const Kernel& kernel, ReadPool& readers,
                             const CpuRounds& rounds) {
  splitkv_args args = sets.step->args();
  const auto prepared = guarded([&] {
    const splitkv_buffer_sizes sizes = kernel.sizes(args.batch);
    std::vector<Binding> bindings;
    for (size_t i = 0; i < sets.copies.size(); ++i)
      bindings.push_back(kernel.bind(sets.tensors(i)));
    return std::pair{sizes, std::move(bindings)};
  });
  if (!prepared) return prepared.error();
  const auto& [sizes, bindings] = *prepared;
  Result<Buffer> scratch = sets.memory->allocate(sizes.scratch_bytes);
  Result<Buffer> state = sets.memory->allocate(sizes.state_bytes);
  if (!scratch) return scratch.error();
  if (!state) return state.error();
  args.scratch = scratch->data(), args.scratch_bytes = sizes.scratch_bytes;
  args.state = state->data(), args.state_bytes = sizes.state_bytes;
  CpuTimes times;
  size_t copy = 0;
  const auto next = [&] { return copy++ % sets.copies.size(); };
  const auto read = [&] {
    return readers.read_us(static_cast<const std::byte*>(sets.copies[next()].data()),
                           rounds.kv_bytes);
  };
  const auto ran = guarded([&] {
    if (sizes.state_bytes > 0) kernel.state_init(args.state, args.state_bytes);
    for (int round = -2; round < rounds.repeat; ++round) {
      const double before = read();
      const Binding& binding = bindings[next()];
      const auto begin = Clock::now();
      kernel.run(binding, args);
      const double us = us_since(begin);
      const double floor = (before + read()) / 2;
      if (round < 0) continue;
      times.runs.push_back(us);
      times.floors.push_back(floor);
      times.ratios.push_back(us / floor);
    }
    return Unit{};
  });
  if (!ran) return ran.error();
  return times;
}

}  // namespace splitkv::tool
