#include "runtime/key_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace splitkv {
namespace {

using std::chrono::milliseconds;

// The name still leads to the open file: nobody removed it between opening and locking it.
bool is_at(const CacheFolder& folder, const std::string& name, const FileHandle& file) {
  struct stat there, here;
  return fstatat(folder.descriptor(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(file.get(), &here) == 0 && there.st_ino == here.st_ino &&
         there.st_dev == here.st_dev;
}

}  // namespace

KeyLock KeyLock::acquire(std::shared_ptr<const CacheFolder> folder, const std::string& digest,
                         milliseconds longest, const std::function<void()>& waiting) {
  constexpr milliseconds kShortestPause{1}, kLongestPause{16};
  const auto end = std::chrono::steady_clock::now() + longest;
  std::string name = lock_name(digest);
  milliseconds pause = kShortestPause;
  bool told = false;
  const auto without = [&](State state) {
    return KeyLock(std::move(folder), std::move(name), FileHandle(), state);
  };
  for (;;) {
    FileHandle file(openat(folder->descriptor(), name.c_str(),
                           O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file.is_open()) return without(State::impossible);
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      if (is_at(*folder, name, file)) {
        return KeyLock(std::move(folder), std::move(name), std::move(file), State::held);
      }
      // Otherwise its holder removed it: the next one is another file.
    } else if (errno == EWOULDBLOCK) {
      if (!told && waiting) waiting();
      told = true;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    } else if (errno != EINTR) {
      return without(State::impossible);
    }
    if (std::chrono::steady_clock::now() >= end) return without(State::timed_out);
  }
}

KeyLock::~KeyLock() {
  if (!file_.is_open()) return;
  // Removed while it is held, so that whoever locks it afterwards sees that it is gone.
  if (is_at(*folder_, name_, file_)) folder_->remove(name_);
  // A child that was forked meanwhile shares the lock; closing alone would leave it locked.
  flock(file_.get(), LOCK_UN);
}

}  // namespace splitkv
