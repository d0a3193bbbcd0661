// What made a measurement: for records.
#pragma once

#include <string>

namespace splitkv {

// "NVRTC-13.0" and the kernel driver's version, or "LLVM" and "none".
struct TuningVersions {
  std::string compiler = "none", driver = "none";
};
TuningVersions tuning_versions(const std::string& device);

// The kernel module's of NVIDIA's driver: the first word with dots in what it says of itself; empty
// where it says nothing.
std::string kernel_driver_version();

// "2026-01-31", in UTC.
std::string tuning_date();

}  // namespace splitkv
