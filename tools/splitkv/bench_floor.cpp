#include "tools/splitkv/bench_floor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {

Outcome FloorReader::add(const char* entry, Launch launch, const std::string& method) {
  const Result<cuda::CUfunction> function = module_.function(entry, launch.smem_bytes);
  if (!function) return function.error();
  launch.function = *function;
  reads_.push_back({launch, fmt::format("{}, {} blocks", method, launch.blocks)});
  return Unit{};
}

Result<FloorReader> FloorReader::make(Gpu& gpu) {
  FloorReader reader(gpu);
  Result<GpuModule> module = gpu.load(floor_source());
  if (!module) return module.error();
  reader.module_ = std::move(*module);
  const Result<cuda::CUfunction> fill = reader.module_.function("fill");
  if (!fill) return fill.error();
  reader.fill_ = *fill;
  Result<Buffer> sink = gpu.memory().allocate(sizeof(uint32_t));
  if (!sink) return sink.error();
  reader.sink_ = std::move(*sink);

  const Target& target = gpu.facts().target;
  Outcome added = Unit{};
  for (const int per_sm : {1, 2, 3, 4, 8}) {
    const Launch launch{nullptr, int64_t(target.sm_count) * per_sm, kPlainThreads, 0};
    if (added) added = reader.add("read_plain_4", launch, "16-byte loads x4");
    if (added) added = reader.add("read_plain_8", launch, "16-byte loads x8");
  }
  const bool has_bulk = target.arch.starts_with("sm_9") || target.arch.starts_with("sm_1");
  for (const int kilobytes : {16, 8}) {
    const int64_t smem = int64_t(kBulkStages) * kilobytes * 1024;
    const int per_sm = kilobytes == 16 ? 1 : 2;
    if (!has_bulk || smem + 1024 > target.smem_per_block_bytes) continue;
    const Launch launch{nullptr, int64_t(target.sm_count) * per_sm, kBulkThreads, smem};
    if (!added) break;
    added = reader.add(kilobytes == 16 ? "read_bulk_16" : "read_bulk_8", launch,
                       fmt::format("bulk copies of {} KB", kilobytes));
  }
  if (!added) return added.error();
  return reader;
}

Result<Floor> FloorReader::measure(const FloorRange& range, const TimingPlan& plan) const {
  Floor best;
  for (const Read& read : reads_) {
    const auto enqueue = [&](int64_t i) {
      const void* data = static_cast<const char*>(range.base) + (i % range.copies) * range.stride;
      uint64_t bytes = uint64_t(range.bytes);
      void* sink = sink_.data();
      return gpu_->launch(read.launch, {&data, &bytes, &sink});
    };
    const Result<Timing> timing = gpu_->time(plan, enqueue);
    if (!timing) return timing.error();
    if (!best.method.empty() && timing->median_us >= best.timing.median_us) continue;
    best = {*timing, read.method};
  }
  return best;
}

Outcome FloorReader::fill(Fill fill) const {
  const int64_t blocks = std::clamp<int64_t>(fill.elements / kFillThreads, 1,
                                             int64_t(gpu_->facts().target.sm_count) * 16);
  return gpu_->launch({fill_, blocks, kFillThreads, 0},
                      {&fill.data, &fill.elements, &fill.seed, &fill.type, &fill.factor});
}

}  // namespace splitkv::tool
