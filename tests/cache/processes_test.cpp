// Many processes and threads on one cold cache: each key is compiled once, whoever dies meanwhile.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "runtime/key_lock.hpp"
#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;

namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  void say() const { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  void hear() const {
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  }
  int ends[2];
};

// A byte is added to the file named after the key for every compile.
Result<DiskCache::Found> get_counted(DiskCache& cache, const std::string& counts, int i) {
  return cache.get(key_of_source(i), source_of(i), [&]() -> Result<StoredCode> {
    const int file =
        open(fmt::format("{}/{}", counts, i).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, "x", 1) != 1) return Error{};
    close(file);
    usleep(1000);
    return code_of(i);
  });
}

int cold_process(const std::string& folder, const std::string& counts, int keys, int first) {
  CacheCase one(folder);
  for (int i = 0; i < keys; ++i) {
    const int key = (first + i) % keys;
    const auto found = get_counted(one.cache, counts, key);
    if (!found.ok() || found->code != code_of(key)) return 1;
  }
  return one.warnings() == 0 ? 0 : 2;
}

TEST(CacheAmongProcesses, SixteenColdOnesCompileFourKeysOnceEachInFiftyRounds) {
  constexpr int kRounds = 50, kProcesses = 16, kKeys = 4;
  int compiles = 0;
  for (int round = 0; round < kRounds; ++round) {
    const TempFolder folder, counts;
    const Pipe barrier;
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p) {
      children.push_back(start([&] {
        close(barrier.ends[1]);
        char byte;
        if (read(barrier.ends[0], &byte, 1) != 0) return 3;  // ends when the parent lets go
        return cold_process(folder.path(), counts.path(), kKeys, p % kKeys);
      }));
    }
    close(barrier.ends[1]);
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0) << "round " << round;
    for (int key = 0; key < kKeys; ++key) {
      const size_t once = contents(counts / std::to_string(key)).size();
      EXPECT_EQ(once, 1u) << "key " << key << " in round " << round;
      compiles += int(once);
    }
    EXPECT_EQ(names_in(folder / "kernels").size(), size_t(kKeys)) << "nothing but entries is left";
  }
  fmt::print("{} compiles of {} keys in {} rounds of {} processes\n", compiles, kKeys, kRounds,
             kProcesses);
}

