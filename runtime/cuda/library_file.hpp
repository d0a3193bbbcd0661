// What a shared library is, read from its file: a library of 100 MB takes longer to open than
// everything else that a process does to find a kernel on disk.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace splitkv::cuda {

struct LibraryFile {
  std::string path;
  std::string soname;  // the name that it was linked under: "libnvrtc.so.13"
  std::string build;   // the linker's ID of it, hexadecimal

  bool operator==(const LibraryFile&) const = default;
};

// Nothing where `path` is no ELF library of this machine's class with both a name and an ID.
std::optional<LibraryFile> read_library_file(const std::string& path);

// The file that the loader would take for a name without a slash: in the program's search path, in
// /etc/ld.so.cache, in the default folders. Empty where there is none.
std::string file_of_name(const std::string& name);

// `name` in the bytes of an ld.so.cache; empty where it is not there or the bytes are no cache.
std::string find_in_loader_cache(const std::string& bytes, const std::string& name);

// The build ID among ELF notes, hexadecimal; empty where there is none.
std::string build_id_in(const char* notes, size_t bytes);

}  // namespace splitkv::cuda
