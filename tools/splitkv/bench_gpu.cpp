#include "tools/splitkv/bench_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/nvrtc.hpp"
#include "runtime/tuning_versions.hpp"
#include "tools/splitkv/cuda_memory.hpp"
#include "tools/splitkv/execute.hpp"

namespace splitkv::tool {
namespace {

using cuda::CUresult;
using cuda::Driver;
using cuda::kSuccess;

// A captured graph and what replays it.
class Graph {
 public:
  explicit Graph(const Driver& driver) : driver_(driver) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable != nullptr) driver_.cuGraphExecDestroy(executable);
    if (graph != nullptr) driver_.cuGraphDestroy(graph);
  }

  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec executable = nullptr;

 private:
  const Driver& driver_;
};

}  // namespace

Result<cuda::CUfunction> GpuModule::function(const char* entry, int64_t dynamic_smem_bytes) const {
  cuda::CUfunction handle = nullptr;
  if (CUresult e = driver_->cuModuleGetFunction(&handle, handle_.get(), entry)) {
    return cuda::driver_error(*driver_, "cuModuleGetFunction", e);
  }
  if (dynamic_smem_bytes == 0) return handle;
  if (CUresult e = driver_->cuFuncSetAttribute(handle, cuda::kMaxDynamicSharedSizeBytes,
                                               int(dynamic_smem_bytes))) {
    return cuda::driver_error(*driver_, "cuFuncSetAttribute", e);
  }
  return handle;
}

Result<std::unique_ptr<Gpu>> Gpu::open(int ordinal) {
  std::unique_ptr<Gpu> gpu(new Gpu());
  if (const Outcome started = gpu->start(ordinal); !started) return started.error();
  return gpu;
}

Outcome Gpu::start(int ordinal) {
  const Result<const Driver*> driver = cuda::driver();
  if (!driver) return driver.error();
  driver_ = *driver;
  ordinal_ = ordinal;
  Result<std::unique_ptr<DeviceMemory>> memory = open_cuda_memory(ordinal);
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  const Result<Target> target = cuda_target(ordinal);
  if (!target) return target.error();
  facts_.target = *target;
  char name[256] = "";
  cuda::CUdevice device = 0;
  if (CUresult e = driver_->cuDeviceGet(&device, ordinal)) return outcome("cuDeviceGet", e);
  if (CUresult e = driver_->cuDeviceGetName(name, sizeof(name), device)) {
    return outcome("cuDeviceGetName", e);
  }
  facts_.card = name;
  int version = 0;
  if (CUresult e = driver_->cuDriverGetVersion(&version)) return outcome("cuDriverGetVersion", e);
  facts_.cuda = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  facts_.driver = kernel_driver_version();
  const Result<std::string> nvrtc = nvrtc_version();
  if (!nvrtc) return nvrtc.error();
  facts_.nvrtc = *nvrtc;
  if (CUresult e = driver_->cuStreamCreate(&stream_, cuda::kStreamNonBlocking)) {
    return outcome("cuStreamCreate", e);
  }
  if (CUresult e = driver_->cuEventCreate(&begin_, cuda::kEventDefault)) {
    return outcome("cuEventCreate", e);
  }
  return outcome("cuEventCreate", driver_->cuEventCreate(&end_, cuda::kEventDefault));
}

Gpu::~Gpu() {
  if (begin_ != nullptr) driver_->cuEventDestroy(begin_);
  if (end_ != nullptr) driver_->cuEventDestroy(end_);
  if (stream_ != nullptr) driver_->cuStreamDestroy(stream_);
}

Outcome Gpu::outcome(const char* call, CUresult result) const {
  if (result == kSuccess) return Unit{};
  return cuda::driver_error(*driver_, call, result);
}

Result<int64_t> Gpu::free_bytes() const {
  size_t free = 0, total = 0;
  if (CUresult e = driver_->cuMemGetInfo(&free, &total)) {
    return cuda::driver_error(*driver_, "cuMemGetInfo", e);
  }
  return int64_t(free);
}