TEST(CacheAmongProcesses, WithoutLocksEveryResultIsStillRight) {
  const TempFolder folder, counts;
  std::vector<pid_t> children;
  for (int p = 0; p < 8; ++p) {
    children.push_back(start([&] {
      CacheCase one(folder.path());
      one.cache.set_longest_wait(milliseconds(0));  // as where the file system knows no locks
      for (int key = 0; key < 4; ++key) {
        const auto found = get_counted(one.cache, counts.path(), key);
        if (!found.ok() || found->code != code_of(key)) return 1;
      }
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  for (int key = 0; key < 4; ++key) {
    const auto entry = decode_entry(contents(entry_path(folder.path(), key)));
    ASSERT_TRUE(entry.ok()) << entry.error().message;
    EXPECT_EQ(entry->code, code_of(key));
  }
}

// A process that holds the lock of key 1 and says so.
pid_t start_holder(const std::string& folder, const Pipe& holding) {
  return start([&] {
    const auto opened = CacheFolder::open(folder, true);
    if (!opened.ok()) return 1;
    const KeyLock lock =
        KeyLock::acquire(*opened, key_of_source(1).digest, milliseconds(1000), nullptr);
    if (lock.state() != KeyLock::State::held) return 2;
    holding.say();
    for (;;) pause();
  });
}

TEST(CacheAmongProcesses, TheLockOfAKilledHolderIsFree) {
  const TempFolder folder;
  const Pipe holding;
  const pid_t holder = start_holder(folder.path(), holding);
  holding.hear();
  CacheCase one(folder.path());
  std::atomic<int> compiles{0};
  std::thread killer([&] {
    usleep(100'000);
    EXPECT_EQ(compiles, 0) << "nothing is compiled while another holds the lock";
    kill(holder, SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto found = one.cache.get(key_of_source(1), source_of(1), [&]() -> Result<StoredCode> {
    ++compiles;
    return code_of(1);
  });
  killer.join();
  EXPECT_EQ(status_of(holder), 128 + SIGKILL);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->from_disk);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(one.warnings(), 0) << one.warning();
  EXPECT_EQ(names_in(folder / "kernels"),
            std::vector<std::string>{entry_name(key_of_source(1).digest)});
}

TEST(CacheAmongProcesses, AHolderThatNeverEndsIsWaitedForNoLongerThanAllowed) {
  const TempFolder folder;
  const Pipe holding;
  const pid_t holder = start_holder(folder.path(), holding);
  holding.hear();
  CacheCase one(folder.path());
  one.cache.set_longest_wait(milliseconds(100));
  const auto found = get(one.cache, 1);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->from_disk);
  EXPECT_EQ(one.warnings(), 1);
  EXPECT_NE(one.warning().find("no longer waiting"), std::string::npos) << one.warning();
  EXPECT_TRUE(get(one.cache, 1)->from_disk) << "it was kept all the same";
  kill(holder, SIGKILL);
  status_of(holder);
}

TEST(CacheAmongProcesses, LeftoversOfTheDeadAreRemovedThoseOfTheLivingAreNot) {
  const TempFolder folder;
  {
    CacheCase one(folder.path());
    ASSERT_TRUE(get(one.cache, 2).ok());
  }
  const std::string kernels = folder / "kernels/", digest = key_of_source(3).digest;
  overwrite(kernels + digest + ".lock", "");
  overwrite(kernels + digest + ".12.0123456789abcdef.part", "half an");
  overwrite(kernels + digest + ".13.0123456789abcdef.part", "half an");
  overwrite(kernels + "notes.lock", "somebody's");
  const int writer = open((kernels + digest + ".13.0123456789abcdef.part").c_str(), O_RDONLY);
  ASSERT_EQ(flock(writer, LOCK_EX | LOCK_NB), 0);
  const Pipe holding;
  const pid_t holder = start_holder(folder.path(), holding);
  holding.hear();

  const auto opened = CacheFolder::open(folder.path(), false);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->remove_leftovers(), 2);
  std::vector<std::string> left = {digest + ".13.0123456789abcdef.part",
                                   lock_name(key_of_source(1).digest),
                                   entry_name(key_of_source(2).digest), "notes.lock"};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(names_in(folder / "kernels"), left);
  close(writer);
  kill(holder, SIGKILL);
  status_of(holder);
  EXPECT_EQ((*opened)->remove_leftovers(), 2);
}

TEST(CacheAmongProcesses, OldLeftoversGoWithTheNextEntry) {
  const TempFolder folder;
  CacheCase first(folder.path());
  ASSERT_TRUE(get(first.cache, 1).ok());
  const std::string kernels = folder / "kernels/", digest = key_of_source(3).digest;
  for (const char* ending : {".lock", ".12.0123456789abcdef.part"}) {
    overwrite(kernels + digest + ending, "old");
    const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (kernels + digest + ending).c_str(), long_ago, 0), 0);
  }
  overwrite(kernels + digest + ".13.0123456789abcdef.part", "of this moment");
  CacheCase second(folder.path());
  ASSERT_TRUE(get(second.cache, 2).ok());
  EXPECT_EQ(names_in(folder / "kernels").size(), 3u);
}

TEST(CacheAmongProcesses, KilledWritersLeaveWholeEntriesOrNone) {
  const TempFolder folder;
  const StoredCode large{{std::string(1 << 20, 'c')}, "", 1};
  for (int round = 0; round < 20; ++round) {
    const Pipe begun;
    const pid_t writer = start([&] {
      CacheCase one(folder.path());
      for (int i = 0;; ++i) {
        if (i == 1) begun.say();
        const int key = round * 1000 + i;
        (void)one.cache.get(key_of_source(key), source_of(key),
                            [&]() -> Result<StoredCode> { return large; });
      }
      return 0;
    });
    begun.hear();
    usleep(useconds_t(700 * round));
    kill(writer, SIGKILL);
    EXPECT_EQ(status_of(writer), 128 + SIGKILL);
  }
  const auto opened = CacheFolder::open(folder.path(), false);
  ASSERT_TRUE(opened.ok());
  (*opened)->remove_leftovers();
  const auto entries = (*opened)->entries();
  EXPECT_GT(entries.size(), 0u);
  EXPECT_EQ(names_in(folder / "kernels").size(), entries.size());
  for (const CachedFile& file : entries) {
    const auto entry = decode_entry(contents(folder / "kernels/" + file.name));
    ASSERT_TRUE(entry.ok()) << entry.error().message;
    EXPECT_EQ(entry->code, large);
    EXPECT_EQ(entry->key.digest, file.digest());
  }
}

TEST(CacheAmongThreads, ThirtyTwoThreadsCompileEightKeysOnceEach) {
  constexpr int kThreads = 32, kKeys = 8;
  const TempFolder folder;
  CacheCase shared(folder.path());
  std::atomic<int> compiles[kKeys] = {};
  std::atomic<int> arrived{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++arrived;
      while (arrived < kThreads) std::this_thread::yield();
      // Half of them with a cache of their own, as runtimes in one process have.
      CacheCase own(folder.path());
      DiskCache& cache = t % 2 == 0 ? shared.cache : own.cache;
      for (int i = 0; i < kKeys; ++i) {
        const int key = (t + i) % kKeys;
        const auto found =
            cache.get(key_of_source(key), source_of(key), [&]() -> Result<StoredCode> {
              ++compiles[key];
              usleep(1000);
              return code_of(key);
            });
        if (!found.ok() || found->code != code_of(key)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : compiles) EXPECT_EQ(count, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(shared.warnings(), 0) << shared.warning();
  EXPECT_EQ(names_in(folder / "kernels").size(), size_t(kKeys));
}

}  // namespace
