// Packs: compiled kernels and tuning records of a list of problems, in one file or memory blob. A
// process that is given one has their kernels without a compiler, a cache or a file besides. Built
// by `splitkv pack`; docs/packing.md tells the user's side.
//
// A file of sections (sections.hpp): facts of the pack ("splitkv=VERSION"), tuning records (a line
// each), then of each kernel its key's text, its facts and its images, the split kernel's first.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache_entry.hpp"
#include "runtime/kernel_key.hpp"

namespace splitkv {

struct PackedKernel {
  KernelKey key;          // pack_key()
  std::string problem;    // canonical; of merge code "merge FORM BASE", of an appender its text
  std::string schedule;   // one of those that this is the code of; of merges and appenders ""
  std::string compiler;   // "NVRTC 13.0 build ...", "LLVM 19.1.7"
  std::string resources;  // of each kernel, "split 40 registers 0 spilled 1024 shared"; CUDA only
  StoredCode code;        // without the compiler's log

  std::string arch() const { return std::string(key_word(key.text, "arch")); }
  bool operator==(const PackedKernel&) const = default;
};

struct Pack {
  std::string version;  // of the library that made it
  std::string records;  // of tuning, a line each
  std::vector<PackedKernel> kernels;

  bool operator==(const Pack&) const = default;
};

std::string encode_pack(const Pack& pack);
// Whole and undamaged, or why not, as words that follow the pack's name.
Result<Pack> decode_pack(std::string_view bytes);

// The whole of a file. invalid_argument, naming it, where it cannot be read.
Result<std::string> read_pack_file(const std::string& path);

// The packs that a runtime was given. Thread-safe; what is found stays valid.
class Packs {
 public:
  // All of the pack, or nothing and why: damaged, or of another version of the library. Of kernels
  // that two packs hold the first one's count. origin: its name in messages. Returns its records.
  Result<std::string> add(std::string_view bytes, const std::string& origin);

  bool is_empty() const;
  // Null where no pack holds it.
  std::shared_ptr<const PackedKernel> find(const KernelKey& key) const;

  // What the packs hold instead of a kernel that they do not hold, in a sentence without its end.
  // problem, schedule: canonical texts, or empty where they are not known.
  std::string explain_miss(const KernelKey& key, std::string_view problem,
                           std::string_view schedule) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const PackedKernel>> kernels_;  // by digest
};

}  // namespace splitkv
