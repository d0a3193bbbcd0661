// Misses that become hits, damage that becomes a miss, and what is dropped when there is too much.
#include "runtime/disk_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;

namespace {

// From disk in a cache of its own, with nothing to say.
void expect_hit(const std::string& folder, int i) {
  CacheCase fresh(folder);
  int compiles = 0;
  const auto found = get(fresh.cache, i, &compiles);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->from_disk);
  EXPECT_EQ(found->code, code_of(i));
  EXPECT_EQ(compiles, 0);
  EXPECT_EQ(fresh.warnings(), 0) << fresh.warning();
}

// Compiled anew with one warning that holds `words`, and whole again afterwards.
void expect_replaced(const std::string& folder, int i, const std::string& words) {
  CacheCase fresh(folder);
  int compiles = 0;
  const auto found = get(fresh.cache, i, &compiles);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->from_disk);
  EXPECT_EQ(found->code, code_of(i));
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(fresh.warnings(), 1);
  EXPECT_NE(fresh.warning().find(words), std::string::npos) << fresh.warning();
  expect_hit(folder, i);
}

TEST(DiskCacheOf, AKernelIsCompiledOnceAndFoundAfterwards) {
  const TempFolder folder;
  CacheCase first(folder / "a/b/c");  // made with its parents
  int compiles = 0;
  const auto made = get(first.cache, 1, &compiles);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->from_disk);
  EXPECT_EQ(made->code, code_of(1));
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(first.warnings(), 0) << first.warning();
  expect_hit(folder / "a/b/c", 1);
  EXPECT_EQ(names_in(folder / "a/b/c/kernels"),
            std::vector<std::string>{entry_name(key_of_source(1).digest)});
}

