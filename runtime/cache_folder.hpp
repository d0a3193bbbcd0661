// The folder of the disk cache: files that appear whole or not at all, and who may be trusted.
//
//   DIGEST.kernel             an entry (cache_entry.hpp)
//   DIGEST.lock               whoever compiles the key holds a flock on it; gone afterwards
//   DIGEST.PID.NUMBER.part    an entry being written, its writer holding a flock on it
//
// What killed processes leave behind has no flock any more, by which `remove_leftovers` knows it.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv {

// Owns a file descriptor, or none (-1).
class FileHandle {
 public:
  explicit FileHandle(int descriptor = -1) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept : descriptor_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int release();

 private:
  int descriptor_;
};

struct CachedFile {
  std::string name;  // "DIGEST.kernel"
  int64_t bytes = 0;
  timespec used = {};  // its modification time, which every hit renews

  std::string digest() const { return name.substr(0, name.find('.')); }
};

std::string entry_name(const std::string& digest);
std::string lock_name(const std::string& digest);

class CacheFolder {
 public:
  // The folder `path` and its subfolder `kernels`, where the files lie; made with mode 0700 where
  // they are missing and `create` is set. Refused, with a message that says why: what cannot be
  // made or opened, belongs to another user, or lets others write. library_missing: not there.
  static Result<std::shared_ptr<const CacheFolder>> open(const std::string& path, bool create);

  const std::string& path() const { return path_; }  // of the files
  int descriptor() const { return folder_.get(); }
  // Nobody removed the folder meanwhile.
  bool is_there() const;

  // The bytes of a file that is this user's alone to write; nothing where there is none; an error
  // that says why it is not trusted or cannot be read.
  Result<std::optional<std::string>> read(const std::string& name) const;
  // Counts as used now. Does nothing where that is not permitted.
  void touch(const std::string& name) const;
  // Written aside and renamed over what is there. The error says what failed and why.
  Outcome write(const std::string& digest, const std::string& bytes) const;
  bool remove(const std::string& name) const;

  std::vector<CachedFile> entries() const;  // the least recently used first
  // Removes entries, the least recently used first, until the rest has at most `limit_bytes`.
  // Returns those removed.
  std::vector<CachedFile> evict_to(uint64_t limit_bytes) const;
  // Locks and half-written entries whose holders are gone and that nobody changed for `seconds`:
  // how many were removed.
  int remove_leftovers(int64_t seconds = 0) const;

 private:
  std::vector<std::string> names() const;
  int write_once(const std::string& digest, const std::string& bytes, std::string* what) const;

  FileHandle folder_;
  std::string path_;
};

}  // namespace splitkv
