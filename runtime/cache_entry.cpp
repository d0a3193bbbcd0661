#include "runtime/cache_entry.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/sections.hpp"

namespace splitkv {
namespace {

// A byte above 127 and both line ends: whatever changes text changes this.
constexpr SectionFormat kFormat{"\x89SKV\r\n\x1a\n", 1, "entries do"};

enum Kind : uint32_t { key_head_kind = 1, source_kind, compile_ms_kind, log_kind, image_kind };
constexpr size_t kSectionsBeforeImages = 4;

Error bad(std::string why) { return invalid_argument(std::move(why)); }

}  // namespace

std::string encode_entry(const KernelKey& key, const std::string& source, const StoredCode& code) {
  std::string milliseconds(sizeof(double), '\0');
  std::memcpy(milliseconds.data(), &code.compile_ms, sizeof(double));
  std::vector<Section> sections = {{key_head_kind, key_head(key)},
                                   {source_kind, source},
                                   {compile_ms_kind, milliseconds},
                                   {log_kind, code.log}};
  for (const std::string& image : code.images) sections.push_back({image_kind, image});
  return encode_sections(kFormat, sections);
}

Result<CacheEntry> decode_entry(std::string_view bytes) {
  const auto sections = decode_sections(kFormat, bytes);
  if (!sections) return sections.error();
  for (size_t i = 0; i < sections->size(); ++i) {
    if ((*sections)[i].kind != std::min<size_t>(i + 1, kSectionsBeforeImages + 1)) {
      return bad("has sections in another order");
    }
  }
  if (sections->size() <= kSectionsBeforeImages) return bad("holds no code");
  const std::string_view milliseconds = (*sections)[2].content;
  CacheEntry entry;
  entry.source = (*sections)[1].content;
  if (milliseconds.size() != sizeof(double)) return bad("has a time that is none");
  std::memcpy(&entry.code.compile_ms, milliseconds.data(), sizeof(double));
  entry.code.log = (*sections)[3].content;
  for (size_t i = kSectionsBeforeImages; i < sections->size(); ++i) {
    entry.code.images.emplace_back((*sections)[i].content);
  }
  entry.key = key_of((*sections)[0].content, entry.source);
  return entry;
}

}  // namespace splitkv
