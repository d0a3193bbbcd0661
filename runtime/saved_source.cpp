#include "runtime/saved_source.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/options.hpp"

namespace splitkv {
namespace {

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(size_t(written));
  }
  return true;
}

}  // namespace

std::string save_source(const KernelSource& source) {
  const std::string_view ending = source.language == SourceLanguage::cuda ? ".cu" : ".ll";
  const std::string folder = read_environment().tmpdir;
  std::string path =
      fmt::format("{}/splitkv-XXXXXX{}", folder.empty() ? std::string("/tmp") : folder, ending);
  const int file = mkstemps(path.data(), int(ending.size()));
  if (file < 0) {
    return fmt::format("(not saved: {} cannot be created: {})", path, std::strerror(errno));
  }
  const bool whole = write_all(file, source.text);
  const int reason = errno;
  close(file);
  if (!whole) {
    unlink(path.c_str());
    return fmt::format("(not saved: {} cannot be written: {})", path, std::strerror(reason));
  }
  return path;
}

}  // namespace splitkv
