// What a caller chose at splitkv_open, and every environment variable that the library reads.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/result.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

struct RuntimeOptions {
  bool no_jit = false;
  void (*log)(void* user, splitkv_log_level level, const char* line) = nullptr;
  void* log_user = nullptr;
  void (*parallel_for)(void* user, int64_t n, void (*body)(void* context, int64_t i),
                       void* context) = nullptr;
  void* parallel_for_user = nullptr;
  int threads = 0;  // 0: as many as the process may use
};

// invalid_argument for unknown flags, a negative thread count or a wrong struct size. null:
// defaults.
Result<RuntimeOptions> read_options(const splitkv_options* given);

// Empty where a variable is not set.
struct Environment {
  std::string libcuda;      // SPLITKV_LIBCUDA: this file instead of a search
  std::string libnvrtc;     // SPLITKV_LIBNVRTC: this file instead of a search
  std::string schedule;     // SPLITKV_SCHEDULE: schedule words where the caller gives none
  std::string tmpdir;       // TMPDIR: where sources that do not compile are saved
  std::string cuda_home;    // CUDA_HOME
  std::string cuda_path;    // CUDA_PATH
  std::string virtual_env;  // VIRTUAL_ENV
  std::string path;         // PATH
};

// Read when a kernel is prepared or a library opened, never by a run.
Environment read_environment();

}  // namespace splitkv
