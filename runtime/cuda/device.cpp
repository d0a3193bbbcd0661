#include "runtime/cuda/device.hpp"

#include <fmt/format.h>

namespace splitkv {
namespace cuda {
namespace {

// Of the peak that clock and bus width give, what plain loads reach (measured on an H200: 4.7
// of 4.9 TB/s).
constexpr double kSustainedReadFraction = 0.95;

Result<CUdevice> device_handle(const Driver& driver, int ordinal) {
  int count = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&count); result != kSuccess) {
    return driver_error(driver, "cuDeviceGetCount", result);
  }
  if (ordinal < 0 || ordinal >= count) {
    return Error{
        Status::device_error,
        count == 0
            ? fmt::format("device=cuda:{} does not exist: there are no CUDA devices", ordinal)
            : fmt::format("device=cuda:{} does not exist: there {} {} CUDA device{}; cuda:0 "
                          "to cuda:{} would fit",
                          ordinal, count == 1 ? "is" : "are", count, count == 1 ? "" : "s",
                          count - 1)};
  }
  CUdevice device = 0;
  if (const CUresult result = driver.cuDeviceGet(&device, ordinal); result != kSuccess) {
    return driver_error(driver, "cuDeviceGet", result);
  }
  return device;
}

struct Attribute {
  DeviceAttribute which;
  int* value;
};

}  // namespace

std::string arch_name(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

}  // namespace cuda

Result<Target> cuda_target(int ordinal) {
  using namespace cuda;
  const Result<const Driver*> opened = driver();
  if (!opened) return opened.error();
  const Driver& api = **opened;
  const Result<CUdevice> device = device_handle(api, ordinal);
  if (!device) return device.error();

  int major = 0, minor = 0, sms = 0, smem_block = 0, smem_sm = 0, registers = 0, threads = 0,
      blocks = 0, l2 = 0, clock_khz = 0, bus_bits = 0;
  const Attribute attributes[] = {{kComputeCapabilityMajor, &major},
                                  {kComputeCapabilityMinor, &minor},
                                  {kMultiprocessorCount, &sms},
                                  {kMaxSharedMemoryPerBlockOptin, &smem_block},
                                  {kMaxSharedMemoryPerMultiprocessor, &smem_sm},
                                  {kMaxRegistersPerMultiprocessor, &registers},
                                  {kMaxThreadsPerMultiprocessor, &threads},
                                  {kMaxBlocksPerMultiprocessor, &blocks},
                                  {kL2CacheBytes, &l2},
                                  {kMemoryClockKhz, &clock_khz},
                                  {kMemoryBusBits, &bus_bits}};
  for (const Attribute& attribute : attributes) {
    const CUresult result = api.cuDeviceGetAttribute(attribute.value, attribute.which, *device);
    if (result != kSuccess) return driver_error(api, "cuDeviceGetAttribute", result);
  }
  Target target;
  target.kind = TargetKind::cuda;
  target.arch = arch_name(major, minor);
  target.sm_count = sms;
  target.smem_per_block_bytes = smem_block;
  target.smem_per_sm_bytes = smem_sm;
  target.registers_per_sm = registers;
  target.max_threads_per_sm = threads;
  target.max_blocks_per_sm = blocks;
  target.l2_bytes = l2;
  // Two transfers a clock, as the memory clock attribute counts them.
  target.read_gb_per_s = 2.0 * clock_khz * 1e3 * (bus_bits / 8.0) / 1e9 * kSustainedReadFraction;
  return target;
}

namespace cuda {

Result<Device> Device::open(int ordinal) {
  const Result<const Driver*> opened = cuda::driver();
  if (!opened) return opened.error();
  const Result<CUdevice> handle = device_handle(**opened, ordinal);
  if (!handle) return handle.error();
  Device device;
  const CUresult result = (*opened)->cuDevicePrimaryCtxRetain(&device.context_, *handle);
  if (result != kSuccess) return driver_error(**opened, "cuDevicePrimaryCtxRetain", result);
  device.driver_ = *opened;
  device.handle_ = *handle;
  device.ordinal_ = ordinal;
  return device;
}

Device::~Device() {
  if (driver_ != nullptr && check_not_forked()) driver_->cuDevicePrimaryCtxRelease(handle_);
}

ContextScope::ContextScope(const Device& device) : device_(device) {
  entered_ = check_not_forked();
  if (!entered_) return;
  const Driver& driver = device.driver();
  CUcontext current = nullptr;
  if (const CUresult result = driver.cuCtxGetCurrent(&current); result != kSuccess) {
    entered_ = driver_error(driver, "cuCtxGetCurrent", result);
  } else if (current != device.context()) {
    const CUresult pushed = driver.cuCtxPushCurrent(device.context());
    if (pushed != kSuccess) entered_ = driver_error(driver, "cuCtxPushCurrent", pushed);
    pushed_ = pushed == kSuccess;
  }
}

Outcome ContextScope::leave() {
  if (!pushed_) return Unit{};
  pushed_ = false;
  CUcontext popped = nullptr;
  const CUresult result = device_.driver().cuCtxPopCurrent(&popped);
  if (result != kSuccess) return driver_error(device_.driver(), "cuCtxPopCurrent", result);
  return Unit{};
}

}  // namespace cuda
}  // namespace splitkv
