// What a library's file says of itself, and which file a plain name means, held against what the
// loader does.
#include "runtime/cuda/library_file.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "runtime/cuda/symbols.hpp"
#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;

namespace {

// A function that no sanitizer puts its own in front of.
const void* const kOfTheCLibrary = reinterpret_cast<const void*>(&gnu_get_libc_version);

std::string file_of(const void* symbol) {
  Dl_info info;
  return dladdr(symbol, &info) != 0 ? std::filesystem::canonical(info.dli_fname).string() : "";
}

// Bytes of an ld.so.cache of format 1.1.
std::string loader_cache(const std::vector<std::pair<std::string, std::string>>& libraries,
                         int32_t flags) {
  std::string bytes = "glibc-ld.so.cache1.1", strings;
  const auto add = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  add(bytes, uint32_t(libraries.size()));
  bytes.resize(48);
  const size_t text_at = bytes.size() + libraries.size() * 24;
  for (const auto& [name, path] : libraries) {
    add(bytes, flags);
    add(bytes, uint32_t(text_at + strings.size()));
    strings += name + '\0';
    add(bytes, uint32_t(text_at + strings.size()));
    strings += path + '\0';
    add(bytes, uint32_t(0));
    add(bytes, uint64_t(0));
  }
  return bytes + strings;
}

TEST(LibraryFile, OfTheCLibraryIsThatOfTheLoader) {
  const std::string path = file_of(kOfTheCLibrary);
  const auto file = cuda::read_library_file(path);
  ASSERT_TRUE(file.has_value()) << path;
  EXPECT_EQ(file->soname, "libc.so.6");
  EXPECT_EQ(file->path, path);
  EXPECT_EQ(file->build.size(), 40u) << file->build;
  EXPECT_EQ(std::filesystem::canonical(cuda::file_of_name("libc.so.6")), path);
  EXPECT_EQ(cuda::file_of_name("libsplitkv_is_not_here.so.1"), "");
}

TEST(LibraryFile, OfNvrtcTellsWhatOpeningItTells) {
  const auto before = cuda::nvrtc_identity();
  const auto nvrtc = cuda::nvrtc();
  if (!nvrtc) {
    EXPECT_FALSE(before.has_value());
    GTEST_SKIP() << "needs NVRTC: " << nvrtc.error().message;
  }
  if (!before) GTEST_SKIP() << "this NVRTC says nothing of itself: " << (*nvrtc)->path;
  EXPECT_EQ(before->build, (*nvrtc)->build);
  EXPECT_EQ(before->major, (*nvrtc)->major);
  if (before->path.find('/') != std::string::npos) {  // not so where it was open already
    EXPECT_EQ(std::filesystem::canonical(before->path),
              file_of(reinterpret_cast<const void*>((*nvrtc)->nvrtcVersion)));
  }
  EXPECT_EQ(cuda::nvrtc_identity()->build, before->build);
}

TEST(LibraryFile, ThatIsCutOrNoneIsNothing) {
  const TempFolder folder;
  const std::string whole = contents(file_of(kOfTheCLibrary));
  const std::string path = folder / "cut.so";
  for (const size_t bytes :
       {size_t(0), size_t(3), size_t(63), size_t(64), size_t(200), size_t(700)}) {
    overwrite(path, whole.substr(0, bytes));
    EXPECT_FALSE(cuda::read_library_file(path).has_value()) << bytes;
  }
  // Header fields of all ones: offsets and counts beyond the file.
  for (size_t at = 16; at < 64; at += 2) {
    std::string turned = whole.substr(0, 4096);
    turned[at] = turned[at + 1] = char(0xff);
    overwrite(path, turned);
    EXPECT_FALSE(cuda::read_library_file(path).has_value()) << at;
  }
  overwrite(path, std::string(5000, 'x'));
  EXPECT_FALSE(cuda::read_library_file(path).has_value());
  EXPECT_FALSE(cuda::read_library_file(folder.path()).has_value());
  EXPECT_FALSE(cuda::read_library_file(folder / "missing").has_value());
}

TEST(BuildId, IsFoundAmongNotesAndNowhereElse) {
  const std::string other("\4\0\0\0\4\0\0\0\1\0\0\0GNU\0abcd", 20);
  const std::string id("\4\0\0\0\3\0\0\0\3\0\0\0GNU\0\x0a\xff\x01\0", 20);
  const std::string notes = other + id;
  EXPECT_EQ(cuda::build_id_in(notes.data(), notes.size()), "0aff01");
  EXPECT_EQ(cuda::build_id_in(other.data(), other.size()), "");
  for (size_t bytes = 0; bytes < id.size(); ++bytes) {
    EXPECT_EQ(cuda::build_id_in(id.data(), bytes), "") << bytes;
  }
}

#if defined(__x86_64__)
TEST(LoaderCache, GivesTheFileOfANameOfThisMachinesKind) {
  const std::string cache =
      loader_cache({{"liba.so.1", "/a/liba.so.1"}, {"libb.so.2", "/b"}}, 0x303);
  EXPECT_EQ(cuda::find_in_loader_cache(cache, "liba.so.1"), "/a/liba.so.1");
  EXPECT_EQ(cuda::find_in_loader_cache("ld.so-1.7.0 and what it held " + cache, "libb.so.2"), "/b");
  EXPECT_EQ(cuda::find_in_loader_cache(cache, "liba.so"), "");
  EXPECT_EQ(cuda::find_in_loader_cache(cache, ""), "");
  EXPECT_EQ(cuda::find_in_loader_cache(loader_cache({{"liba.so.1", "/32"}}, 0x003), "liba.so.1"),
            "");
  for (size_t bytes = 0; bytes < cache.size() - 3; ++bytes) {
    EXPECT_EQ(cuda::find_in_loader_cache(cache.substr(0, bytes), "libb.so.2"), "") << bytes;
  }
}
#endif

}  // namespace
