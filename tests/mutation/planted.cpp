#include "tests/mutation/planted.hpp"

#include <fmt/format.h>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/launch.hpp"
#include "runtime/platform.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/partials.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::testing_support {
namespace {

int replace_all(std::string& text, const std::string& from, const std::string& to) {
  int count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  return count;
}

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
  if (!from.empty() && replace_all(kernel.source.text, from, to) == 0) {
    return Error{Status::internal, fmt::format("the emitted source does not hold: {}", from)};
  }
  const LaunchShape shape = launch_shape(*problem, *schedule, 1);
  Result<Loaded> loaded = platform.load({device, *target, kernel.source, shape.split_smem_bytes});
  if (!loaded) return loaded.error();
  kernel.loaded = *std::move(loaded);
  return kernel;
}

// Everything a run points at, on the device.
struct Tensors {
  tool::Buffer q, k, v, kv_len, pages, out, lse, scratch, state;
};

template <class T>
tool::Buffer place(tool::DeviceMemory& memory, const std::vector<T>& values) {
  tool::Buffer buffer = std::move(*memory.allocate(values.size() * sizeof(T)));
  if (!memory.copy_in(buffer, values.data(), values.size() * sizeof(T))) std::abort();
  return buffer;
}

template <class T>
std::vector<T> bring_back(tool::DeviceMemory& memory, const tool::Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  if (!memory.copy_out(values.data(), buffer, buffer.bytes())) std::abort();
  return values;
}

Tensors place_all(tool::DeviceMemory& memory, const PreparedKernel& kernel,
                  const tool::Inputs& inputs, const tool::KvImage& image) {
  const int64_t rows = inputs.batch * kernel.problem.q_heads;
  const BufferSizes sizes = buffer_sizes(kernel.problem, kernel.schedule, inputs.batch);
  Tensors t{place(memory, inputs.q),
            place(memory, image.k),
            place(memory, image.v),
            place(memory, inputs.kv_len),
            place(memory, image.page_table),
            std::move(*memory.allocate(size_t(rows * kernel.problem.dim_v) * sizeof(float))),
            std::move(*memory.allocate(size_t(rows) * sizeof(float))),
            std::move(*memory.allocate(size_t(sizes.scratch_bytes))),
            place(memory, std::vector<std::byte>(size_t(sizes.state_bytes)))};
  return t;
}

Result<Launch> launch_of(const PreparedKernel& kernel, const tool::Inputs& inputs,
                         const tool::KvImage& image, const Tensors& t) {
  Result<splitkv_tensors> kv = dense_strides(kernel.problem, inputs.capacity);
  if (!kv) return kv.error();
  kv->k = t.k.data();
  kv->v = t.v.data();
  const Result<splitkv_binding> binding = bind(kernel, *kv);
  if (!binding) return binding.error();
  splitkv_args args = SPLITKV_INIT(splitkv_args);
  args.batch = inputs.batch;
  args.q = t.q.data();
  args.out = t.out.data();
  args.lse = static_cast<float*>(t.lse.data());
  args.kv_len = static_cast<const int32_t*>(t.kv_len.data());
  if (is_paged(kernel.problem)) args.page_table = static_cast<const int32_t*>(t.pages.data());
  args.page_table_stride = image.page_table_stride;
  args.scratch = t.scratch.data();
  args.scratch_bytes = t.scratch.bytes();
  args.state = t.state.data();
  args.state_bytes = t.state.bytes();
  return make_launch(kernel, *binding, args);
}

bool judge_once(const PreparedKernel& kernel, const tool::Inputs& inputs,
                const tool::Expected& expected, tool::DeviceMemory& memory, const Tensors& t) {
  tool::Execution execution;
  execution.out = bring_back<float>(memory, t.out);
  execution.lse = bring_back<float>(memory, t.lse);
  const bool lse_partials =
      tool::count_partials(kernel.problem, kernel.schedule, inputs.kv_len).partials > 0 &&
      exchanged_merge(kernel.problem, kernel.schedule) == Merge::lse;
  return tool::judge(kernel.problem, execution, expected,
                     tool::tolerance_of(kernel.problem, lse_partials))
      .ok();
}

}  // namespace

struct Planter::Parts {
  Services services{RuntimeOptions{}};
  std::unique_ptr<Platform> platform;
};

Planter::Planter(std::string device)
    : device_(std::move(device)), parts_(std::make_unique<Parts>()) {
  parts_->platform = make_platform(device_, parts_->services);
}

Planter::~Planter() = default;

Verdict Planter::run(const Setting& setting, const std::string& from, const std::string& to) {
  if (parts_->platform == nullptr) return {"this build has no target for " + device_, false};
  const Result<PreparedKernel> kernel =
      prepare_planted(*parts_->platform, device_, setting, from, to);
  if (!kernel) return {kernel.error().message, false};
  auto memory = tool::open_device_memory(device_);
  if (!memory) return {memory.error().message, false};
  const tool::Inputs inputs = tool::generate_inputs(kernel->problem, setting.kv_len, 11);
  const tool::KvImage image = tool::lay_out(kernel->problem, inputs, 11);
  const Tensors tensors = place_all(**memory, *kernel, inputs, image);
  const tool::Expected expected = tool::expect_from_reference(kernel->problem, inputs);
  const Result<Launch> launch = launch_of(*kernel, inputs, image, tensors);
  if (!launch) return {launch.error().message, false};

  Verdict verdict{"", true};
  for (int run = 0; run < 2; ++run) {  // the second sees what the first left in the state
    for (const tool::Buffer* buffer : {&tensors.out, &tensors.lse, &tensors.scratch}) {
      if (const auto ok = (*memory)->poison(*buffer); !ok) return {ok.error().message, false};
    }
    if (const auto ok = kernel->loaded.code->run(launch->args, launch->shape, nullptr); !ok) {
      return {ok.error().message, false};
    }
    verdict.right = verdict.right && judge_once(*kernel, inputs, expected, **memory, tensors);
  }
  return verdict;
}

}  // namespace splitkv::testing_support
