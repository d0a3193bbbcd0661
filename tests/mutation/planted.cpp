#include "tests/mutation/planted.hpp"

#include <fmt/format.h>

#include "compiler/dtype.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/launch.hpp"
#include "runtime/platform.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/partials.hpp"
#include "tools/splitkv/step_memory.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::testing_support {
namespace {

std::unique_ptr<Platform> make_platform(const std::string& device, Services& services) {
#ifdef SPLITKV_HAS_CUDA
  if (device.starts_with("cuda")) return make_cuda_platform(services);
#endif
#ifdef SPLITKV_HAS_CPU
  if (device.starts_with("cpu")) return make_cpu_platform(services);
#endif
  return nullptr;
}

Result<PreparedKernel> prepare_planted(Platform& platform, const std::string& device,
                                       const Setting& setting, const std::string& from,
                                       const std::string& to) {
  const Result<Problem> problem = parse_problem(setting.problem);
  if (!problem) return problem.error();
  const Result<Schedule> schedule = parse_schedule(setting.schedule);
  if (!schedule) return schedule.error();
  const Result<Target> target = platform.target_of(device);
  if (!target) return target.error();
  if (const auto refusal = verify(*problem, *target)) return to_error(*refusal);
  if (const auto refusal = verify(*problem, *schedule, *target)) return to_error(*refusal);
  PreparedKernel kernel;
  kernel.problem = *problem;
  kernel.schedule = *schedule;
  kernel.target = *target;
  kernel.source = emit(*problem, *schedule, *target);
  if (!from.empty()) {
    if (const Outcome planted = plant(kernel.source, from, to); !planted) return planted.error();
  }
  const LaunchShape shape = launch_shape(*problem, *schedule, 1);
  Result<Loaded> loaded = platform.load({.device = device,
                                         .target = *target,
                                         .source = kernel.source,
                                         .split_smem_bytes = shape.split_smem_bytes,
                                         .cluster = shape.cluster,
                                         .pdl = shape.pdl});
  if (!loaded) return loaded.error();
  kernel.loaded = *std::move(loaded);
  return kernel;
}

// Elements of a dense tensor on the device.
std::vector<float> bring_back(tool::DeviceMemory& memory, const tool::Buffer& buffer, DType type) {
  std::vector<std::byte> raw(buffer.bytes());
  if (!memory.copy_out(raw.data(), buffer, raw.size())) std::abort();
  std::vector<float> values(raw.size() / size_t(size_bytes(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(type, raw.data(), int64_t(i));
  }
  return values;
}

bool judge_once(const PreparedKernel& kernel, const tool::Inputs& inputs,
                const tool::Expected& expected, tool::DeviceMemory& memory,
                const tool::StepMemory& step) {
  tool::Execution execution;
  execution.out = bring_back(memory, step.out(), kernel.problem.out_dtype);
  execution.lse = bring_back(memory, step.lse(), DType::fp32);
  const tool::PartialCount partials =
      tool::count_partials(kernel.problem, kernel.schedule, inputs.kv_len);
  return tool::judge(kernel.problem, execution, expected,
                     tool::tolerance_of(kernel.problem, kernel.schedule, partials))
      .ok();
}

Result<Launch> launch_of(const PreparedKernel& kernel, const tool::StepMemory& step) {
  const Result<splitkv_binding> binding = bind(kernel, step.tensors());
  if (!binding) return binding.error();
  return make_launch(kernel, *binding, step.args());
}

}  // namespace

Outcome plant(KernelSource& source, const std::string& from, const std::string& to) {
  std::string& text = source.text;
  int count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  if (count == 1 || (count > 1 && source.language != SourceLanguage::cuda)) return Unit{};
  return Error{Status::internal,
               fmt::format("the emitted source holds {} times, not once: {}", count, from)};
}

struct Planter::Parts {
  Services services{RuntimeOptions{}};
  std::unique_ptr<Platform> platform;
};

Planter::Planter(std::string device)
    : device_(std::move(device)), parts_(std::make_unique<Parts>()) {
  parts_->platform = make_platform(device_, parts_->services);
}

Planter::~Planter() = default;

bool Planter::suits(const Setting& setting) {
  if (parts_->platform == nullptr) return true;  // a run says what is wrong
  const Result<Target> target = parts_->platform->target_of(device_);
  if (!target) return true;
  const auto refusal =
      verify(*parse_problem(setting.problem), *parse_schedule(setting.schedule), *target);
  const std::string_view rule = refusal ? refusal->rule : std::string_view();
  return rule != "clusters_are_of_sm_90_and_newer" && rule != "wgmma_is_of_sm_90a";
}

Verdict Planter::run(const Setting& setting, const std::string& from, const std::string& to) {
  if (parts_->platform == nullptr) return {"this build has no target for " + device_, false};
  const Result<PreparedKernel> kernel =
      prepare_planted(*parts_->platform, device_, setting, from, to);
  if (!kernel) return {kernel.error().message, false};
  auto memory = tool::open_device_memory(device_);
  if (!memory) return {memory.error().message, false};
  const tool::Inputs inputs = tool::generate_inputs(kernel->problem, setting.kv_len, 11);
  const tool::KvImage image = tool::lay_out(kernel->problem, inputs, 11);
  const BufferSizes needed = buffer_sizes(kernel->problem, kernel->schedule, inputs.batch);
  auto sizes = sized<splitkv_buffer_sizes>();
  sizes.scratch_bytes = size_t(needed.scratch_bytes);
  sizes.state_bytes = size_t(needed.state_bytes);
  const Result<tool::StepMemory> step =
      tool::StepMemory::place(**memory, kernel->problem, inputs, image, sizes);
  if (!step) return {step.error().message, false};
  const tool::Expected expected = tool::expect_from_reference(kernel->problem, inputs);
  const Result<Launch> launch = launch_of(*kernel, *step);
  if (!launch) return {launch.error().message, false};
  if (needed.state_bytes > 0) {
    const Outcome zeroed =
        kernel->loaded.code->zero(step->args().state, size_t(needed.state_bytes), nullptr);
    if (!zeroed) return {zeroed.error().message, false};
  }

  Verdict verdict{"", true};
  for (int run = 0; run < 2; ++run) {  // the second sees what the first left in the state
    for (const tool::Buffer* buffer : {&step->out(), &step->lse(), &step->scratch()}) {
      if (const auto ok = (*memory)->poison(*buffer); !ok) return {ok.error().message, false};
    }
    if (const auto ok = kernel->loaded.code->run(launch->args, launch->shape, nullptr); !ok) {
      return {ok.error().message, false};
    }
    verdict.right = verdict.right && judge_once(*kernel, inputs, expected, **memory, *step);
  }
  return verdict;
}

}  // namespace splitkv::testing_support