TEST(DiskCacheOf, FolderAndFilesAreTheUsersAlone) {
  const TempFolder folder;
  const mode_t before = umask(0);
  CacheCase one(folder / "cache");
  ASSERT_TRUE(get(one.cache, 1).ok());
  umask(before);
  struct stat found;
  for (const char* name : {"cache", "cache/kernels"}) {
    ASSERT_EQ(stat((folder / name).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, mode_t(0700)) << name;
  }
  ASSERT_EQ(stat(entry_path(folder / "cache", 1).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, mode_t(0600));
}

TEST(DiskCacheOf, AFailureIsReportedAndNotKept) {
  const TempFolder folder;
  CacheCase one(folder.path());
  const auto failed = one.cache.get(key_of_source(1), source_of(1), []() -> Result<StoredCode> {
    return Error{Status::compile_failed, "the log"};
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error(), (Error{Status::compile_failed, "the log"}));
  EXPECT_TRUE(names_in(folder / "kernels").empty());
  EXPECT_TRUE(get(one.cache, 1).ok());
}

TEST(DiskCacheOf, FindLooksAndMakesNothing) {
  const TempFolder folder;
  CacheCase one(folder.path());
  EXPECT_FALSE(one.cache.find(key_of_source(1)));
  ASSERT_TRUE(get(one.cache, 1).ok());
  const auto found = one.cache.find(key_of_source(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, code_of(1));
  EXPECT_GT(found->disk_ms, 0);
}

TEST(DiskCacheOf, CutEntriesAreReplacedWithOneWarning) {
  const TempFolder folder;
  CacheCase one(folder.path());
  ASSERT_TRUE(get(one.cache, 1).ok());
  const std::string path = entry_path(folder.path(), 1);
  const size_t size = contents(path).size();
  for (const size_t kept : {size_t(0), size_t(1), size_t(39), size / 2, size - 1}) {
    ASSERT_EQ(truncate(path.c_str(), off_t(kept)), 0);
    expect_replaced(folder.path(), 1, path + " has");
  }
}

TEST(DiskCacheOf, TurnedBitsAndGarbageAreReplacedWithOneWarning) {
  const TempFolder folder;
  CacheCase one(folder.path());
  ASSERT_TRUE(get(one.cache, 1).ok());
  const std::string path = entry_path(folder.path(), 1), whole = contents(path);
  for (size_t at = 0; at < whole.size(); at += 97) {
    std::string turned = whole;
    turned[at] = char(turned[at] ^ 4);
    overwrite(path, turned);
    expect_replaced(folder.path(), 1, path);
  }
  overwrite(path, std::string(5000, 'x'));
  expect_replaced(folder.path(), 1, "does not begin as entries do");
  overwrite(path, whole + "more");
  expect_replaced(folder.path(), 1, "were written");
}

TEST(DiskCacheOf, SwappedEntriesAreMissesBothWays) {
  const TempFolder folder;
  CacheCase one(folder.path());
  ASSERT_TRUE(get(one.cache, 1).ok());
  ASSERT_TRUE(get(one.cache, 2).ok());
  const std::string a = entry_path(folder.path(), 1), b = entry_path(folder.path(), 2);
  const std::string of_a = contents(a), of_b = contents(b);
  overwrite(a, of_b);
  overwrite(b, of_a);
  expect_replaced(folder.path(), 1, "holds the kernel of another key");
  expect_replaced(folder.path(), 2, "holds the kernel of another key");
  EXPECT_EQ(contents(a), of_a);
}

TEST(DiskCacheOf, TimesPlacesAndLinksDoNotMatter) {
  const TempFolder folder;
  {
    CacheCase one(folder / "cache");
    ASSERT_TRUE(get(one.cache, 1).ok());
  }
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, entry_path(folder / "cache", 1).c_str(), old, 0), 0);
  expect_hit(folder / "cache", 1);
  ASSERT_EQ(rename((folder / "cache").c_str(), (folder / "moved").c_str()), 0);
  expect_hit(folder / "moved", 1);
  ASSERT_EQ(symlink((folder / "moved").c_str(), (folder / "link").c_str()), 0);
  expect_hit(folder / "link", 1);
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  expect_hit("moved", 1);
  std::filesystem::current_path(here);
}

TEST(DiskCacheOf, VersionsOptionsArchitecturesAndTemplateTextAreMissesCommentsAreNot) {
  const TempFolder folder;
  CacheCase one(folder.path());
  const CompilerFacts facts{"NVRTC 13.0 build 65be", {"-arch=sm_90a", "-std=c++20"}, "sm_90a"};
  const KernelSource source{SourceLanguage::cuda, "// a\nint x = 1;\n", "split", "reduce"};
  const auto is_hit = [&](const KernelSource& of, const CompilerFacts& by) {
    const auto found =
        one.cache.get(kernel_key(of, by), of, []() -> Result<StoredCode> { return code_of(1); });
    return found.ok() && found->from_disk;
  };
  EXPECT_FALSE(is_hit(source, facts));
  EXPECT_TRUE(is_hit(source, facts));
  CompilerFacts version = facts, build = facts, options = facts, arch = facts;
  version.compiler = "NVRTC 13.1 build 65be";
  build.compiler = "NVRTC 13.0 build 65bf";
  options.options.push_back("-lineinfo");
  arch.arch = "sm_80";
  for (const CompilerFacts& changed : {version, build, options, arch}) {
    EXPECT_FALSE(is_hit(source, changed));
    EXPECT_TRUE(is_hit(source, changed));
  }
  KernelSource comment = source, text = source, entry = source;
  comment.text = "// another comment\n  // and one more\nint x = 1;\n";
  text.text = "// a\nint x = 2;\n";
  entry.reduce_entry = "";
  EXPECT_TRUE(is_hit(comment, facts));
  EXPECT_FALSE(is_hit(text, facts));
  EXPECT_FALSE(is_hit(entry, facts));
}

TEST(DiskCacheOf, TheLeastRecentlyUsedGoFirst) {
  const TempFolder folder;
  const auto size = encode_entry(key_of_source(1), source_of(1).text, code_of(1)).size();
  CacheCase one(folder.path(), 4 * size + size / 2);
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(get(one.cache, i).ok());
    const timespec used[2] = {{1000 + i, 0}, {1000 + i, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, entry_path(folder.path(), i).c_str(), used, 0), 0);
  }
  ASSERT_TRUE(get(one.cache, 1)->from_disk);  // used now
  ASSERT_FALSE(get(one.cache, 5)->from_disk);
  EXPECT_EQ(access(entry_path(folder.path(), 2).c_str(), F_OK), -1);
  for (const int kept : {1, 3, 4, 5}) {
    EXPECT_EQ(access(entry_path(folder.path(), kept).c_str(), F_OK), 0) << kept;
  }
  EXPECT_EQ(one.warnings(), 0) << one.warning();
}

TEST(DiskCacheOf, AnEntryBeyondTheLimitIsNotKeptAndDrivesNoneOut) {
  const TempFolder folder;
  const auto size = encode_entry(key_of_source(1), source_of(1).text, code_of(1)).size();
  CacheCase one(folder.path(), size + 100);
  ASSERT_TRUE(get(one.cache, 1).ok());
  const auto large = one.cache.get(key_of_source(2), source_of(2), [&]() -> Result<StoredCode> {
    return StoredCode{{std::string(3 * size, 'x')}, "", 1};
  });
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->code.images[0].size(), 3 * size);
  EXPECT_TRUE(get(one.cache, 1)->from_disk);
  EXPECT_EQ(names_in(folder / "kernels").size(), 1u);
}

