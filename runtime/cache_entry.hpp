// One entry of the disk cache: compiled code as bytes that say themselves what they are.
// Sections (sections.hpp), in order: the head of the key's text, the emitted source, the
// milliseconds of the compile, the compiler's log, an image for each cubin or object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/result.hpp"
#include "runtime/kernel_key.hpp"

namespace splitkv {

// Compiled code as it can be kept: the cubin of each kernel, the split one first, or one CPU
// object.
struct StoredCode {
  std::vector<std::string> images;
  std::string log;        // the compiler's
  double compile_ms = 0;  // of the compile that made it

  bool operator==(const StoredCode&) const = default;
};

struct CacheEntry {
  KernelKey key;       // made anew from the head and the source that the entry holds
  std::string source;  // as it was emitted, comments included
  StoredCode code;
};

std::string encode_entry(const KernelKey& key, const std::string& source, const StoredCode& code);

// Whole and undamaged, or the reason why not, as words that follow "the entry ".
Result<CacheEntry> decode_entry(std::string_view bytes);

}  // namespace splitkv
