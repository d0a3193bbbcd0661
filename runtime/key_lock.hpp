// One compile in flight per key among processes: a flock on a file named by the key, which the
// system drops when its holder dies, however that happens.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/cache_folder.hpp"

namespace splitkv {

// Move-only. Lets go, and removes the lock's file, when destroyed.
class KeyLock {
 public:
  enum class State {
    held,
    impossible,  // the folder takes no file, or its file system knows no locks
    timed_out    // another held it all the time
  };

  // Waits for other holders, of this process too, at most `longest`; `waiting` is called once where
  // there is one. Never fails: without a lock a key is compiled more than once, and that is all.
  static KeyLock acquire(std::shared_ptr<const CacheFolder> folder, const std::string& digest,
                         std::chrono::milliseconds longest, const std::function<void()>& waiting);

  KeyLock(KeyLock&& other) noexcept = default;
  KeyLock& operator=(KeyLock&& other) noexcept = delete;
  ~KeyLock();

  State state() const { return state_; }

 private:
  KeyLock(std::shared_ptr<const CacheFolder> folder, std::string name, FileHandle file, State state)
      : folder_(std::move(folder)), name_(std::move(name)), file_(std::move(file)), state_(state) {}

  std::shared_ptr<const CacheFolder> folder_;
  std::string name_;
  FileHandle file_;  // open where the lock is held
  State state_;
};

}  // namespace splitkv
