#include "tools/splitkv/execute.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "compiler/dtype.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/kv_image.hpp"

namespace splitkv::tool {
namespace {

// Everything a run points at, on the device.
struct Placed {
  Buffer q, k, v, kv_len, page_table, out, lse, scratch, state;
  int64_t page_table_stride = 0;
};

template <class T>
Outcome place(DeviceMemory& memory, const std::vector<T>& values, Buffer& buffer) {
  const size_t bytes = values.size() * sizeof(T);
  Result<Buffer> allocated = memory.allocate(bytes);
  if (!allocated) return allocated.error();
  buffer = std::move(*allocated);
  return memory.copy_in(buffer, values.data(), bytes);
}

Outcome reserve(DeviceMemory& memory, size_t bytes, Buffer& buffer) {
  Result<Buffer> allocated = memory.allocate(bytes);
  if (!allocated) return allocated.error();
  buffer = std::move(*allocated);
  return Unit{};
}

int64_t row_count(const Problem& problem, const Inputs& inputs) {
  return inputs.batch * problem.q_heads;
}

size_t out_bytes(const Problem& problem, const Inputs& inputs) {
  return size_t(row_count(problem, inputs) * problem.dim_v * size_bytes(problem.out_dtype));
}

size_t lse_bytes(const Problem& problem, const Inputs& inputs) {
  return problem.lse == LseOutput::none ? 0 : size_t(row_count(problem, inputs)) * sizeof(float);
}

// Runs the steps in turn until one fails.
template <class... Steps>
Outcome in_turn(const Steps&... steps) {
  Outcome outcome = Unit{};
  ((outcome = steps(), outcome.ok()) && ...);
  return outcome;
}

Result<Placed> place_all(DeviceMemory& memory, const ExecutePlan& plan, const Problem& problem,
                         const Inputs& inputs, const Execution& execution) {
  const KvImage image = lay_out(problem, inputs, plan.seed);
  Placed placed;
  placed.page_table_stride = image.page_table_stride;
  const Outcome outcome =
      in_turn([&] { return place(memory, inputs.q, placed.q); },
              [&] { return place(memory, image.k, placed.k); },
              [&] { return place(memory, image.v, placed.v); },
              [&] { return place(memory, inputs.kv_len, placed.kv_len); },
              [&] { return place(memory, image.page_table, placed.page_table); },
              [&] { return reserve(memory, out_bytes(problem, inputs), placed.out); },
              [&] { return reserve(memory, lse_bytes(problem, inputs), placed.lse); },
              [&] { return reserve(memory, execution.scratch_bytes, placed.scratch); },
              [&] { return reserve(memory, execution.state_bytes, placed.state); });
  if (!outcome) return outcome.error();
  return placed;
}

// Null for buffers that the problem or the schedule has no use for.
void* used(const Buffer& buffer) { return buffer.bytes() > 0 ? buffer.data() : nullptr; }

splitkv_args make_args(const Inputs& inputs, const Placed& placed) {
  auto args = sized<splitkv_args>();
  args.batch = inputs.batch;
  args.q = placed.q.data();
  args.out = placed.out.data();
  args.lse = static_cast<float*>(used(placed.lse));
  args.kv_len = static_cast<const int32_t*>(placed.kv_len.data());
  args.page_table = static_cast<const int32_t*>(used(placed.page_table));
  args.page_table_stride = placed.page_table_stride;
  args.scratch = used(placed.scratch);
  args.scratch_bytes = placed.scratch.bytes();
  args.state = used(placed.state);
  args.state_bytes = placed.state.bytes();
  return args;
}

Binding bind(const Kernel& kernel, const Inputs& inputs, const Placed& placed) {
  splitkv_tensors tensors = kernel.dense_strides(inputs.capacity);
  tensors.k = placed.k.data();
  tensors.v = placed.v.data();
  return kernel.bind(tensors);
}

struct RawResult {
  std::vector<std::byte> out, lse;
  bool operator==(const RawResult&) const = default;
};

Result<RawResult> bring_back(DeviceMemory& memory, const Placed& placed) {
  RawResult raw{std::vector<std::byte>(placed.out.bytes()),
                std::vector<std::byte>(placed.lse.bytes())};
  const Outcome copied =
      in_turn([&] { return memory.copy_out(raw.out.data(), placed.out, raw.out.size()); },
              [&] { return memory.copy_out(raw.lse.data(), placed.lse, raw.lse.size()); });
  if (!copied) return copied.error();
  return raw;
}

Result<RawResult> run_all(DeviceMemory& memory, const ExecutePlan& plan, const Kernel& kernel,
                          const Placed& placed, const Inputs& inputs, Execution& execution) {
  const splitkv_args args = make_args(inputs, placed);
  const Result<Binding> binding = guarded([&] {
    if (args.state_bytes > 0) kernel.state_init(args.state, args.state_bytes);
    return bind(kernel, inputs, placed);
  });
  if (!binding) return binding.error();
  const auto run = [&]() -> Outcome {
    return guarded([&] {
      kernel.run(*binding, args);
      return Unit{};
    });
  };
  std::optional<RawResult> first;
  for (int i = 0; i <= plan.repeat; ++i) {
    const Outcome poisoned = in_turn([&] { return memory.poison(placed.out); },
                                     [&] { return memory.poison(placed.lse); },
                                     [&] { return memory.poison(placed.scratch); });
    if (!poisoned) return poisoned.error();
    const Result<double> ms = memory.time_ms(run);
    if (!ms) return ms.error();
    if (i > 0) execution.run_ms.push_back(*ms);
    Result<RawResult> raw = bring_back(memory, placed);
    if (!raw) return raw.error();
    if (first && !(*raw == *first)) execution.repeatable = false;
    if (!first) first = std::move(*raw);
  }
  return std::move(*first);
}

Execution describe(const Kernel& kernel, int64_t batch) {
  const splitkv_kernel_info info = kernel.info();
  const splitkv_buffer_sizes sizes = kernel.sizes(batch);
  Execution execution;
  execution.target = info.target;
  execution.problem = info.problem;
  execution.schedule = info.schedule;
  execution.why = info.why;
  execution.from_memory = info.from_memory != 0;
  execution.compile_ms = info.compile_ms;
  execution.registers_split = info.registers_split;
  execution.registers_reduce = info.registers_reduce;
  execution.local_bytes_split = info.local_bytes_split;
  execution.local_bytes_reduce = info.local_bytes_reduce;
  execution.module_bytes = info.module_bytes;
  execution.scratch_bytes = sizes.scratch_bytes;
  execution.state_bytes = sizes.state_bytes;
  return execution;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result<Execution> execute(Runtime& runtime, const ExecutePlan& plan, const Problem& problem,
                          const Inputs& inputs) {
  const Result<Kernel> kernel = guarded([&] {
    return runtime.prepare(plan.device, print(problem), {inputs.batch, inputs.capacity},
                           plan.schedule);
  });
  if (!kernel) return kernel.error();
  Result<Execution> described = guarded([&] { return describe(*kernel, inputs.batch); });
  if (!described) return described;
  Execution execution = std::move(*described);

  const Result<std::unique_ptr<DeviceMemory>> memory = open_device_memory(plan.device);
  if (!memory) return memory.error();
  execution.clock = (*memory)->clock_name();
  const Result<Placed> placed = place_all(**memory, plan, problem, inputs, execution);
  if (!placed) return placed.error();
  const Result<RawResult> raw = run_all(**memory, plan, *kernel, *placed, inputs, execution);
  if (!raw) return raw.error();

  execution.out.resize(size_t(row_count(problem, inputs) * problem.dim_v));
  for (size_t i = 0; i < execution.out.size(); ++i) {
    execution.out[i] = load_element(problem.out_dtype, raw->out.data(), int64_t(i));
  }
  execution.lse.resize(raw->lse.size() / sizeof(float));
  for (size_t i = 0; i < execution.lse.size(); ++i) {
    execution.lse[i] = load_element(DType::fp32, raw->lse.data(), int64_t(i));
  }
  return execution;
}

}  // namespace splitkv::tool
