// splitkv cache, and what run and compile say of where code came from.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/cache/cache_case.hpp"
#include "tests/cli/process.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::line_of;

namespace {

Finished run_with(const std::string& folder, std::vector<std::string> arguments,
                  std::vector<std::string> environment = {}) {
  environment.push_back("SPLITKV_CACHE_DIR=" + folder);
  environment.push_back("SPLITKV_NO_DISK=0");
  return cli_test::run_splitkv(arguments, environment);
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// Three entries, the first being the least recently used.
void fill(const std::string& folder) {
  CacheCase one(folder);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(get(one.cache, i).ok());
    const timespec used[2] = {{1000 + i, 0}, {1000 + i, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, entry_path(folder, i).c_str(), used, 0), 0);
  }
}

void damage(const std::string& folder, int i) {
  std::string bytes = contents(entry_path(folder, i));
  bytes[bytes.size() / 2] = char(bytes[bytes.size() / 2] ^ 1);
  overwrite(entry_path(folder, i), bytes);
}

TEST(CacheVerbs, ListPrintsALineAnEntryTheLastUsedFirst) {
  const TempFolder folder;
  fill(folder.path());
  damage(folder.path(), 3);
  const Finished listed = run_with(folder.path(), {"cache", "list"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  const size_t third = listed.out.find(key_of_source(3).digest),
               second = listed.out.find(key_of_source(2).digest),
               first = listed.out.find(key_of_source(1).digest);
  EXPECT_EQ(third, 0u) << listed.out;
  EXPECT_LT(third, second);
  EXPECT_LT(second, first);
  EXPECT_NE(first, std::string::npos);
  EXPECT_TRUE(says(listed.out, "14.5 ms  sm_90a  source 2\n")) << listed.out;
  EXPECT_TRUE(says(listed.out, "damaged: has bytes that its digest does not know\n"));
}

TEST(CacheVerbs, SizeCountsEntriesAndBytes) {
  const TempFolder folder;
  fill(folder.path());
  const size_t bytes = 3 * contents(entry_path(folder.path(), 1)).size();
  const Finished sized = run_with(folder.path(), {"cache", "size"}, {"SPLITKV_CACHE_LIMIT=5K"});
  ASSERT_EQ(sized.status, 0) << sized.err;
  EXPECT_EQ(sized.out, "3 entries, " + std::to_string(bytes) + " bytes of at most 5120 in " +
                           (folder / "kernels") + "\n");
  EXPECT_EQ(cli_test::run_splitkv({"cache", "size", "--dir", folder.path()}).out.substr(0, 10),
            "3 entries,")
      << "though SPLITKV_NO_DISK is set";
}

TEST(CacheVerbs, VerifyNamesWhatIsDamagedAndEndsWithStatus1) {
  const TempFolder folder;
  fill(folder.path());
  EXPECT_EQ(run_with(folder.path(), {"cache", "verify"}).out, "3 whole, 0 damaged\n");
  damage(folder.path(), 2);
  overwrite(entry_path(folder.path(), 3), contents(entry_path(folder.path(), 1)));
  const Finished verified = run_with(folder.path(), {"cache", "verify"});
  EXPECT_EQ(verified.status, 1);
  EXPECT_TRUE(says(verified.out, entry_name(key_of_source(2).digest) + ": has bytes"))
      << verified.out;
  EXPECT_TRUE(says(verified.out, "holds the kernel of the key " + key_of_source(1).digest));
  EXPECT_TRUE(says(verified.out, "1 whole, 2 damaged; ")) << verified.out;
}

TEST(CacheVerbs, PruneRemovesDamageLeftoversAndWhatIsBeyondTheLimit) {
  const TempFolder folder;
  fill(folder.path());
  damage(folder.path(), 3);
  overwrite(folder / "kernels/" + key_of_source(9).digest + ".7.0123456789abcdef.part", "half");
  overwrite(folder / "kernels/" + key_of_source(9).digest + ".lock", "");
  overwrite(folder / "kernels/notes.txt", "not the cache's");
  const size_t size = contents(entry_path(folder.path(), 1)).size();
  const Finished pruned =
      run_with(folder.path(), {"cache", "prune", "--limit", std::to_string(size + 1)});
  ASSERT_EQ(pruned.status, 0) << pruned.err;
  EXPECT_TRUE(says(pruned.out, "removed 2 leftovers, 1 damaged entries, 1 entries beyond"))
      << pruned.out;
  std::vector<std::string> left = {entry_name(key_of_source(2).digest), "notes.txt"};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(names_in(folder / "kernels"), left);
}

TEST(CacheVerbs, ClearRemovesEntriesAndNothingElse) {
  const TempFolder folder;
  fill(folder.path());
  overwrite(entry_path(folder.path(), 2), "");
  overwrite(folder / "kernels/notes.txt", "not the cache's");
  const Finished cleared = run_with(folder.path(), {"cache", "clear"});
  ASSERT_EQ(cleared.status, 0) << cleared.err;
  EXPECT_TRUE(says(cleared.out, "removed 3 entries, ")) << cleared.out;
  EXPECT_EQ(names_in(folder / "kernels"), std::vector<std::string>{"notes.txt"});
}

TEST(CacheVerbs, ShowPrintsKeyAndSource) {
  const TempFolder folder;
  fill(folder.path());
  const Finished shown = run_with(folder.path(), {"cache", "show", key_of_source(2).digest});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(says(shown.out, "compiler=NVRTC 13.0\noptions=-arch=sm_90a\narch=sm_90a\n"));
  EXPECT_TRUE(says(shown.out, "source:\n" + source_of(2).text)) << shown.out;
  const Finished none = run_with(folder.path(), {"cache", "show", "1234"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(says(none.err, "DIGEST=1234: the cache holds no such kernel")) << none.err;
}

TEST(CacheVerbs, AFolderThatIsNotThereYetIsEmptyAndIsNotMade) {
  const TempFolder folder;
  for (const char* verb : {"list", "size", "verify", "prune", "clear"}) {
    const Finished finished = run_with(folder / "none", {"cache", verb});
    EXPECT_EQ(finished.status, 0) << verb << finished.err;
    EXPECT_EQ(finished.out, "nothing is kept in " + (folder / "none") + "\n");
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(CacheVerbs, BadInputIsNamed) {
  const TempFolder folder;
  fill(folder.path());
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& words) {
    const Finished finished = run_with(folder.path(), arguments);
    EXPECT_EQ(finished.status, 2) << finished.out;
    EXPECT_TRUE(says(finished.err, words)) << finished.err;
  };
  refused({"cache"},
          "cache: a verb is missing; list, size, verify, prune, clear or show would fit");
  refused({"cache", "burn"}, "burn");
  refused({"cache", "show"}, "digest is required");
  refused({"cache", "list", "--dir", folder / "typo"}, "--dir=" + (folder / "typo"));
  refused({"cache", "prune", "--limit", "much"}, "--limit=much: much is no number of bytes");
  refused({"cache", "list", "--limit", "5"}, "--limit");
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  refused({"cache", "clear", "--dir", folder.path()}, "may be written by others");
  EXPECT_EQ(run_with(folder.path(), {"cache", "clear"}).status, 3);
  EXPECT_EQ(names_in(folder / "kernels").size(), 3u);
  EXPECT_EQ(
      cli_test::run_splitkv({"cache", "size"}, {"SPLITKV_CACHE_DIR=", "XDG_CACHE_HOME=", "HOME="})
          .status,
      3);
}

#ifdef SPLITKV_TEST_CPU
TEST(CacheVerbs, RunAndCompileSayWhereTheCodeCameFrom) {
  const TempFolder folder;
  const std::string problem = "attention q=fp32 kv=fp32 heads=4/2 dim=32";
  const std::vector<std::string> compile = {"compile", problem, "--target", "cpu"};
  const Finished first = run_with(folder.path(), compile);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_FALSE(says(line_of(first.out, "compile"), "found")) << first.out;
  EXPECT_TRUE(says(line_of(run_with(folder.path(), compile).out, "compile"), "(found on disk in "));
  const std::vector<std::string> run = {"run", problem,    "--target", "cpu",    "--kv-len",
                                        "64",  "--repeat", "1",        "--check"};
  EXPECT_EQ(run_with(folder.path(), run).status, 0);
  EXPECT_TRUE(says(line_of(run_with(folder.path(), run).out, "compile"), "(found on disk in "));
  EXPECT_FALSE(
      says(line_of(run_with(folder.path(), run, {"SPLITKV_NO_DISK=1"}).out, "compile"), "found"));
  const Finished doctor = run_with(folder.path(), {"doctor"});
  EXPECT_TRUE(says(line_of(doctor.out, "cache"), "kernels in " + (folder / "kernels")))
      << doctor.out;
}
#endif

#ifdef SPLITKV_TEST_FAKE_LIBCUDA
TEST(CacheVerbs, CompileWithoutADeviceKeepsWhatADeviceLoads) {
  const TempFolder folder;
  const std::string problem = "attention q=bf16 kv=bf16 heads=32/8 dim=32";
  const std::vector<std::string> words = {"--schedule", "partition=fixed splits=2 reduce=kernel"};
  std::vector<std::string> compile = {"compile", problem, "--target", "cuda:sm_90a"};
  compile.insert(compile.end(), words.begin(), words.end());
  const Finished first = run_with(folder.path(), compile);
  if (first.status == 3) GTEST_SKIP() << "needs NVRTC: " << first.err;
  ASSERT_EQ(first.status, 0) << first.err;
  const Finished second = run_with(folder.path(), compile);
  EXPECT_TRUE(says(line_of(second.out, "compile"), "(found on disk in ")) << second.out;
  EXPECT_EQ(line_of(second.out, "kernel"), line_of(first.out, "kernel"));
  std::vector<std::string> run = {"run", problem, "--target", "cuda:0", "--kv-len", "4096"};
  run.insert(run.end(), words.begin(), words.end());
  const Finished ran = run_with(folder.path(), run, {"SPLITKV_LIBCUDA=" SPLITKV_TEST_FAKE_LIBCUDA});
  EXPECT_EQ(run_with(folder.path(), {"cache", "size"}).out.substr(0, 10), "1 entries,") << ran.err;
}
#endif

}  // namespace
