// A disk that is full, read-only, missing or not to be trusted costs compiles and never a result.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;

namespace {

enum Verdict { kFine = 0, kFailed = 1, kFromDisk = 2, kSilent = 3, kWrongWords = 4, kCannot = 77 };

// Two kernels, neither of them from disk, and one warning that holds `words` and the way out.
int goes_on(CacheCase& one, const std::string& words) {
  for (const int i : {1, 2}) {
    const auto found = get(one.cache, i);
    if (!found.ok() || found->code != code_of(i)) return kFailed;
    if (found->from_disk) return kFromDisk;
  }
  const std::string warning = one.warning();
  if (one.warnings() != 1) return kSilent;
  const bool right = warning.find(words) != std::string::npos &&
                     warning.find("SPLITKV_CACHE_DIR") != std::string::npos;
  if (!right) fprintf(stderr, "%s", warning.c_str());
  return right ? kFine : kWrongWords;
}

TEST(CacheTrouble, WithoutHomeNothingIsKept) {
  for (const char* name : {"SPLITKV_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
  CacheCase one("");
  EXPECT_EQ(goes_on(one, "HOME"), kFine);
}

TEST(CacheTrouble, ReadOnlyFoldersAreReadAndNotWritten) {
  const TempFolder folder;
  const std::string path = folder / "cache";
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  give_away(path);
  EXPECT_EQ(as_other_user([&] {
              CacheCase writer(path);
              if (!get(writer.cache, 7).ok()) return int(kFailed);
              if (chmod((path + "/kernels").c_str(), 0555) != 0) return int(kCannot);
              CacheCase one(path);
              const int verdict = goes_on(one, "Permission denied");
              const auto kept = get(one.cache, 7);
              return kept.ok() && kept->from_disk ? verdict : int(kFailed);
            }),
            kFine);
  EXPECT_EQ(as_other_user([&] {
              CacheCase one(path + "/kernels/below");  // cannot be made
              return goes_on(one, "cannot be made: Permission denied");
            }),
            kFine);
}

TEST(CacheTrouble, AFileInPlaceOfTheFolderIsSaidSo) {
  const TempFolder folder;
  overwrite(folder / "file", "x");
  CacheCase one(folder / "file");
  EXPECT_EQ(goes_on(one, "Not a directory"), kFine);
  EXPECT_EQ(contents(folder / "file"), "x");
}

TEST(CacheTrouble, ForeignFoldersAreNotTrusted) {
  if (!is_root()) GTEST_SKIP() << "only root can give folders away";
  const TempFolder folder;
  for (const char* name : {"outer", "outer/kernels"}) {
    {
      CacheCase before(folder / "outer");
      ASSERT_TRUE(get(before.cache, 1).ok());
    }
    give_away(folder / name);
    CacheCase one(folder / "outer");
    EXPECT_EQ(goes_on(one, "belongs to user 65534, not to user 0"), kFine);
    ASSERT_EQ(chown((folder / name).c_str(), 0, 0), 0);
  }
}

TEST(CacheTrouble, FoldersThatOthersMayWriteAreNotTrusted) {
  const TempFolder folder;
  {
    CacheCase before(folder / "outer");
    ASSERT_TRUE(get(before.cache, 1).ok());
  }
  for (const char* name : {"outer", "outer/kernels"}) {
    for (const mode_t mode : {0770, 0707, 01777}) {
      ASSERT_EQ(chmod((folder / name).c_str(), mode), 0);
      CacheCase one(folder / "outer");
      EXPECT_EQ(goes_on(one, "may be written by others"), kFine) << name << std::oct << mode;
    }
    ASSERT_EQ(chmod((folder / name).c_str(), 0755), 0);  // others may read
  }
  CacheCase again(folder / "outer");
  EXPECT_TRUE(get(again.cache, 1)->from_disk);
}

// What lies in place of an entry, put there by `plant`, is a miss with one warning, and replaced.
void expect_distrusted(const std::function<void(const std::string& path)>& plant,
                       const std::string& words) {
  const TempFolder folder;
  {
    CacheCase before(folder.path());
    ASSERT_TRUE(get(before.cache, 1).ok());
  }
  plant(entry_path(folder.path(), 1));
  CacheCase one(folder.path());
  EXPECT_FALSE(get(one.cache, 1)->from_disk);
  EXPECT_EQ(one.warnings(), 1);
  EXPECT_NE(one.warning().find(words), std::string::npos) << one.warning();
  CacheCase again(folder.path());
  EXPECT_TRUE(get(again.cache, 1)->from_disk);
}

TEST(CacheTrouble, EntriesOfOthersAreNotTrusted) {
  expect_distrusted([](const std::string& path) { chmod(path.c_str(), 0666); },
                    "may be written by others");
  if (is_root()) expect_distrusted(&give_away, "belongs to user 65534");
}

TEST(CacheTrouble, LinksAndPipesAreNoEntries) {
  expect_distrusted(
      [](const std::string& path) {
        const std::string elsewhere = path + ".elsewhere";
        rename(path.c_str(), elsewhere.c_str());
        EXPECT_EQ(symlink(elsewhere.c_str(), path.c_str()), 0);
      },
      "cannot be opened");
  expect_distrusted(
      [](const std::string& path) {
        unlink(path.c_str());
        EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
      },
      "is no file");
}

TEST(CacheTrouble, ALimitOnFileSizesIsNoSignal) {
  const TempFolder folder;
  EXPECT_EQ(status_of(start([&] {
              const rlimit limit{1000, RLIM_INFINITY};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return int(kCannot);
              CacheCase one(folder.path());
              return goes_on(one, "File too large");
            })),
            kFine);
  EXPECT_TRUE(names_in(folder / "kernels").empty());
}

// A mount namespace of this process's own; whoever is not root needs a user namespace for it, in
// which this user has to be known.
bool own_mounts() {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    overwrite("/proc/self/uid_map", user + ' ' + user + " 1\n");
    overwrite("/proc/self/setgroups", "deny");  // without which a group cannot be made known
    overwrite("/proc/self/gid_map", group + ' ' + group + " 1\n");
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// On a file system of 64 KB.
TEST(CacheTrouble, AFullDiskIsOneWarningAndLeavesNothingHalf) {
  const TempFolder folder;
  const int status = status_of(start([&] {
    if (!own_mounts()) return int(kCannot);
    if (mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) {
      return int(kCannot);
    }
    const int filler = open((folder / "filler").c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string block(4096, 'x');
    CacheCase before(folder.path());
    if (!get(before.cache, 7).ok()) return int(kFailed);
    while (write(filler, block.data(), block.size()) > 0) {
    }
    CacheCase one(folder.path());
    const int verdict = goes_on(one, "No space left on device");
    if (names_in(folder / "kernels").size() != 1) return int(kFailed);
    return get(one.cache, 7)->from_disk ? verdict : int(kFailed);
  }));
  if (status == kCannot) GTEST_SKIP() << "no mount namespace is allowed here";
  EXPECT_EQ(status, kFine);
}

}  // namespace
