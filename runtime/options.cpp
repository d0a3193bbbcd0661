#include "runtime/options.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/struct_io.hpp"

namespace splitkv {
namespace {

constexpr uint32_t kKnownFlags = SPLITKV_NO_JIT;

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
                    "SPLITKV_NO_JIT={:#x}",
                    read->flags, read->flags & ~kKnownFlags, uint32_t(SPLITKV_NO_JIT)));
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
  RuntimeOptions options;
  options.no_jit = (read->flags & SPLITKV_NO_JIT) != 0;
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
  };
}

}  // namespace splitkv
