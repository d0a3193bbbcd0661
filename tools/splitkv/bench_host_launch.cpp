#include <cstdlib>
#include <memory>
#include <optional>

#include "runtime/cuda/module.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "runtime/kernel_key.hpp"
#include "tools/splitkv/bench_host.hpp"
#include "tools/splitkv/offline.hpp"

namespace splitkv::tool {
namespace {

// Everything that a launch needs, made once.
struct Launches {
  std::shared_ptr<const cuda::Device> device;
  std::optional<cuda::Module> module;
  LaunchArgs args;
  LaunchShape shape;
  cuda::CUstream stream = nullptr;

  Outcome launch(const cuda::Function& function, int64_t blocks, int threads, int64_t smem_bytes) {
    void* parameters[] = {&args};
    cuda::LaunchAttribute attribute = {};
    attribute.id = cuda::kProgrammaticStreamSerialization;
    attribute.value.number = 1;
    const cuda::LaunchConfig config{.grid = {unsigned(blocks), 1, 1},
                                    .block = {unsigned(threads), 1, 1},
                                    .smem_bytes = unsigned(smem_bytes),
                                    .stream = stream,
                                    .attributes = &attribute,
                                    .attribute_count = shape.pdl ? 1u : 0u};
    const cuda::Driver& driver = device->driver();
    const cuda::CUresult result =
        driver.cuLaunchKernelEx(&config, function.handle, parameters, nullptr);
    if (result != cuda::kSuccess) return cuda::driver_error(driver, "cuLaunchKernelEx", result);
    return Unit{};
  }
};

}  // namespace

Result<std::function<Outcome()>> bare_launches(const HostPlan& plan, const PreparedKernel& kernel,
                                               const LaunchArgs& args, const LaunchShape& shape,
                                               void* stream) {
  Result<cuda::Device> device = cuda::Device::open(std::atoi(plan.device.c_str() + 5));
  if (!device) return device.error();
  auto all = std::make_shared<Launches>();
  all->device = std::make_shared<const cuda::Device>(std::move(*device));
  if (all->device->driver().cuLaunchKernelEx == nullptr) {
    return Error{Status::unsupported,
                 "the driver lacks cuLaunchKernelEx; that of CUDA 11.8 or "
                 "newer would fit"};
  }
  RuntimeOptions options = warnings_to_stderr();
  options.cache_dir = plan.folder;
  Services services{options};
  const Result<CompilerFacts> facts = nvrtc_facts(kernel.target.arch);
  if (!facts) return facts.error();
  const auto code = compile_offline(services, kernel.source, kernel.target, *facts);
  if (!code) return code.error();
  Result<cuda::Module> module =
      cuda::Module::load(all->device, code->code.images, kernel.source,
                         {.smem_bytes = shape.split_smem_bytes, .cluster = shape.cluster});
  if (!module) return module.error();
  all->module.emplace(std::move(*module));
  all->args = args;
  all->shape = shape;
  all->stream = static_cast<cuda::CUstream>(stream);
  if (shape.k_box.columns > 0) {
    const Outcome encoded = encode_tensor_maps(all->device->driver(), shape, all->args);
    if (!encoded) return encoded.error();
  }
  return std::function<Outcome()>([all]() -> Outcome {
    const LaunchShape& shape = all->shape;
    const Outcome split = all->launch(all->module->split(), shape.split_blocks, shape.split_threads,
                                      shape.split_smem_bytes);
    if (!split || shape.reduce_blocks == 0) return split;
    return all->launch(all->module->reduce(), shape.reduce_blocks, shape.reduce_threads, 0);
  });
}

}  // namespace splitkv::tool
