// One CUDA device as the library sees it: its facts, and its primary context, retained.
#pragma once

#include <utility>

#include "compiler/target.hpp"
#include "runtime/cuda/symbols.hpp"

namespace splitkv {

// Facts of device `ordinal` from the driver's attributes. library_missing without a driver;
// device_error, naming how many devices there are, for a wrong ordinal.
Result<Target> cuda_target(int ordinal);

namespace cuda {

// "sm_80", "sm_90a", ...: compute capabilities from 9.0 up have an exact, arch-specific form.
std::string arch_name(int major, int minor);

// A device's primary context, retained while this lives: the one that the CUDA runtime and the
// frameworks use too, so that their pointers and streams are valid in it.
class Device {
 public:
  static Result<Device> open(int ordinal);

  Device(Device&& other) noexcept { swap(other); }
  Device& operator=(Device&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Device();

  const Driver& driver() const { return *driver_; }
  CUcontext context() const { return context_; }
  int ordinal() const { return ordinal_; }

 private:
  Device() = default;
  void swap(Device& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    std::swap(ordinal_, other.ordinal_);
  }

  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUdevice handle_ = 0;
  int ordinal_ = 0;
};

// Makes a device's context current for a scope, pushing it only where it is not current already.
// The caller's current context is back when the scope ends.
class ContextScope {
 public:
  explicit ContextScope(const Device& device);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() { (void)leave(); }

  const Outcome& entered() const { return entered_; }
  // Pops early, to report a failure of the pop itself.
  Outcome leave();

 private:
  const Device& device_;
  bool pushed_ = false;
  Outcome entered_ = Unit{};
};

}  // namespace cuda
}  // namespace splitkv
