#include "runtime/cuda/library_paths.hpp"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>

namespace splitkv::cuda {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

struct LoadedSearch {
  std::string_view prefix;
  std::string_view excluded;
  Paths found;
};

int note_loaded(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<LoadedSearch*>(data);
  const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const std::string file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with(search.prefix)) return 0;
  if (!search.excluded.empty() && file.starts_with(search.excluded)) return 0;
  search.found.push_back(path);
  return 0;
}

// Paths of libraries already in this process whose file name starts with `prefix`: a framework's
// own copy, whatever its name, is better than a second one.
Paths loaded_libraries(std::string_view prefix, std::string_view excluded) {
  LoadedSearch search{prefix, excluded, {}};
  dl_iterate_phdr(note_loaded, &search);
  return search.found;
}

void append(Paths& to, const Paths& from) {
  for (const std::string& path : from) {
    if (std::find(to.begin(), to.end(), path) == to.end()) to.push_back(path);
  }
}

// Entries of `folder` whose names have this prefix and contain `part`, newest name first.
Paths entries(const fs::path& folder, std::string_view prefix, std::string_view part = "") {
  Paths found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.find(part) != std::string::npos) {
      found.push_back(it->path().string());
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// Real NVRTC files of one folder: libnvrtc.so.13, PyTorch's libnvrtc-1ea278b5.so.12, ...; neither
// its builtins, which it opens itself, nor the alternative build.
Paths nvrtc_files(const fs::path& folder) {
  Paths found;
  for (const std::string& path : entries(folder, "libnvrtc", ".so.")) {
    const std::string file = fs::path(path).filename().string();
    if (file.starts_with("libnvrtc-builtins") || file.find(".alt.") != std::string::npos) continue;
    found.push_back(path);
  }
  return found;
}

Paths split_path(std::string_view text) {
  Paths parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(':'), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The installation that a python3 on the PATH belongs to: .../bin/python3, links followed, is in
// PREFIX/bin. A pyenv shim is a script in ROOT/shims, whose versions lie in ROOT/versions.
Paths python_prefixes(const Environment& environment) {
  Paths prefixes;
  if (!environment.virtual_env.empty()) prefixes.push_back(environment.virtual_env);
  for (const std::string& folder : split_path(environment.path)) {
    std::error_code error;
    const fs::path python = fs::path(folder) / "python3";
    if (!fs::exists(python, error)) continue;
    if (fs::path(folder).filename() == "shims") {
      append(prefixes, entries(fs::path(folder).parent_path() / "versions", ""));
      continue;
    }
    append(prefixes, {fs::path(folder).parent_path().string()});
    const fs::path real = fs::canonical(python, error);
    if (!error) append(prefixes, {real.parent_path().parent_path().string()});
  }
  return prefixes;
}

Paths site_packages(const Environment& environment) {
  Paths folders;
  for (const std::string& prefix : python_prefixes(environment)) {
    for (const char* lib : {"lib", "lib64", "local/lib"}) {
      append(folders, {(fs::path(prefix) / lib / "python3" / "dist-packages").string()});
      for (const std::string& python : entries(fs::path(prefix) / lib, "python3.")) {
        append(folders, {(fs::path(python) / "site-packages").string(),
                         (fs::path(python) / "dist-packages").string()});
      }
    }
  }
  return folders;
}

}  // namespace

Paths driver_candidates(const Environment& environment) {
  if (!environment.libcuda.empty()) return {environment.libcuda};
  Paths paths = loaded_libraries("libcuda.so", "");
  append(paths,
         {"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
          "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"});
  return paths;
}

Paths nvrtc_candidates(const Environment& environment) {
  if (!environment.libnvrtc.empty()) return {environment.libnvrtc};
  Paths paths = loaded_libraries("libnvrtc", "libnvrtc-builtins");
  append(paths, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  for (const std::string& home : {environment.cuda_home, environment.cuda_path}) {
    if (!home.empty()) append(paths, nvrtc_files(fs::path(home) / "lib64"));
  }
  append(paths, {"/usr/local/cuda/lib64/libnvrtc.so"});
  for (const std::string& toolkit : entries("/usr/local", "cuda")) {
    append(paths, nvrtc_files(fs::path(toolkit) / "lib64"));
  }
  for (const std::string& site : site_packages(environment)) {
    append(paths, nvrtc_files(fs::path(site) / "nvidia/cu13/lib"));
    append(paths, nvrtc_files(fs::path(site) / "nvidia/cuda_nvrtc/lib"));
    append(paths, nvrtc_files(fs::path(site) / "torch/lib"));
  }
  return paths;
}

}  // namespace splitkv::cuda
