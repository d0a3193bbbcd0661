#include "runtime/sections.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr size_t kMagicBytes = 8, kDigestAt = 16, kTotalAt = 32, kHeaderBytes = 40,
                 kSectionHeaderBytes = 16;

template <class Number>
void put(std::string& bytes, size_t at, Number value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <class Number>
Number number_at(std::string_view bytes, size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

XXH128_hash_t digest_of(std::string_view bytes) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, bytes.data(), kDigestAt);
  XXH3_128bits_update(&state, bytes.data() + kTotalAt, bytes.size() - kTotalAt);
  return XXH3_128bits_digest(&state);
}

Error bad(std::string why) { return invalid_argument(std::move(why)); }

Outcome check_header(const SectionFormat& expected, std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return bad(fmt::format("has only {} bytes", bytes.size()));
  if (!bytes.starts_with(expected.magic)) {
    return bad(fmt::format("does not begin as {}", expected.beginnings));
  }
  if (const auto format = number_at<uint32_t>(bytes, kMagicBytes); format != expected.format) {
    return bad(fmt::format("has format {}, this library reads {}", format, expected.format));
  }
  const auto total = number_at<uint64_t>(bytes, kTotalAt);
  if (total != bytes.size()) {
    return bad(fmt::format("has {} bytes, and {} were written", bytes.size(), total));
  }
  const XXH128_hash_t digest = digest_of(bytes);
  if (digest.high64 != number_at<uint64_t>(bytes, kDigestAt) ||
      digest.low64 != number_at<uint64_t>(bytes, kDigestAt + 8)) {
    return bad("has bytes that its digest does not know");
  }
  return Unit{};
}

}  // namespace

std::string encode_sections(const SectionFormat& format, const std::vector<Section>& sections) {
  size_t total = kHeaderBytes;
  for (const Section& section : sections) total += kSectionHeaderBytes + section.content.size();
  std::string bytes(kHeaderBytes, '\0');
  bytes.reserve(total);
  bytes.replace(0, kMagicBytes, format.magic);
  put(bytes, kMagicBytes, format.format);
  put(bytes, 12, uint32_t(sections.size()));
  for (const Section& section : sections) {
    const size_t at = bytes.size();
    bytes.resize(at + kSectionHeaderBytes);
    put(bytes, at, section.kind);
    put(bytes, at + 4, uint32_t(0));
    put(bytes, at + 8, uint64_t(section.content.size()));
    bytes += section.content;
  }
  put(bytes, kTotalAt, uint64_t(bytes.size()));
  const XXH128_hash_t digest = digest_of(bytes);
  put(bytes, kDigestAt, digest.high64);
  put(bytes, kDigestAt + 8, digest.low64);
  return bytes;
}

Result<std::vector<Section>> decode_sections(const SectionFormat& format, std::string_view bytes) {
  if (const Outcome whole = check_header(format, bytes); !whole) return whole.error();
  const auto count = number_at<uint32_t>(bytes, 12);
  std::vector<Section> sections;
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; i < count; ++i) {
    if (bytes.size() - at < kSectionHeaderBytes) return bad("ends inside a section");
    const auto kind = number_at<uint32_t>(bytes, at);
    const auto size = number_at<uint64_t>(bytes, at + 8);
    at += kSectionHeaderBytes;
    if (bytes.size() - at < size) return bad("ends inside a section");
    sections.push_back({kind, bytes.substr(at, size)});
    at += size;
  }
  if (at != bytes.size()) return bad("has bytes beyond its sections");
  return sections;
}

}  // namespace splitkv