Result<GpuModule> Gpu::load(const std::string& source) const {
  // compile_cuda keeps the whole text: its entries do not begin as those of emitted sources do.
  const Result<Cubin> cubin =
      compile_cuda({SourceLanguage::cuda, source, "bench", ""}, facts_.target.arch);
  if (!cubin) return cubin.error();
  cuda::CUmodule handle = nullptr;
  if (CUresult e = driver_->cuModuleLoadData(&handle, cubin->images.front().data())) {
    return cuda::driver_error(*driver_, "cuModuleLoadData", e);
  }
  GpuModule module;
  module.driver_ = driver_;
  const Driver* driver = driver_;
  module.handle_ = {handle, [driver](cuda::CUmodule m) { driver->cuModuleUnload(m); }};
  return module;
}

Outcome Gpu::launch(const Launch& launch, std::vector<void*> arguments) const {
  return outcome("cuLaunchKernel", driver_->cuLaunchKernel(launch.function, unsigned(launch.blocks),
                                                           1, 1, unsigned(launch.threads), 1, 1,
                                                           unsigned(launch.smem_bytes), stream_,
                                                           arguments.data(), nullptr));
}

Outcome Gpu::synchronize() const {
  // The default stream too, where fills and copies of DeviceMemory go.
  if (CUresult e = driver_->cuStreamSynchronize(nullptr)) return outcome("cuStreamSynchronize", e);
  return outcome("cuStreamSynchronize", driver_->cuStreamSynchronize(stream_));
}

Result<Timing> Gpu::time(const TimingPlan& plan,
                         const std::function<Outcome(int64_t)>& enqueue) const {
  Graph graph(*driver_);
  if (CUresult e = driver_->cuStreamBeginCapture(stream_, cuda::kCaptureModeThreadLocal)) {
    return outcome("cuStreamBeginCapture", e).error();
  }
  Outcome captured = Unit{};
  for (int64_t i = 0; i < plan.launches && captured; ++i) captured = enqueue(i);
  const CUresult ended = driver_->cuStreamEndCapture(stream_, &graph.graph);
  if (!captured) return captured.error();
  if (ended != kSuccess) return outcome("cuStreamEndCapture", ended).error();
  if (CUresult e = driver_->cuGraphInstantiateWithFlags(&graph.executable, graph.graph, 0)) {
    return outcome("cuGraphInstantiateWithFlags", e).error();
  }
  const Result<std::vector<double>> us = replay(graph.executable, plan);
  if (!us) return us.error();
  const auto [least, greatest] = std::minmax_element(us->begin(), us->end());
  return Timing{median(*us), *least, *greatest};
}

Result<std::vector<double>> Gpu::replay(cuda::CUgraphExec graph, const TimingPlan& plan) const {
  constexpr int warm_ups = 2;
  std::vector<double> us;
  for (int i = 0; i < warm_ups + plan.repeat; ++i) {
    float ms = 0;
    const std::pair<const char*, std::function<CUresult()>> steps[] = {
        {"cuEventRecord", [&] { return driver_->cuEventRecord(begin_, stream_); }},
        {"cuGraphLaunch", [&] { return driver_->cuGraphLaunch(graph, stream_); }},
        {"cuEventRecord", [&] { return driver_->cuEventRecord(end_, stream_); }},
        {"cuEventSynchronize", [&] { return driver_->cuEventSynchronize(end_); }},
        {"cuEventElapsedTime", [&] { return driver_->cuEventElapsedTime(&ms, begin_, end_); }}};
    for (const auto& [call, step] : steps) {
      if (const CUresult e = step()) return outcome(call, e).error();
    }
    if (i >= warm_ups) us.push_back(double(ms) * 1e3 / double(plan.launches));
  }
  return us;
}

}  // namespace splitkv::tool
