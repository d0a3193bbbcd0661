#include "tools/splitkv/bench_timer.hpp"

#include <algorithm>

#include "tools/splitkv/bench_rows.hpp"
#include "tools/splitkv/guarded.hpp"

namespace splitkv::tool {

Result<Rotation> rotation_on(const Gpu& gpu, const Problem& problem,
                             const std::vector<int32_t>& kv_len, int64_t most_bytes) {
  const Result<int64_t> free = gpu.free_bytes();
  if (!free) return free.error();
  const Target& target = gpu.facts().target;
  RotationFacts rotating;
  rotating.kv_bytes = kv_bytes(problem, kv_len);
  rotating.set_bytes = set_bytes(problem, kv_len);
  rotating.l2_bytes = target.l2_bytes;
  rotating.memory_bytes = *free / 100 * 85;
  if (most_bytes > 0) rotating.memory_bytes = std::min(rotating.memory_bytes, most_bytes);
  rotating.bytes_per_us = std::max(1000.0, target.read_gb_per_s) * 1e3;
  return rotation_of(rotating);
}

Outcome KernelTimer::reserve(Buffer& buffer, size_t bytes) {
  if (buffer.bytes() >= bytes) return Unit{};
  buffer = Buffer();
  Result<Buffer> allocated = gpu_.memory().allocate(bytes);
  if (!allocated) return allocated.error();
  buffer = std::move(*allocated);
  return gpu_.synchronize();
}

Result<std::vector<splitkv_args>> KernelTimer::arguments(const Kernel& kernel,
                                                         const BenchSets& sets) {
  std::vector<splitkv_args> list;
  for (int64_t set = 0; set < sets.sets(); ++set) list.push_back(sets.args(set));
  const auto sizes = guarded([&] { return kernel.sizes(list.front().batch); });
  if (!sizes) return sizes.error();
  if (const Outcome o = reserve(scratch_, sizes->scratch_bytes); !o) return o.error();
  if (const Outcome o = reserve(state_, sizes->state_bytes); !o) return o.error();
  for (splitkv_args& args : list) {
    args.scratch = sizes->scratch_bytes > 0 ? scratch_.data() : nullptr;
    args.scratch_bytes = sizes->scratch_bytes;
    args.state = sizes->state_bytes > 0 ? state_.data() : nullptr;
    args.state_bytes = sizes->state_bytes;
  }
  return list;
}

Result<OurTime> KernelTimer::time(const Kernel& kernel, const BenchSets& sets,
                                  const TimingPlan& timing) {
  const Result<std::vector<splitkv_args>> args = arguments(kernel, sets);
  if (!args) return args.error();
  const auto bindings = guarded([&] {
    std::vector<Binding> list;
    for (int64_t set = 0; set < sets.sets(); ++set) list.push_back(kernel.bind(sets.tensors(set)));
    const splitkv_args& first = args->front();
    if (first.state_bytes > 0) kernel.state_init(first.state, first.state_bytes, gpu_.stream());
    return list;
  });
  if (!bindings) return bindings.error();
  if (const Outcome o = sets.poison_outs(); !o) return o.error();
  const Result<Timing> timed = gpu_.time(timing, [&](int64_t i) -> Outcome {
    const size_t set = size_t(i % sets.sets());
    return guarded([&] {
      kernel.run((*bindings)[set], (*args)[set], gpu_.stream());
      return Unit{};
    });
  });
  if (!timed) return timed.error();
  const Result<double> error = sets.is_expected() ? sets.worst_error() : Result<double>(0.0);
  if (!error) return error.error();
  const auto info = guarded([&] {
    kernel.poll_fault();
    return kernel.info();
  });
  if (!info) return info.error();
  OurTime ours;
  ours.schedule = info->schedule;
  ours.us = timed->median_us;
  ours.least_us = timed->least_us;
  ours.greatest_us = timed->greatest_us;
  ours.error = *error;
  ours.registers_split = info->registers_split;
  ours.registers_reduce = info->registers_reduce;
  ours.local_bytes = info->local_bytes_split + info->local_bytes_reduce;
  ours.smem_bytes = info->smem_bytes;
  return ours;
}

}  // namespace splitkv::tool
