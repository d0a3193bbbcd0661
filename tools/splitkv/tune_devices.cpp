#include "tools/splitkv/tune_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/tuning_record.hpp"
#include "tools/splitkv/bench_cpu_sets.hpp"
#include "tools/splitkv/choices.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/device.hpp"
#endif

namespace splitkv::tool {
namespace {

Error bad_devices(const std::string& value, const std::string& why) {
  return invalid_argument(fmt::format("--devices={}: {}", value, why));
}

int cuda_devices() {
#ifdef SPLITKV_HAS_CUDA
  const Result<const cuda::Driver*> driver = cuda::driver();
  int count = 0;
  if (driver.ok() && (*driver)->cuDeviceGetCount(&count) == cuda::kSuccess) return count;
#endif
  return 0;
}

std::string model_name(const std::string& device) {
#ifdef SPLITKV_HAS_CUDA
  if (device.starts_with("cuda:")) {
    const Result<const cuda::Driver*> driver = cuda::driver();
    char text[128] = "";
    cuda::CUdevice handle = 0;
    const bool is_known =
        driver.ok() &&
        (*driver)->cuDeviceGet(&handle, std::atoi(device.c_str() + 5)) == cuda::kSuccess &&
        (*driver)->cuDeviceGetName(text, sizeof text, handle) == cuda::kSuccess;
    return is_known ? text : "unnamed";
  }
#endif
  return cpu_name();
}

Result<std::vector<std::string>> device_names(const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), "all") == words.end()) return words;
  if (words.size() > 1) return bad_devices("all", "beside others; all alone would work");
  const int count = cuda_devices();
  if (count == 0) return bad_devices("all", "no CUDA device is here; cpu would work");
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(fmt::format("cuda:{}", i));
  return names;
}

}  // namespace

Result<TuneDevice> chosen_tune_device(const std::string& words) {
  const Result<std::string> name = chosen_device(words);
  if (!name) return name.error();
  const Result<Target> target = chosen_target(*name);
  if (!target) return target.error();
  return TuneDevice{*name, *target, tuning_versions(*name)};
}

Result<std::vector<TuneDevice>> chosen_devices(const std::vector<std::string>& words) {
  const auto names = device_names(words);
  if (!names) return names.error();
  std::vector<TuneDevice> devices;
  for (const std::string& word : *names) {
    Result<TuneDevice> device = chosen_tune_device(word);
    if (!device) {  // told as --target's by who reads both
      constexpr std::string_view other = "--target=";
      const std::string& message = device.error().message;
      if (!message.starts_with(other)) return device.error();
      return Error{device.error().status, "--devices=" + message.substr(other.size())};
    }
    for (const TuneDevice& other : devices) {
      if (other.name == device->name) return bad_devices(word, "named twice; once would work");
    }
    devices.push_back(std::move(*device));
  }
  if (devices.empty()) return bad_devices("", "cuda:0,cuda:1 or all would work");
  for (const TuneDevice& device : devices) {
    if (device.target.kind == TargetKind::cpu && devices.size() > 1) {
      return bad_devices(device.name,
                         "beside other devices it would be measured on cores that work for them; "
                         "a run for it alone would work");
    }
  }
  return devices;
}

std::vector<std::vector<size_t>> machines_of(const std::vector<TuneDevice>& devices) {
  std::vector<std::vector<size_t>> machines;
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string target = tuned_target(devices[i].target);
    const auto known = std::find_if(machines.begin(), machines.end(), [&](const auto& machine) {
      return tuned_target(devices[machine.front()].target) == target;
    });
    if (known == machines.end()) {
      machines.push_back({i});
    } else {
      known->push_back(i);
    }
  }
  return machines;
}

ReportedDevice reported_device(const TuneDevice& device) {
  return {device.name, model_name(device.name), tuned_target(device.target),
          device.versions.compiler, device.versions.driver};
}

}  // namespace splitkv::tool
