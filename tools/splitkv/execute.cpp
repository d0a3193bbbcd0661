#include "tools/splitkv/execute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "compiler/dtype.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/step_memory.hpp"

namespace splitkv::tool {
namespace {

// What a run left behind: whole buffers, gaps between rows included.
struct RawResult {
  std::vector<std::byte> out, lse, partial_l;
  bool operator==(const RawResult&) const = default;
};

Result<std::vector<std::byte>> bring_back(DeviceMemory& memory, const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  const Outcome copied = memory.copy_out(bytes.data(), buffer, bytes.size());
  if (!copied) return copied.error();
  return bytes;
}

Result<RawResult> bring_back(DeviceMemory& memory, const StepMemory& step) {
  RawResult raw;
  for (const auto& [buffer, bytes] :
       {std::pair{&step.out(), &raw.out}, std::pair{&step.lse(), &raw.lse},
        std::pair{&step.partial_l(), &raw.partial_l}}) {
    if (buffer->bytes() == 0) continue;
    Result<std::vector<std::byte>> found = bring_back(memory, *buffer);
    if (!found) return found.error();
    *bytes = std::move(*found);
  }
  return raw;
}

Outcome poison_all(DeviceMemory& memory, const StepMemory& step) {
  for (const Buffer* buffer : {&step.out(), &step.lse(), &step.partial_l(), &step.scratch()}) {
    if (buffer->bytes() == 0) continue;
    if (const Outcome poisoned = memory.poison(*buffer); !poisoned) return poisoned;
  }
  return Unit{};
}

Result<RawResult> run_all(DeviceMemory& memory, const ExecutePlan& plan, const Kernel& kernel,
                          const StepMemory& step, Execution& execution) {
  const splitkv_args args = step.args();
  const Result<Binding> binding = guarded([&] {
    if (args.state_bytes > 0) kernel.state_init(args.state, args.state_bytes);
    return kernel.bind(step.tensors());
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
    if (const Outcome poisoned = poison_all(memory, step); !poisoned) return poisoned.error();
    const Result<double> ms = memory.time_ms(run);
    if (!ms) return ms.error();
    if (i > 0) execution.run_ms.push_back(*ms);
    Result<RawResult> raw = bring_back(memory, step);
    if (!raw) return raw.error();
    if (first && !(*raw == *first)) execution.repeatable = false;
    if (!first) first = std::move(*raw);
  }
  const Outcome faultless = guarded([&] {
    kernel.poll_fault();
    return Unit{};
  });
  if (!faultless) return faultless.error();
  return std::move(*first);
}

// The rows of a tensor, without the gaps between them, which must still be as they were poisoned.
Result<std::vector<float>> gather(const char* tensor, const RowPlaces& places, DType type,
                                  const std::vector<std::byte>& raw) {
  std::vector<float> values;
  values.reserve(size_t(places.token_rows * places.heads * places.row));
  const int64_t bytes = size_bytes(type);
  if (places.stride_head == places.row && places.stride_token == places.heads * places.row) {
    for (int64_t i = 0; i < places.elements(); ++i) {
      values.push_back(load_element(type, raw.data(), i));
    }
    return values;
  }
  std::vector<bool> is_row(raw.size());
  for (int64_t token = 0; token < places.token_rows; ++token) {
    for (int64_t head = 0; head < places.heads; ++head) {
      const int64_t at = places.at(token, head);
      for (int64_t i = at; i < at + places.row; ++i) {
        values.push_back(load_element(type, raw.data(), i));
        for (int64_t byte = i * bytes; byte < (i + 1) * bytes; ++byte) is_row[size_t(byte)] = true;
      }
    }
  }
  for (size_t byte = 0; byte < raw.size(); ++byte) {
    if (is_row[byte] || raw[byte] == std::byte{0xff}) continue;
    return Error{
        Status::internal,
        fmt::format("the run wrote byte {} of {}, which is between its rows", byte, tensor)};
  }
  return values;
}

// m and l to S, in the base that both have. l = 0 is right beside m = -inf only.
std::vector<float> log_sums(const Problem& problem, const std::vector<float>& m,
                            const std::vector<float>& l) {
  std::vector<float> s(m.size());
  for (size_t i = 0; i < m.size(); ++i) {
    const double logarithm =
        written_lse(problem) == LseOutput::base2 ? std::log2(double(l[i])) : std::log(double(l[i]));
    const bool empty = l[i] == 0 && m[i] == -std::numeric_limits<float>::infinity();
    s[i] = empty      ? m[i]
           : l[i] > 0 ? float(double(m[i]) + logarithm)
                      : std::numeric_limits<float>::quiet_NaN();
  }
  return s;
}

Outcome take_results(const Problem& problem, const Inputs& inputs, const RawResult& raw,
                     Execution& execution) {
  auto out = gather("out", row_places(problem, inputs, problem.dim_v), problem.out_dtype, raw.out);
  if (!out) return out.error();
  execution.out = std::move(*out);
  if (written_lse(problem) == LseOutput::none) return Unit{};
  const RowPlaces places = row_places(problem, inputs, 1);
  auto lse = gather("lse", places, DType::fp32, raw.lse);
  if (!lse) return lse.error();
  execution.lse = std::move(*lse);
  if (!writes_partial_l(problem)) return Unit{};
  auto l = gather("partial_l", places, DType::fp32, raw.partial_l);
  if (!l) return l.error();
  execution.partial_m = std::move(execution.lse);
  execution.partial_l = std::move(*l);
  execution.lse = log_sums(problem, execution.partial_m, execution.partial_l);
  return Unit{};
}

Execution describe(const Kernel& kernel, int64_t batch) {
  const splitkv_kernel_info info = kernel.info();
  const splitkv_buffer_sizes sizes = kernel.sizes(batch);
  Execution execution;
  execution.target = info.target;
  execution.problem = info.problem;
  execution.schedule = info.schedule;
  execution.why = info.why;
  execution.origin = info.origin;
  execution.disk_ms = info.disk_ms;
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
    // Inputs with rows of their own numbers of queries ask for that word.
    Problem asked = problem;
    asked.ragged = problem.ragged || !inputs.q_offset.empty();
    return runtime.prepare(plan.device, print(asked),
                           {inputs.batch, inputs.capacity, mean_of(inputs.kv_len)}, plan.schedule);
  });
  if (!kernel) return kernel.error();
  Result<Execution> described = guarded([&] { return describe(*kernel, inputs.batch); });
  if (!described) return described;
  Execution execution = std::move(*described);

  const Result<std::unique_ptr<DeviceMemory>> memory = open_device_memory(plan.device);
  if (!memory) return memory.error();
  execution.clock = (*memory)->clock_name();
  const KvImage image = lay_out(problem, inputs, plan.seed);
  auto sizes = sized<splitkv_buffer_sizes>();
  sizes.scratch_bytes = execution.scratch_bytes;
  sizes.state_bytes = execution.state_bytes;
  const Result<StepMemory> step = StepMemory::place(**memory, problem, inputs, image, sizes);
  if (!step) return step.error();
  const Result<RawResult> raw = run_all(**memory, plan, *kernel, *step, execution);
  if (!raw) return raw.error();
  if (const Outcome taken = take_results(problem, inputs, *raw, execution); !taken) {
    return taken.error();
  }
  return execution;
}

}  // namespace splitkv::tool
