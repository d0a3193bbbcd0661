// Compiled kernels on disk, by key: found without locks, verified, made by one process at a time,
// the least recently used dropped where they become too many. Whatever is wrong with the disk, the
// answer is a compile, never an error; docs/cache.md tells the user's side of it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/cache_entry.hpp"
#include "runtime/cache_folder.hpp"
#include "runtime/log.hpp"
#include "runtime/options.hpp"

namespace splitkv {

// Where kernels are kept: what the options say, else the environment, else the XDG rules.
struct CachePlace {
  std::string folder;   // empty: nowhere
  std::string why_not;  // a line for the log where folder is empty though nobody chose that
  uint64_t limit_bytes = 0;
  std::string complaint;  // about a limit in the environment that is no size
};

inline constexpr uint64_t kDefaultCacheBytes = uint64_t(1) << 30;

CachePlace cache_place(const RuntimeOptions& options, const Environment& environment);

// "512M" is 512 * 2^20; K, M, G or nothing. Refuses what is no such number or does not fit.
Result<uint64_t> parse_bytes(const std::string& text);

// Thread-safe. Several of them, in any processes, may use one folder at once.
class DiskCache {
 public:
  struct Found {
    StoredCode code;
    bool from_disk = false;
    double disk_ms = 0;  // finding, reading and verifying; 0 unless from_disk
  };
  using Make = std::function<Result<StoredCode>()>;

  DiskCache(const RuntimeOptions& options, const Log& log) : options_(options), log_(log) {}

  // The code of `key`, from disk or made by make() and kept. An error is that of make(), and is not
  // kept. Makers of the same key wait for each other, in other processes and caches too, for at
  // most `longest_wait`.
  Result<Found> get(const KernelKey& key, const KernelSource& source, const Make& make);

  // From disk alone.
  std::optional<Found> find(const KernelKey& key);

  // In place of what was found and cannot be used.
  void replace(const KernelKey& key, const KernelSource& source, const StoredCode& code);

  // Kernels that this removed because the folder was full.
  uint64_t evictions() const { return evictions_.load(std::memory_order_relaxed); }

  void set_longest_wait(std::chrono::milliseconds wait) { longest_wait_ = wait; }

 private:
  std::shared_ptr<const CacheFolder> folder();
  // tell: the log hears of what is there and not taken.
  std::optional<Found> find_in(const CacheFolder& folder, const KernelKey& key, bool tell);
  void keep(const CacheFolder& folder, const KernelKey& key, const KernelSource& source,
            const StoredCode& code);
  void warn_once(const std::string& line);

  const RuntimeOptions& options_;
  const Log& log_;
  std::chrono::milliseconds longest_wait_{60'000};

  std::atomic<uint64_t> evictions_{0};
  std::mutex mutex_;
  bool opened_ = false;
  bool warned_ = false;
  bool tidied_ = false;
  uint64_t limit_bytes_ = kDefaultCacheBytes;
  std::shared_ptr<const CacheFolder> folder_;  // null: nothing is kept on disk
};

}  // namespace splitkv
