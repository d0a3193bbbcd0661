#include "runtime/cache_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

namespace splitkv {
namespace {

constexpr std::string_view kEntryEnding = ".kernel", kLockEnding = ".lock", kPartEnding = ".part";
constexpr size_t kDigestLength = 32;
constexpr int64_t kMostBytes = int64_t(1) << 30;  // of an entry that is worth reading

Error failed(std::string_view what, const std::string& path, int reason) {
  return {reason == ENOENT ? Status::library_missing : Status::internal,
          fmt::format("{} cannot be {}: {}", path, what, std::strerror(reason))};
}

bool is_digest(std::string_view text) {
  return text.size() == kDigestLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Names that the cache gave, with this ending; anything else in the folder is left alone.
bool is_named(std::string_view name, std::string_view ending) {
  return name.size() > kDigestLength && name[kDigestLength] == '.' &&
         is_digest(name.substr(0, kDigestLength)) && name.ends_with(ending);
}

// What lets nobody but this user write; otherwise why not.
Outcome check_private(const struct stat& found, const std::string& path) {
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if (found.st_uid != geteuid()) {
    return invalid_argument(fmt::format("{} belongs to user {}, not to user {}, and is not trusted",
                                        path, found.st_uid, geteuid()));
  }
  if ((found.st_mode & kOthersWrite) != 0) {
    return invalid_argument(
        fmt::format("{} may be written by others (mode {:o}) and is not trusted", path,
                    unsigned(found.st_mode & 07777)));
  }
  return Unit{};
}

// mkdir -p with mode 0700.
int make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent may be there and be no place to make folders in.
      struct stat found;
      const int reason = errno;
      if (stat(part.c_str(), &found) != 0) return reason;
    }
    if (end == std::string::npos) return 0;
  }
}

Result<FileHandle> open_private_folder(const std::string& path, bool create) {
  if (create) {
    if (const int reason = make_folders(path)) return failed("made", path, reason);
  }
  FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return failed("opened", path, errno);
  struct stat found;
  if (fstat(folder.get(), &found) != 0) return failed("examined", path, errno);
  if (const Outcome trusted = check_private(found, path); !trusted) return trusted.error();
  return folder;
}

bool read_all(int file, std::string& bytes) {
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    have += size_t(got);
  }
  bytes.resize(have);
  return true;
}

// 0, or why not. A limit of the process on file sizes is asked for beforehand, since writing beyond
// it raises a signal.
int write_all(int file, std::string_view bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes.size() > limit.rlim_cur) {
    return EFBIG;
  }
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(size_t(written));
  }
  return 0;
}

bool earlier(const CachedFile& a, const CachedFile& b) {
  return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) <
         std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
}

}  // namespace

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  FileHandle taken(std::move(other));
  std::swap(descriptor_, taken.descriptor_);
  return *this;
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

int FileHandle::release() { return std::exchange(descriptor_, -1); }

std::string entry_name(const std::string& digest) { return digest + std::string(kEntryEnding); }
std::string lock_name(const std::string& digest) { return digest + std::string(kLockEnding); }

Result<std::shared_ptr<const CacheFolder>> CacheFolder::open(const std::string& path, bool create) {
  // Who may write here may exchange the subfolder.
  const Result<FileHandle> outer = open_private_folder(path, create);
  if (!outer) return outer.error();
  auto folder = std::make_shared<CacheFolder>();
  folder->path_ = path + "/kernels";
  Result<FileHandle> inner = open_private_folder(folder->path_, create);
  if (!inner) return inner.error();
  folder->folder_ = *std::move(inner);
  return std::shared_ptr<const CacheFolder>(std::move(folder));
}

bool CacheFolder::is_there() const {
  struct stat found;
  return fstat(descriptor(), &found) == 0 && found.st_nlink > 0;
}

