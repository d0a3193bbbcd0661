#include "tests/emulator/kernel_case.hpp"

#include <fmt/format.h>

#include "runtime/cuda/nvrtc.hpp"
#include "runtime/cuda/symbols.hpp"
#include "tools/splitkv/device_memory.hpp"

namespace splitkv::testing_support {
namespace {

constexpr size_t kFloats = 64;

KernelSource source_of(const SmallKernel& kernel) {
  const std::string text = fmt::format(
      "struct Args {{ float* out; const float* in; }};\n"
      "extern \"C\" __global__ void __launch_bounds__({}, 1)\n"
      "    small(const __grid_constant__ Args args) {{\n"
      "  extern __shared__ __align__(1024) float shared[];\n"
      "  float* const out = args.out;\n"
      "  const float* const in = args.in;\n"
      "  const unsigned place = unsigned(__cvta_generic_to_shared(shared));\n"
      "  const int i = threadIdx.x;\n"
      "{}\n}}\n",
      kernel.threads, kernel.body);
  return {SourceLanguage::cuda, text, "small", ""};
}

struct Args {
  void* out;
  void* in;
};

// A loaded kernel.
class Loaded {
 public:
  Loaded(const cuda::Driver& driver, const std::string& image) : driver_(driver) {
    driver_.cuModuleLoadData(&module_, image.data());
    driver_.cuModuleGetFunction(&function_, module_, "small");
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() { driver_.cuModuleUnload(module_); }

  std::string launch(const SmallKernel& kernel, Args args) const {
    void* parameters[] = {&args};
    const cuda::CUresult result =
        driver_.cuLaunchKernel(function_, 1, 1, 1, kernel.threads, 1, 1, kernel.shared_floats * 4,
                               nullptr, parameters, nullptr);
    return result == 0 ? "" : cuda::driver_error(driver_, "cuLaunchKernel", result).message;
  }

 private:
  const cuda::Driver& driver_;
  cuda::CUmodule module_ = nullptr;
  cuda::CUfunction function_ = nullptr;
};

}  // namespace

Ran run(const SmallKernel& kernel, int times) {
  const auto cubin = compile_cuda(source_of(kernel), "sm_90a");
  if (!cubin) return {cubin.error().message, {}};
  auto memory = tool::open_device_memory("cuda:0");  // makes its context current
  if (!memory) return {memory.error().message, {}};
  const auto driver = cuda::driver();
  const auto out = (*memory)->allocate(kFloats * sizeof(float));
  const auto in = (*memory)->allocate(kernel.in.size() * sizeof(float));
  if (!driver || !out || !in) return {"no emulated device", {}};
  (void)(*memory)->copy_in(*in, kernel.in.data(), in->bytes());
  const Loaded loaded(**driver, cubin->images.front());
  Ran ran;
  for (int i = 0; i < times; ++i) ran.refusal = loaded.launch(kernel, {out->data(), in->data()});
  ran.out.resize(kFloats);
  (void)(*memory)->copy_out(ran.out.data(), *out, out->bytes());
  return ran;
}

}  // namespace splitkv::testing_support
