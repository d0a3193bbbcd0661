#include "tests/cache/cache_case.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace splitkv::cache_test {
namespace {

constexpr uid_t kOtherUser = 65534;

// What keeps the other tests from the disk.
[[maybe_unused]] const int kDiskIsOn = unsetenv("SPLITKV_NO_DISK");

}  // namespace

TempFolder::TempFolder() {
  path_ = (std::filesystem::temp_directory_path() / "splitkv_cache_XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no folder at " << path_;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  for (const auto& item : std::filesystem::recursive_directory_iterator(path_, ignored)) {
    if (item.is_directory(ignored)) chmod(item.path().c_str(), 0700);
  }
  std::filesystem::remove_all(path_, ignored);
}

namespace {

RuntimeOptions options_of(const std::string& folder, uint64_t limit_bytes, CacheCase* user) {
  RuntimeOptions options;
  options.cache_dir = folder;
  options.cache_limit_bytes = limit_bytes;
  options.log = [](void* given, splitkv_log_level level, const char* line) {
    auto* self = static_cast<CacheCase*>(given);
    const std::lock_guard lock(self->mutex);
    self->lines.push_back(fmt::format("{} {}", int(level), line));
  };
  options.log_user = user;
  return options;
}

}  // namespace

CacheCase::CacheCase(const std::string& folder, uint64_t limit_bytes)
    : options(options_of(folder, limit_bytes, this)), log(options), cache(options, log) {}

int CacheCase::warnings() const {
  return int(std::count_if(lines.begin(), lines.end(),
                           [](const std::string& line) { return line[0] <= '1'; }));
}

std::string CacheCase::warning() const {
  std::string text;
  for (const std::string& line : lines) {
    if (line[0] <= '1') text += line.substr(2) + '\n';
  }
  return text;
}

KernelSource source_of(int i) {
  return {SourceLanguage::cuda, fmt::format("// source {}\nint x{};\n", i, i), "split", ""};
}

KernelKey key_of_source(int i) {
  return kernel_key(source_of(i), {"NVRTC 13.0", {"-arch=sm_90a"}, "sm_90a"});
}

StoredCode code_of(int i) {
  return {
      {fmt::format("cubin {}", i) + std::string(3, '\0'), std::string(2000, char('a' + i % 26))},
      "ptxas info",
      12.5 + i};
}

Result<DiskCache::Found> get(DiskCache& cache, int i, int* compiles) {
  return cache.get(key_of_source(i), source_of(i), [&]() -> Result<StoredCode> {
    if (compiles != nullptr) ++*compiles;
    return code_of(i);
  });
}

std::string entry_path(const std::string& folder, int i) {
  return folder + "/kernels/" + entry_name(key_of_source(i).digest);
}

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    names.push_back(item.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

pid_t start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  EXPECT_GT(child, 0) << "fork failed";
  return child;
}

int status_of(pid_t child) {
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

int as_other_user(const std::function<int()>& body) {
  return status_of(start([&] {
    if (is_root() && (setgid(kOtherUser) != 0 || setuid(kOtherUser) != 0)) return 99;
    return body();
  }));
}

void give_away(const std::string& path) {
  if (is_root() && chown(path.c_str(), kOtherUser, kOtherUser) != 0) {
    ADD_FAILURE() << "cannot give " << path << " away";
  }
}

bool is_root() { return geteuid() == 0; }

}  // namespace splitkv::cache_test
