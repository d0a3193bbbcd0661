// `splitkv cache`: what the disk cache of compiled kernels holds, and putting it in order.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <memory>

#include "runtime/disk_cache.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

struct CacheOptions {
  std::string dir, limit, digest;
};

using Folder = std::shared_ptr<const CacheFolder>;

// Switching the cache off for programs does not hide what it holds.
CachePlace place_of(const CacheOptions& options) {
  RuntimeOptions chosen;
  chosen.cache_dir = options.dir;
  Environment environment = read_environment();
  environment.no_disk.clear();
  return cache_place(chosen, environment);
}

// Null where nothing was ever kept. A folder that is named has to be there.
Result<Folder> open_folder(const CacheOptions& options, const CachePlace& place) {
  if (place.folder.empty()) return Error{Status::library_missing, place.why_not};
  const Result<Folder> folder = CacheFolder::open(place.folder, false);
  if (folder) return folder;
  const bool missing = folder.error().status == Status::library_missing;
  if (missing && options.dir.empty()) return Folder();
  if (options.dir.empty()) return Error{Status::internal, folder.error().message};
  return invalid_argument(
      fmt::format("--dir={}: {}; a folder that SPLITKV_CACHE_DIR named would fit", options.dir,
                  folder.error().message));
}

// Whole, under its own name, and this user's; otherwise what is wrong.
Result<CacheEntry> examine(const CacheFolder& folder, const CachedFile& file) {
  const auto read = folder.read(file.name);
  if (!read) return read.error();
  if (!*read) return Error{Status::library_missing, "is gone"};
  Result<CacheEntry> entry = decode_entry(**read);
  if (entry && entry->key.digest != file.digest()) {
    return invalid_argument("holds the kernel of the key " + entry->key.digest);
  }
  return entry;
}

bool is_gone(const Result<CacheEntry>& entry) {
  return !entry && entry.error().status == Status::library_missing;
}

std::string first_line(const std::string& source) {
  const std::string line = source.substr(0, source.find('\n'));
  const size_t text = line.find_first_not_of("/; ");
  return text == std::string::npos ? "" : line.substr(text);
}

uint64_t bytes_of(const std::vector<CachedFile>& files) {
  uint64_t bytes = 0;
  for (const CachedFile& file : files) bytes += uint64_t(file.bytes);
  return bytes;
}

int list(const CacheFolder& folder, const CacheOptions&, const CachePlace&) {
  const std::vector<CachedFile> files = folder.entries();
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const Result<CacheEntry> entry = examine(folder, *file);
    if (is_gone(entry)) continue;
    const std::string used = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(file->used.tv_sec));
    if (!entry) {
      fmt::print("{}  {:>9}  {}  damaged: {}\n", file->digest(), file->bytes, used,
                 entry.error().message);
      continue;
    }
    const std::string_view head = key_head(entry->key);
    fmt::print("{}  {:>9}  {}  {:>7.1f} ms  {}  {}\n", file->digest(), file->bytes, used,
               entry->code.compile_ms,
               key_word(head, "arch").substr(0, key_word(head, "arch").find(' ')),
               first_line(entry->source));
  }
  return kExitOk;
}

int size(const CacheFolder& folder, const CacheOptions&, const CachePlace& place) {
  const std::vector<CachedFile> files = folder.entries();
  fmt::print("{} entries, {} bytes of at most {} in {}\n", files.size(), bytes_of(files),
             place.limit_bytes, folder.path());
  return kExitOk;
}

int verify_entries(const CacheFolder& folder, const CacheOptions&, const CachePlace&) {
  int whole = 0, damaged = 0;
  for (const CachedFile& file : folder.entries()) {
    const Result<CacheEntry> entry = examine(folder, file);
    if (is_gone(entry)) continue;
    ++(entry ? whole : damaged);
    if (!entry) fmt::print("damaged   {}: {}\n", file.name, entry.error().message);
  }
  fmt::print("{} whole, {} damaged{}\n", whole, damaged,
             damaged > 0 ? "; `splitkv cache prune` removes them" : "");
  return damaged > 0 ? kExitCheckFailed : kExitOk;
}

