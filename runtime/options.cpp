#include "runtime/options.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/struct_io.hpp"

namespace splitkv {
namespace {

constexpr uint32_t kKnownFlags = SPLITKV_NO_JIT | SPLITKV_NO_DISK | SPLITKV_NO_TUNING;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<RuntimeOptions> read_options(const splitkv_options* given) {
  if (given == nullptr) return RuntimeOptions{};
  const Result<splitkv_options> read = read_struct(given, "options");
  if (!read) return read.error();
  if ((read->flags & ~kKnownFlags) != 0) {
    return invalid_argument(
        fmt::format("options.flags={:#x} has unknown bits {:#x}; known: "
                    "SPLITKV_NO_JIT={:#x}, SPLITKV_NO_DISK={:#x}, SPLITKV_NO_TUNING={:#x}",
                    read->flags, read->flags & ~kKnownFlags, uint32_t(SPLITKV_NO_JIT),
                    uint32_t(SPLITKV_NO_DISK), uint32_t(SPLITKV_NO_TUNING)));
  }
  if (read->threads < 0) {
    return invalid_argument(
        fmt::format("options.threads={} is negative; 0 means as many as the "
                    "process may use",
                    read->threads));
  }
  constexpr int32_t kMostThreads = 4096;
  if (read->threads > kMostThreads) {
    return invalid_argument(
        fmt::format("options.threads={} is above {}; 0, as many as the process may use, would fit",
                    read->threads, kMostThreads));
  }
  if (read->cache_dir != nullptr && read->cache_dir[0] == '\0') {
    return invalid_argument(
        "options.cache_dir is empty; NULL, for what the environment says, or a folder would fit");
  }
  if (read->pack != nullptr && read->pack[0] == '\0') {
    return invalid_argument(
        "options.pack is empty; NULL, for what SPLITKV_PACK says, or a file would fit");
  }
  RuntimeOptions options;
  options.no_jit = (read->flags & SPLITKV_NO_JIT) != 0;
  options.no_disk = (read->flags & SPLITKV_NO_DISK) != 0;
  options.no_tuning = (read->flags & SPLITKV_NO_TUNING) != 0;
  if (read->pack != nullptr) options.pack = read->pack;
  if (read->cache_dir != nullptr) options.cache_dir = read->cache_dir;
  options.cache_limit_bytes = read->cache_limit_bytes;
  options.log = read->log;
  options.log_user = read->log_user;
  options.parallel_for = read->parallel_for;
  options.parallel_for_user = read->parallel_for_user;
  options.threads = read->threads;
  return options;
}

Environment read_environment() {
  return {
      .libcuda = variable("SPLITKV_LIBCUDA"),
      .libnvrtc = variable("SPLITKV_LIBNVRTC"),
      .schedule = variable("SPLITKV_SCHEDULE"),
      .tmpdir = variable("TMPDIR"),
      .cuda_home = variable("CUDA_HOME"),
      .cuda_path = variable("CUDA_PATH"),
      .virtual_env = variable("VIRTUAL_ENV"),
      .path = variable("PATH"),
      .cache_dir = variable("SPLITKV_CACHE_DIR"),
      .cache_limit = variable("SPLITKV_CACHE_LIMIT"),
      .no_disk = variable("SPLITKV_NO_DISK"),
      .xdg_cache_home = variable("XDG_CACHE_HOME"),
      .home = variable("HOME"),
      .tuning_file = variable("SPLITKV_TUNING_FILE"),
      .xdg_config_home = variable("XDG_CONFIG_HOME"),
      .no_jit = variable("SPLITKV_NO_JIT"),
      .no_tuning = variable("SPLITKV_NO_TUNING"),
      .pack = variable("SPLITKV_PACK"),
  };
}

bool is_on(const std::string& variable) { return !variable.empty() && variable != "0"; }

bool jit_is_forbidden(const RuntimeOptions& options) {
  return options.no_jit || is_on(read_environment().no_jit);
}

bool tuning_is_forbidden(const RuntimeOptions& options) {
  return options.no_tuning || is_on(read_environment().no_tuning);
}

}  // namespace splitkv
