#include "runtime/tuning_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/cache_folder.hpp"

namespace splitkv {
namespace {

constexpr mode_t kFileMode = 0644;

Error file_error(const std::string& path, const std::string& what, int code) {
  return invalid_argument(fmt::format("tuning file {}: {}: {}", path, what, std::strerror(code)));
}

Outcome make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code fault;
  if (!folder.empty()) std::filesystem::create_directories(folder, fault);
  if (fault) return file_error(path, "its folder cannot be made", fault.value());
  return Unit{};
}

// Waits for the lock. A file system that knows none is written to all the same: O_APPEND keeps
// lines whole.
bool lock_whole(int file) {
  for (;;) {
    if (flock(file, LOCK_EX) == 0) return true;
    if (errno != EINTR) return errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS;
  }
}

bool ends_within_a_line(int file, off_t size) {
  char last = '\n';
  return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

std::vector<KeptRecord> read_records(std::string_view text, const std::string& file,
                                     const Complain& complain) {
  std::vector<KeptRecord> records;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos || line.front() == '#') continue;
    const std::string origin = fmt::format("{}:{}", file, number);
    Result<TuningRecord> record = parse_record(line);
    if (record) {
      records.push_back({std::move(*record), origin});
    } else {
      complain(
          fmt::format("{}: this tuning record is left out: {}", origin, record.error().message));
    }
  }
  return records;
}

Result<std::string> read_tuning_file(const std::string& path) {
  const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    if (errno == ENOENT || errno == ENOTDIR) return std::string();
    return file_error(path, "cannot be opened", errno);
  }
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) return file_error(path, "cannot be looked at", errno);
  if (!S_ISREG(facts.st_mode)) {
    return invalid_argument(fmt::format("tuning file {}: is no plain file", path));
  }
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t count = read(file.get(), part, sizeof(part));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(path, "cannot be read", errno);
    if (count == 0) return text;
    text.append(part, size_t(count));
  }
}

Outcome append_lines(const std::string& path, const std::vector<std::string>& lines) {
  if (const Outcome made = make_folder_of(path); !made) return made;
  const FileHandle file(
      open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, kFileMode));
  if (!file.is_open()) return file_error(path, "cannot be opened for writing", errno);
  if (!lock_whole(file.get())) return file_error(path, "cannot be locked", errno);
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) return file_error(path, "cannot be looked at", errno);
  if (!S_ISREG(facts.st_mode)) {
    return invalid_argument(fmt::format("tuning file {}: is no plain file", path));
  }
  std::string text = ends_within_a_line(file.get(), facts.st_size) ? "\n" : "";
  for (const std::string& line : lines) text += line + '\n';
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int code = errno;
      // The lock keeps everybody else from having written behind it meanwhile.
      const bool taken_back = ftruncate(file.get(), facts.st_size) == 0;
      return file_error(path, taken_back ? "cannot be written" : "a line was written in part",
                        code);
    }
    done += size_t(count);
  }
  return Unit{};
}

Outcome append_record(const std::string& path, const TuningRecord& record) {
  return append_lines(path, {print(record)});
}

bool tuning_is_off(const Environment& environment) { return environment.tuning_file == "off"; }

std::string user_tuning_file(const Environment& environment) {
  if (tuning_is_off(environment)) return "";
  if (!environment.tuning_file.empty()) return environment.tuning_file;
  // The XDG rules take absolute paths only.
  if (environment.xdg_config_home.starts_with('/')) {
    return environment.xdg_config_home + "/splitkv/tuning.txt";
  }
  if (!environment.home.starts_with('/')) return "";
  return environment.home + "/.config/splitkv/tuning.txt";
}

}  // namespace splitkv