Result<std::optional<std::string>> CacheFolder::read(const std::string& name) const {
  const std::string path = path_ + '/' + name;
  // O_NONBLOCK: opening a pipe would wait for its writer.
  const FileHandle file(
      openat(descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open()) {
    if (errno == ENOENT) return std::optional<std::string>();
    return failed("opened", path, errno);
  }
  struct stat found;
  if (fstat(file.get(), &found) != 0) return failed("examined", path, errno);
  if (!S_ISREG(found.st_mode)) return invalid_argument(path + " is no file and is not trusted");
  if (const Outcome trusted = check_private(found, path); !trusted) return trusted.error();
  if (found.st_size > kMostBytes) {
    return invalid_argument(fmt::format("{} has {} bytes, too many", path, found.st_size));
  }
  std::string bytes(size_t(found.st_size), '\0');
  if (!read_all(file.get(), bytes)) return failed("read", path, errno);
  return std::optional<std::string>(std::move(bytes));
}

void CacheFolder::touch(const std::string& name) const {
  utimensat(descriptor(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

Outcome CacheFolder::write(const std::string& digest, const std::string& bytes) const {
  // Whoever removes leftovers may take the file for one before it is locked.
  constexpr int kAttempts = 3;
  std::string what;
  int reason = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    reason = write_once(digest, bytes, &what);
    if (reason == 0) return Unit{};
    if (reason != ENOENT) break;
  }
  return failed(what, path_ + '/' + entry_name(digest), reason);
}

// 0, or why not, and what could not be done.
int CacheFolder::write_once(const std::string& digest, const std::string& bytes,
                            std::string* what) const {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), GRND_NONBLOCK) < 0) number = uint64_t(clock());
  const std::string part = fmt::format("{}.{}.{:016x}{}", digest, getpid(), number, kPartEnding);
  *what = "made";
  const FileHandle file(openat(descriptor(), part.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return errno;
  flock(file.get(), LOCK_EX | LOCK_NB);  // until it is closed
  *what = "written";
  int reason = write_all(file.get(), bytes);
  if (reason == 0) {
    *what = "renamed";
    const std::string name = entry_name(digest);
    if (renameat(descriptor(), part.c_str(), descriptor(), name.c_str()) == 0) return 0;
    reason = errno;
  }
  remove(part);
  return reason;
}

bool CacheFolder::remove(const std::string& name) const {
  return unlinkat(descriptor(), name.c_str(), 0) == 0;
}

std::vector<std::string> CacheFolder::names() const {
  std::vector<std::string> names;
  // A description of its own: positions of a shared one would disturb each other.
  FileHandle again(openat(descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* listing = again.is_open() ? fdopendir(again.get()) : nullptr;
  if (listing == nullptr) return names;
  again.release();  // closed with the listing
  while (const dirent* item = readdir(listing)) names.emplace_back(item->d_name);
  closedir(listing);
  return names;
}

std::vector<CachedFile> CacheFolder::entries() const {
  std::vector<CachedFile> files;
  for (std::string& name : names()) {
    struct stat found;
    if (!is_named(name, kEntryEnding) || name.size() != kDigestLength + kEntryEnding.size())
      continue;
    if (fstatat(descriptor(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back({std::move(name), int64_t(found.st_size), found.st_mtim});
  }
  std::sort(files.begin(), files.end(), &earlier);
  return files;
}

std::vector<CachedFile> CacheFolder::evict_to(uint64_t limit_bytes) const {
  const std::vector<CachedFile> files = entries();
  uint64_t bytes = 0;
  for (const CachedFile& file : files) bytes += uint64_t(file.bytes);
  std::vector<CachedFile> removed;
  for (const CachedFile& file : files) {
    if (bytes <= limit_bytes) break;
    bytes -= uint64_t(file.bytes);
    if (remove(file.name)) removed.push_back(file);
  }
  return removed;
}

int CacheFolder::remove_leftovers(int64_t seconds) const {
  const time_t latest = time(nullptr) - time_t(seconds);
  int removed = 0;
  for (const std::string& name : names()) {
    if (!is_named(name, kLockEnding) && !is_named(name, kPartEnding)) continue;
    const FileHandle file(
        openat(descriptor(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat found;
    if (!file.is_open() || fstat(file.get(), &found) != 0 || found.st_mtime > latest) continue;
    // Removed while locked: whoever waits for the lock sees that its file is gone.
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    removed += remove(name) ? 1 : 0;
  }
  return removed;
}

}  // namespace splitkv