int prune(const CacheFolder& folder, const CacheOptions&, const CachePlace& place) {
  const int leftovers = folder.remove_leftovers();
  int damaged = 0;
  for (const CachedFile& file : folder.entries()) {
    const Result<CacheEntry> entry = examine(folder, file);
    if (!entry && !is_gone(entry) && folder.remove(file.name)) ++damaged;
  }
  const auto evicted = folder.evict_to(place.limit_bytes);
  fmt::print("removed {} leftovers, {} damaged entries, {} entries beyond {} bytes\n", leftovers,
             damaged, evicted.size(), place.limit_bytes);
  return kExitOk;
}

int clear(const CacheFolder& folder, const CacheOptions&, const CachePlace&) {
  std::vector<CachedFile> removed;
  for (const CachedFile& file : folder.entries()) {
    if (folder.remove(file.name)) removed.push_back(file);
  }
  folder.remove_leftovers();
  fmt::print("removed {} entries, {} bytes\n", removed.size(), bytes_of(removed));
  return kExitOk;
}

int show(const CacheFolder& folder, const CacheOptions& options, const CachePlace&) {
  for (const CachedFile& file : folder.entries()) {
    if (file.digest() != options.digest) continue;
    const Result<CacheEntry> entry = examine(folder, file);
    if (!entry) return report({Status::invalid_argument, file.name + ": " + entry.error().message});
    fmt::print("{}{}", key_head(entry->key), entry->source);
    return kExitOk;
  }
  return bad_option("DIGEST", options.digest,
                    "the cache holds no such kernel; a digest of `splitkv cache list` would fit");
}

using Action = int (*)(const CacheFolder&, const CacheOptions&, const CachePlace&);

int act(const CacheOptions& options, Action action) {
  CachePlace place = place_of(options);
  if (!place.complaint.empty()) fmt::print(stderr, "splitkv: {}\n", place.complaint);
  if (!options.limit.empty()) {
    const Result<uint64_t> limit = parse_bytes(options.limit);
    if (!limit) return bad_option("--limit", options.limit, limit.error().message);
    place.limit_bytes = *limit;
  }
  const Result<Folder> folder = open_folder(options, place);
  if (!folder) return report(folder.error());
  if (*folder != nullptr) return action(**folder, options, place);
  if (action == &show) {
    return bad_option("DIGEST", options.digest, "nothing is kept in " + place.folder);
  }
  fmt::print("nothing is kept in {}\n", place.folder);
  return kExitOk;
}

}  // namespace

void add_cache(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("cache", "Compiled kernels on disk: what is kept, and order");
  verb->require_subcommand(0, 1);  // none is told below: so that an unknown verb is named
  const auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* what, Action action) {
    CLI::App* sub = verb->add_subcommand(name, what);
    sub->add_option("--dir", options->dir,
                    "the cache's folder; else SPLITKV_CACHE_DIR, else that of the user");
    sub->callback([options, action, &status] { status = act(*options, action); });
    return sub;
  };
  add("list", "A line each: key, bytes, last use, time of its compile, architecture, problem",
      &list);
  add("size", "How many entries and bytes", &size);
  add("verify", "Reads every entry and checks its digest and name; 1 where one is damaged",
      &verify_entries);
  add("prune", "Removes what is damaged, left behind by killed processes, or beyond the limit",
      &prune)
      ->add_option("--limit", options->limit, "bytes to keep, as 512M; else SPLITKV_CACHE_LIMIT");
  add("clear", "Removes all entries", &clear);
  add("show", "Prints the key and the source of an entry", &show)
      ->add_option("digest", options->digest, "of the list")
      ->required();
  verb->callback([verb, &status] {
    if (!verb->get_subcommands().empty()) return;
    status = report(invalid_argument(
        "cache: a verb is missing; list, size, verify, prune, clear or show would fit"));
  });
}

}  // namespace splitkv::tool
