// Files made of sections, that say themselves what they are and whether they are whole.
//
//     0  magic, 8 bytes
//     8  u32 format, 12 u32 sections
//    16  XXH3-128 (high, low) of all bytes but these 16
//    32  u64 bytes of the whole
//    40  sections: u32 kind, u32 zero, u64 bytes, then the bytes
//
// Numbers are little-endian. Entries of the disk cache and packs are such files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv {

struct Section {
  uint32_t kind = 0;
  std::string_view content;
};

// What tells one kind of file from others. `magic` has 8 bytes; what is complained of when they are
// not there follows "does not begin as ", as "entries do".
struct SectionFormat {
  std::string_view magic;
  uint32_t format = 1;
  std::string_view beginnings;
};

std::string encode_sections(const SectionFormat& format, const std::vector<Section>& sections);

// The sections of a whole and undamaged file, as views of `bytes`; or the reason why not, as words
// that follow the file's name.
Result<std::vector<Section>> decode_sections(const SectionFormat& format, std::string_view bytes);

}  // namespace splitkv