TEST(DiskCacheOf, AFolderThatWasRemovedIsMadeAgain) {
  const TempFolder folder;
  CacheCase one(folder / "cache");
  ASSERT_TRUE(get(one.cache, 1).ok());
  std::filesystem::remove_all(folder / "cache");
  EXPECT_FALSE(get(one.cache, 1)->from_disk);
  EXPECT_TRUE(get(one.cache, 1)->from_disk);
}

TEST(CachePlaceOf, OptionsComeBeforeTheEnvironmentAndThatBeforeXdg) {
  RuntimeOptions options;
  Environment environment;
  EXPECT_EQ(cache_place(options, environment).folder, "");
  EXPECT_NE(cache_place(options, environment).why_not.find("SPLITKV_CACHE_DIR"), std::string::npos);
  environment.home = "/home/me";
  EXPECT_EQ(cache_place(options, environment).folder, "/home/me/.cache/splitkv");
  EXPECT_EQ(cache_place(options, environment).limit_bytes, kDefaultCacheBytes);
  environment.xdg_cache_home = "relative";  // does not count
  EXPECT_EQ(cache_place(options, environment).folder, "/home/me/.cache/splitkv");
  environment.xdg_cache_home = "/xdg";
  EXPECT_EQ(cache_place(options, environment).folder, "/xdg/splitkv");
  environment.cache_dir = "/mine";
  environment.cache_limit = "3M";
  EXPECT_EQ(cache_place(options, environment).folder, "/mine");
  EXPECT_EQ(cache_place(options, environment).limit_bytes, uint64_t(3) << 20);
  options.cache_dir = "/theirs";
  options.cache_limit_bytes = 77;
  EXPECT_EQ(cache_place(options, environment).folder, "/theirs");
  EXPECT_EQ(cache_place(options, environment).limit_bytes, 77u);
  environment.no_disk = "0";
  EXPECT_EQ(cache_place(options, environment).folder, "/theirs");
  environment.no_disk = "1";
  EXPECT_EQ(cache_place(options, environment).folder, "");
  EXPECT_EQ(cache_place(options, environment).why_not, "");
  environment.no_disk = "";
  options.no_disk = true;
  EXPECT_EQ(cache_place(options, environment).folder, "");
}

TEST(CachePlaceOf, SizesHaveUnitsAndWrongOnesAreNamed) {
  EXPECT_EQ(*parse_bytes("12"), 12u);
  EXPECT_EQ(*parse_bytes("2K"), 2048u);
  EXPECT_EQ(*parse_bytes("5G"), uint64_t(5) << 30);
  for (const char* wrong : {"", "0", "-1", "M", "5T", "5MB", "1.5G", "99999999999G", " 5"}) {
    const auto parsed = parse_bytes(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_NE(parsed.error().message.find("512M would fit"), std::string::npos);
  }
  Environment environment;
  environment.home = "/home/me";
  environment.cache_limit = "much";
  const CachePlace place = cache_place({}, environment);
  EXPECT_EQ(place.limit_bytes, kDefaultCacheBytes);
  EXPECT_EQ(place.complaint.find("SPLITKV_CACHE_LIMIT=much: much is no number of bytes"), 0u)
      << place.complaint;
}

}  // namespace
