// What a caller chose at splitkv_open, and every environment variable that the library reads.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/result.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

struct RuntimeOptions {
  bool no_jit = false;
  bool no_disk = false;
  bool no_tuning = false;
  void (*log)(void* user, splitkv_log_level level, const char* line) = nullptr;
  void* log_user = nullptr;
  void (*parallel_for)(void* user, int64_t n, void (*body)(void* context, int64_t i),
                       void* context) = nullptr;
  void* parallel_for_user = nullptr;
  int threads = 0;                 // 0: as many as the process may use
  std::string cache_dir;           // empty: what the environment says
  uint64_t cache_limit_bytes = 0;  // 0: what the environment says
  std::string pack;                // a file; empty: what the environment says
};

// invalid_argument for unknown flags, a negative thread count, an empty folder or a wrong size.
// null: defaults.
Result<RuntimeOptions> read_options(const splitkv_options* given);

// Empty where a variable is not set.
struct Environment {
  std::string libcuda;          // SPLITKV_LIBCUDA: this file instead of a search
  std::string libnvrtc;         // SPLITKV_LIBNVRTC: this file instead of a search
  std::string schedule;         // SPLITKV_SCHEDULE: schedule words where the caller gives none
  std::string tmpdir;           // TMPDIR: where sources that do not compile are saved
  std::string cuda_home;        // CUDA_HOME
  std::string cuda_path;        // CUDA_PATH
  std::string virtual_env;      // VIRTUAL_ENV
  std::string path;             // PATH
  std::string cache_dir;        // SPLITKV_CACHE_DIR: where compiled kernels are kept
  std::string cache_limit;      // SPLITKV_CACHE_LIMIT: bytes of them, as "512M"
  std::string no_disk;          // SPLITKV_NO_DISK: 1, keep none; empty or 0 otherwise
  std::string xdg_cache_home;   // XDG_CACHE_HOME
  std::string home;             // HOME
  std::string tuning_file;      // SPLITKV_TUNING_FILE: the user's tuning records, or off
  std::string xdg_config_home;  // XDG_CONFIG_HOME
  std::string no_jit;           // SPLITKV_NO_JIT: 1, never compile; empty or 0 otherwise
  std::string no_tuning;        // SPLITKV_NO_TUNING: 1, no user's tuning file; empty or 0 otherwise
  std::string pack;             // SPLITKV_PACK: a pack that every runtime opens
};

// Read when a kernel is prepared or a library opened, never by a run.
Environment read_environment();

// A variable that switches something on: neither empty nor 0.
bool is_on(const std::string& variable);

// By the options or by the environment.
bool jit_is_forbidden(const RuntimeOptions& options);
bool tuning_is_forbidden(const RuntimeOptions& options);

}  // namespace splitkv
