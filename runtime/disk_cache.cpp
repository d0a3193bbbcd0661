#include "runtime/disk_cache.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

#include "runtime/key_lock.hpp"

namespace splitkv {
namespace {

using Clock = std::chrono::steady_clock;

// What was left behind so long ago is nobody's.
constexpr int64_t kOldSeconds = 3600;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

Result<uint64_t> parse_bytes(const std::string& text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  int shift = 0;
  if (error == std::errc() && end - stop == 1) {
    shift = *stop == 'K' ? 10 : *stop == 'M' ? 20 : *stop == 'G' ? 30 : 0;
  }
  const bool is_size = error == std::errc() && (stop == end || shift > 0) && number > 0 &&
                       number <= std::numeric_limits<uint64_t>::max() >> shift;
  if (is_size) return number << shift;
  return invalid_argument(
      fmt::format("{} is no number of bytes; 536870912 or 512M would fit (K, M, G are 2^10, 2^20, "
                  "2^30)",
                  text.empty() ? "an empty text" : text));
}

CachePlace cache_place(const RuntimeOptions& options, const Environment& environment) {
  CachePlace place;
  if (options.no_disk || (!environment.no_disk.empty() && environment.no_disk != "0")) return place;
  place.limit_bytes = options.cache_limit_bytes;
  if (place.limit_bytes == 0) {
    place.limit_bytes = kDefaultCacheBytes;
    if (!environment.cache_limit.empty()) {
      const Result<uint64_t> given = parse_bytes(environment.cache_limit);
      if (given) place.limit_bytes = *given;
      if (!given) {
        place.complaint =
            fmt::format("SPLITKV_CACHE_LIMIT={}: {}; the limit is {} bytes",
                        environment.cache_limit, given.error().message, kDefaultCacheBytes);
      }
    }
  }
  // XDG: a path that is not absolute does not count.
  const auto absolute = [](const std::string& path) { return path.starts_with('/'); };
  if (!options.cache_dir.empty()) {
    place.folder = options.cache_dir;
  } else if (!environment.cache_dir.empty()) {
    place.folder = environment.cache_dir;
  } else if (absolute(environment.xdg_cache_home)) {
    place.folder = environment.xdg_cache_home + "/splitkv";
  } else if (absolute(environment.home)) {
    place.folder = environment.home + "/.cache/splitkv";
  } else {
    place.why_not = "neither SPLITKV_CACHE_DIR nor XDG_CACHE_HOME nor HOME names a folder";
  }
  return place;
}

void DiskCache::warn_once(const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (warned_) return;
    warned_ = true;
  }
  log_.warning(
      fmt::format("kernels are not kept on disk: {}; SPLITKV_CACHE_DIR may name another "
                  "folder, SPLITKV_NO_DISK=1 means that none is wanted",
                  line));
}

std::shared_ptr<const CacheFolder> DiskCache::folder() {
  std::string trouble, complaint;
  std::shared_ptr<const CacheFolder> found;
  {
    const std::lock_guard lock(mutex_);
    // A folder that was removed meanwhile is made again.
    if (opened_ && (folder_ == nullptr || folder_->is_there())) return folder_;
    const CachePlace place = cache_place(options_, read_environment());
    opened_ = true;
    limit_bytes_ = place.limit_bytes;
    complaint = place.complaint;
    trouble = place.why_not;
    folder_ = nullptr;
    if (!place.folder.empty()) {
      auto opened = CacheFolder::open(place.folder, true);
      if (opened) folder_ = *std::move(opened);
      if (!opened) trouble = opened.error().message;
    }
    found = folder_;
  }
  if (!complaint.empty()) log_.warning(complaint);
  if (!trouble.empty()) warn_once(trouble);
  return found;
}

std::optional<DiskCache::Found> DiskCache::find(const KernelKey& key) {
  const auto place = folder();
  if (place == nullptr) return std::nullopt;
  return find_in(*place, key, true);
}

void DiskCache::replace(const KernelKey& key, const KernelSource& source, const StoredCode& code) {
  if (const auto place = folder()) keep(*place, key, source, code);
}

std::optional<DiskCache::Found> DiskCache::find_in(const CacheFolder& folder, const KernelKey& key,
                                                   bool tell) {
  const auto begin = Clock::now();
  const std::string name = entry_name(key.digest);
  const auto refuse = [&](const std::string& why) -> std::optional<Found> {
    if (tell) log_.warning(fmt::format("a kernel on disk is not taken: {}", why));
    return std::nullopt;
  };
  const auto read = folder.read(name);
  if (!read) return refuse(read.error().message);
  if (!*read) return std::nullopt;
  const auto damaged = [&](const std::string& what) {
    return refuse(fmt::format("the entry {}/{} {}", folder.path(), name, what));
  };
  Result<CacheEntry> entry = decode_entry(**read);
  if (!entry) return damaged(entry.error().message);
  if (entry->key != key) return damaged("holds the kernel of another key");
  folder.touch(name);
  return Found{std::move(entry->code), true, milliseconds_since(begin)};
}

void DiskCache::keep(const CacheFolder& folder, const KernelKey& key, const KernelSource& source,
                     const StoredCode& code) {
  const std::string bytes = encode_entry(key, source.text, code);
  if (bytes.size() > limit_bytes_) {
    log_.debug(fmt::format("{} is not kept on disk: its {} bytes are above the cache's limit of {}",
                           key.digest, bytes.size(), limit_bytes_));
    return;
  }
  if (const Outcome written = folder.write(key.digest, bytes); !written) {
    warn_once(written.error().message);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(tidied_, true)) folder.remove_leftovers(kOldSeconds);
  }
  const auto evicted = folder.evict_to(limit_bytes_);
  evictions_.fetch_add(evicted.size(), std::memory_order_relaxed);
  for (const CachedFile& file : evicted) {
    log_.debug(fmt::format("removed {} from the disk cache, which is full", file.digest()));
  }
}

Result<DiskCache::Found> DiskCache::get(const KernelKey& key, const KernelSource& source,
                                        const Make& make) {
  const auto made = [&]() -> Result<Found> {
    Result<StoredCode> code = make();
    if (!code) return code.error();
    return Found{*std::move(code)};
  };
  const auto place = folder();
  if (place == nullptr) return made();
  if (auto found = find_in(*place, key, false)) return *std::move(found);

  const KeyLock lock = KeyLock::acquire(place, key.digest, longest_wait_, [&] {
    log_.info(fmt::format("waiting for another process that compiles {}", key.digest));
  });
  if (lock.state() == KeyLock::State::timed_out) {
    log_.warning(fmt::format("another process has been compiling {} for {} ms: no longer waiting",
                             key.digest, longest_wait_.count()));
  }
  // It may have come while this one waited for the lock, or just before. What is wrong with it is
  // told here, where it is about to be replaced.
  if (auto found = find_in(*place, key, true)) return *std::move(found);
  Result<Found> fresh = made();
  if (fresh) keep(*place, key, source, fresh->code);
  return fresh;
}

}  // namespace splitkv
