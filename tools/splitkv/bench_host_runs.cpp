#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "compiler/text.hpp"
#include "runtime/c_api_support.hpp"
#include "runtime/launch.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/bench_host.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/step_memory.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "tools/splitkv/bench_gpu.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr uint64_t kSeed = 5;
// Of a sample: fewer launches than a stream takes before it makes its caller wait.
constexpr int kCalls = 200;

// Memory of the plan's device, and its stream; the CPU has none.
struct Place {
  std::unique_ptr<DeviceMemory> of_cpu;
#ifdef SPLITKV_HAS_CUDA
  std::unique_ptr<Gpu> gpu;
#endif
  DeviceMemory* memory = nullptr;
  void* stream = nullptr;

  Outcome wait() const {
#ifdef SPLITKV_HAS_CUDA
    if (gpu != nullptr) return gpu->synchronize();
#endif
    return Unit{};
  }
};

Result<Place> open_place(const HostPlan& plan) {
  Place place;
#ifdef SPLITKV_HAS_CUDA
  if (plan.target.kind == TargetKind::cuda) {
    auto gpu = Gpu::open(std::atoi(plan.device.c_str() + 5));
    if (!gpu) return gpu.error();
    place.gpu = std::move(*gpu);
    place.memory = &place.gpu->memory();
    place.stream = place.gpu->stream();
    return place;
  }
#endif
  auto memory = open_device_memory(plan.device);
  if (!memory) return memory.error();
  place.of_cpu = std::move(*memory);
  place.memory = place.of_cpu.get();
  return place;
}

// The CPU's bare form: the loaded code itself, behind all checks.
Result<std::function<Outcome()>> bare_form(const HostPlan& plan, const PreparedKernel& kernel,
                                           const splitkv::Launch& launch, void* stream) {
#ifdef SPLITKV_HAS_CUDA
  if (plan.target.kind == TargetKind::cuda) {
    return bare_launches(plan, kernel, launch.args, launch.shape, stream);
  }
#endif
  (void)plan, (void)stream;
  return std::function<Outcome()>([code = kernel.loaded.code, launch] {
    return code->run(launch.args, launch.shape, nullptr);
  });
}

struct Pair {
  std::function<Outcome()> ours, bare;
};

Result<std::vector<HostRow>> measure(const HostPlan& plan, const Pair& pair, const Place& place) {
  const bool is_cuda = plan.target.kind == TargetKind::cuda;
  HostRow ours{"run", "splitkv_run, until it returns", {}};
  HostRow bare{
      "bare", is_cuda ? "the same launches by the driver alone" : "the same code alone", {}};
  HostRow above{"run - bare", "of samples next to each other", {}};
  for (int i = -2; i < plan.samples; ++i) {  // the first two for warmth
    double us[2] = {};
    for (const bool is_bare : {false, true}) {
      const Result<double> mean = mean_us(kCalls, is_bare ? pair.bare : pair.ours);
      if (!mean) return mean.error();
      us[is_bare] = *mean;
      if (const Outcome waited = place.wait(); !waited) return waited.error();
    }
    if (i < 0) continue;
    ours.us.push_back(us[0]);
    bare.us.push_back(us[1]);
    above.us.push_back(us[0] - us[1]);
  }
  return std::vector<HostRow>{ours, bare, above};
}

}  // namespace

Result<std::vector<HostRow>> time_runs(const HostPlan& plan) {
  Options options;
  options.cache_dir = plan.folder;
  const Result<Kernel> kernel = guarded([&] {
    return Runtime(options).prepare(plan.device, print(plan.problem), {plan.batch, plan.kv_len, 0},
                                    plan.schedule);
  });
  if (!kernel) return kernel.error();
  Result<Place> place = open_place(plan);
  if (!place) return place.error();
  const std::vector<int32_t> lengths(size_t(plan.batch), 1);
  const Inputs inputs = generate_inputs(plan.problem, lengths, kSeed);
  const auto sizes = guarded([&] { return kernel->sizes(plan.batch); });
  if (!sizes) return sizes.error();
  const Result<StepMemory> step = StepMemory::place(*place->memory, plan.problem, inputs,
                                                    lay_out(plan.problem, inputs, kSeed), *sizes);
  if (!step) return step.error();
  const splitkv_args args = step->args();
  const Result<Binding> binding = guarded([&] {
    if (args.state_bytes > 0) kernel->state_init(args.state, args.state_bytes, place->stream);
    return kernel->bind(step->tensors());
  });
  if (!binding) return binding.error();

  const PreparedKernel& prepared = *kernel->get()->prepared;
  const Result<splitkv::Launch> launch = make_launch(prepared, *binding, args);
  if (!launch) return launch.error();
  Pair pair;
  pair.ours = [&]() -> Outcome {
    const splitkv_status status =
        splitkv_run(kernel->get(), &*binding, &args, place->stream, nullptr);
    if (status == SPLITKV_OK) return Unit{};
    return Error{Status(status), "splitkv_run failed"};
  };
  auto bare = bare_form(plan, prepared, *launch, place->stream);
  if (!bare) return bare.error();
  pair.bare = std::move(*bare);
  return measure(plan, pair, *place);
}

}  // namespace splitkv::tool
