#include "runtime/cuda/library_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace splitkv::cuda {
namespace {

constexpr size_t kMostHeaders = 256;
constexpr size_t kMostBytes = size_t(1) << 20;  // of notes, dynamic entries or names

// Parts of a file; nothing beyond its end, and nothing larger than such parts are.
class Parts {
 public:
  explicit Parts(const std::string& path) : file_(path, std::ios::binary) {}

  bool read(uint64_t at, void* to, size_t bytes) {
    file_.clear();
    file_.seekg(std::streamoff(at));
    file_.read(static_cast<char*>(to), std::streamsize(bytes));
    return bool(file_);
  }
  std::string text(uint64_t at, uint64_t bytes) {
    std::string text(bytes <= kMostBytes ? size_t(bytes) : 0, '\0');
    if (!read(at, text.data(), text.size())) text.clear();
    return text;
  }

 private:
  std::ifstream file_;
};

using Segments = std::vector<ElfW(Phdr)>;

Segments segments_of(Parts& file) {
  ElfW(Ehdr) header;
  constexpr int own_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!file.read(0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != own_class || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum > kMostHeaders) {
    return {};
  }
  Segments segments(header.e_phnum);
  if (!file.read(header.e_phoff, segments.data(), segments.size() * sizeof(ElfW(Phdr)))) return {};
  return segments;
}

// Where in the file an address of memory lies; nothing outside of what is loaded from it.
std::optional<uint64_t> place_of(const Segments& segments, uint64_t address) {
  for (const ElfW(Phdr) & segment : segments) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr ||
        address - segment.p_vaddr >= segment.p_filesz) {
      continue;
    }
    return segment.p_offset + (address - segment.p_vaddr);
  }
  return std::nullopt;
}

std::string soname_of(Parts& file, const Segments& segments, const ElfW(Phdr) & dynamic) {
  const std::string bytes = file.text(dynamic.p_offset, dynamic.p_filesz);
  uint64_t names = 0, names_bytes = 0;
  std::optional<uint64_t> name;
  for (size_t at = 0; at + sizeof(ElfW(Dyn)) <= bytes.size(); at += sizeof(ElfW(Dyn))) {
    ElfW(Dyn) entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) names = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) names_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_SONAME) name = entry.d_un.d_val;
  }
  const auto place = place_of(segments, names);
  if (!name || !place || *name >= names_bytes) return "";
  return file.text(*place + *name, std::min<uint64_t>(names_bytes - *name, 256)).c_str();
}

bool is_file(const std::string& path) { return std::ifstream(path).good(); }

// Folders of the program's search path, those of the system's defaults last.
struct SearchPath {
  std::vector<std::string> own, defaults;
};

SearchPath search_path() {
  SearchPath path;
  const std::unique_ptr<void, int (*)(void*)> program(dlopen(nullptr, RTLD_LAZY), dlclose);
  Dl_serinfo size{};
  if (program == nullptr || dlinfo(program.get(), RTLD_DI_SERINFOSIZE, &size) != 0) return path;
  std::vector<char> bytes(size.dls_size);
  auto* info = reinterpret_cast<Dl_serinfo*>(bytes.data());
  info->dls_size = size.dls_size;
  info->dls_cnt = size.dls_cnt;
  if (dlinfo(program.get(), RTLD_DI_SERINFO, info) != 0) return path;
  for (unsigned i = 0; i < info->dls_cnt; ++i) {
    const bool is_default = (info->dls_serpath[i].dls_flags & LA_SER_DEFAULT) != 0;
    (is_default ? path.defaults : path.own).emplace_back(info->dls_serpath[i].dls_name);
  }
  return path;
}

std::string first_of(const std::vector<std::string>& folders, const std::string& name) {
  for (const std::string& folder : folders) {
    const std::string path = folder + '/' + name;
    if (is_file(path)) return path;
  }
  return "";
}

// The layout of glibc's ld.so.cache, format 1.1.
struct CacheHeader {
  char magic[20];  // with the version
  uint32_t entries, string_bytes;
  uint32_t rest[5];
};
static_assert(sizeof(CacheHeader) == 48);
struct CacheEntry {
  int32_t flags;
  uint32_t name, path;  // places behind the header's begin
  uint32_t os_version;
  uint64_t capabilities;
};
static_assert(sizeof(CacheEntry) == 24);
constexpr char kCacheMagic[] = "glibc-ld.so.cache1.1";
// Libraries for glibc, of this machine's own kind.
#if defined(__x86_64__)
constexpr int32_t kOwnFlags = 0x0303;
#elif defined(__aarch64__)
constexpr int32_t kOwnFlags = 0x0a03;
#else
constexpr int32_t kOwnFlags = -1;
#endif

}  // namespace

std::string build_id_in(const char* notes, size_t bytes) {
  constexpr ElfW(Word) kBuildId = 3;  // NT_GNU_BUILD_ID
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= bytes) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof(note));
    const char* name = notes + at + sizeof(note);
    const size_t end = at + sizeof(note) + padded(note.n_namesz) + padded(note.n_descsz);
    if (end > bytes) break;
    if (note.n_type == kBuildId && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      const auto* id = reinterpret_cast<const unsigned char*>(name + padded(note.n_namesz));
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) text += fmt::format("{:02x}", id[i]);
      return text;
    }
    at = end;
  }
  return "";
}

std::optional<LibraryFile> read_library_file(const std::string& path) {
  Parts file(path);
  const Segments segments = segments_of(file);
  LibraryFile found{path, "", ""};
  for (const ElfW(Phdr) & segment : segments) {
    if (segment.p_type == PT_NOTE && found.build.empty()) {
      const std::string notes = file.text(segment.p_offset, segment.p_filesz);
      found.build = build_id_in(notes.data(), notes.size());
    }
    if (segment.p_type == PT_DYNAMIC) found.soname = soname_of(file, segments, segment);
  }
  if (found.build.empty() || found.soname.empty()) return std::nullopt;
  return found;
}

std::string find_in_loader_cache(const std::string& bytes, const std::string& name) {
  // The older format may stand before it.
  const size_t begin = bytes.find(std::string_view(kCacheMagic, sizeof(kCacheMagic) - 1));
  CacheHeader header;
  if (begin == std::string::npos || bytes.size() - begin < sizeof(header)) return "";
  const std::string_view cache = std::string_view(bytes).substr(begin);
  std::memcpy(&header, cache.data(), sizeof(header));
  const auto text_at = [&](uint32_t place) -> std::string_view {
    const size_t end = place < cache.size() ? cache.find('\0', place) : std::string_view::npos;
    return end == std::string_view::npos ? "" : cache.substr(place, end - place);
  };
  for (uint64_t i = 0; i < header.entries; ++i) {
    CacheEntry entry;
    const size_t at = sizeof(header) + size_t(i) * sizeof(entry);
    if (at + sizeof(entry) > cache.size()) return "";
    std::memcpy(&entry, cache.data() + at, sizeof(entry));
    if (entry.flags == kOwnFlags && entry.capabilities == 0 && text_at(entry.name) == name) {
      return std::string(text_at(entry.path));
    }
  }
  return "";
}

std::string file_of_name(const std::string& name) {
  const SearchPath search = search_path();
  std::string found = first_of(search.own, name);
  if (!found.empty()) return found;
  std::ifstream cache("/etc/ld.so.cache", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(cache), std::istreambuf_iterator<char>()};
  found = find_in_loader_cache(bytes, name);
  if (!found.empty() && is_file(found)) return found;
  return first_of(search.defaults, name);
}

}  // namespace splitkv::cuda
