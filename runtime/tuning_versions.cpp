#include "runtime/tuning_versions.hpp"

#include <ctime>
#include <fstream>
#include <sstream>

#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv {

std::string kernel_driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool numeric = word.find_first_not_of("0123456789.") == std::string::npos;
    if (numeric && word.find('.') != std::string::npos) return word;
  }
  return "";
}

TuningVersions tuning_versions([[maybe_unused]] const std::string& device) {
#ifdef SPLITKV_HAS_CUDA
  if (device.starts_with("cuda:")) {
    TuningVersions versions;
    const Result<std::string> nvrtc = nvrtc_version();
    if (nvrtc) versions.compiler = "NVRTC-" + *nvrtc;
    const std::string driver = kernel_driver_version();
    if (!driver.empty()) versions.driver = driver;
    return versions;
  }
#endif
#ifdef SPLITKV_HAS_CPU
  return {"LLVM", "none"};
#else
  return {};
#endif
}

std::string tuning_date() {
  const std::time_t now = std::time(nullptr);
  char text[32] = "";
  std::tm parts{};
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

}  // namespace splitkv
