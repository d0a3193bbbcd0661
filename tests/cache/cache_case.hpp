// A folder of its own for each test, a cache with a log that can be read, keys and code that stand
// for compiled ones, and other processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/disk_cache.hpp"

namespace splitkv::cache_test {

// Goes with the object, whatever its modes.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

// A cache in `folder` that looks at no variable of the environment but those that say where.
struct CacheCase {
  explicit CacheCase(const std::string& folder, uint64_t limit_bytes = 0);

  RuntimeOptions options;
  std::vector<std::string> lines;  // "0 ..." to "3 ...": the level and the line
  std::mutex mutex;
  Log log;
  DiskCache cache;

  int warnings() const;
  std::string warning() const;  // all of them
};

// Source number i, its key, and the code that "compiling" it gives.
KernelSource source_of(int i);
KernelKey key_of_source(int i);
StoredCode code_of(int i);

// get() of number i; `compiles` counts the calls of make.
Result<DiskCache::Found> get(DiskCache& cache, int i, int* compiles = nullptr);

std::string entry_path(const std::string& folder, int i);
std::string contents(const std::string& path);
void overwrite(const std::string& path, const std::string& bytes);
std::vector<std::string> names_in(const std::string& folder);

// A forked process that runs body() and ends with its status.
pid_t start(const std::function<int()>& body);
int status_of(pid_t child);  // waits; 128 + the signal where one ended it

// Runs body as a user who is not root, whom modes bind; the status of it. Folders that it is to use
// must be its own: see give_away.
int as_other_user(const std::function<int()>& body);
void give_away(const std::string& path);  // to that user; nothing where this process is not root
bool is_root();

}  // namespace splitkv::cache_test
