// What makes a kernel on disk another one, and what does not, among processes: the compiler's
// library, changed, touched and moved; the place, the environment and the home they start from.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "tests/cache/cache_case.hpp"
#include "tests/cli/process.hpp"
#ifdef SPLITKV_TEST_FAKE_LIBCUDA
#include "runtime/cuda/symbols.hpp"
#endif

using namespace splitkv;
using namespace splitkv::cache_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::line_of;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> with_cache(const std::string& folder,
                                    std::vector<std::string> environment = {}) {
  environment.push_back("SPLITKV_CACHE_DIR=" + folder);
  environment.push_back("SPLITKV_NO_DISK=0");
  return environment;
}

bool was_on_disk(const Finished& finished) {
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  return line_of(finished.out, "compile").find("(found on disk in ") != std::string::npos;
}

#ifdef SPLITKV_TEST_CPU

const std::vector<std::string> kCompileForCpu = {
    "compile", "attention q=fp32 kv=fp32 heads=4/2 dim=32", "--target", "cpu"};

TEST(KernelIdentity, IsNotTheFolderTheHomeNorTheOrderOfTheEnvironment) {
  const TempFolder folder, other;
  const std::string cache = folder / "cache";
  EXPECT_FALSE(was_on_disk(cli_test::run_splitkv(
      kCompileForCpu, with_cache(cache, {"HOME=" + folder.path(), "B=1", "A=2"}))));
  const fs::path here = fs::current_path();
  fs::current_path(other.path());
  const Finished elsewhere = cli_test::run_splitkv(
      kCompileForCpu, with_cache(cache, {"A=2", "LC_ALL=C", "HOME=" + other.path(), "B=1"}));
  fs::current_path(here);
  EXPECT_TRUE(was_on_disk(elsewhere));
}

TEST(KernelIdentity, IsNotThePlaceNorTheTimeOfTheCpuCompiler) {
  const TempFolder folder;
  const std::string cache = folder / "cache", moved = folder / "moved.so";
  EXPECT_FALSE(was_on_disk(cli_test::run_splitkv(kCompileForCpu, with_cache(cache))));
  const fs::path library =
      fs::path(SPLITKV_TEST_BINARY).parent_path().parent_path() / "lib" / "libsplitkv_cpu.so";
  ASSERT_TRUE(fs::copy_file(library, moved)) << library;
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, moved.c_str(), long_ago, 0), 0);
  EXPECT_TRUE(was_on_disk(
      cli_test::run_splitkv(kCompileForCpu, with_cache(cache, {"SPLITKV_CPU_LIBRARY=" + moved}))));
}

#endif

#ifdef SPLITKV_TEST_FAKE_LIBCUDA

const std::vector<std::string> kCompileForCuda = {
    "compile",    "attention q=bf16 kv=bf16 heads=8/2 dim=64",
    "--target",   "cuda:sm_90a",
    "--schedule", "reduce=last_block"};

// NVRTC in a folder of its own, its builtins beside it.
class MovedNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const cuda::Nvrtc*> nvrtc = cuda::nvrtc();
    if (!nvrtc) GTEST_SKIP() << "needs NVRTC: " << nvrtc.error().message;
    if ((*nvrtc)->build.empty()) GTEST_SKIP() << "this NVRTC has no build ID";
    Dl_info info;
    ASSERT_NE(dladdr(reinterpret_cast<const void*>((*nvrtc)->nvrtcVersion), &info), 0);
    const fs::path original = fs::canonical(info.dli_fname);
    library_ = folder_ / original.filename().string();
    ASSERT_TRUE(fs::copy_file(original, library_));
    for (const auto& entry : fs::directory_iterator(original.parent_path())) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("libnvrtc-builtins")) continue;
      fs::create_symlink(entry.path(), folder_ / name);
    }
  }

  Finished compile(const std::vector<std::string>& environment = {}) const {
    return cli_test::run_splitkv(kCompileForCuda, with_cache(folder_ / "cache", environment));
  }

  // The note before the ID: sizes of name and ID, the type, the name.
  void change_build() const {
    std::string bytes = contents(library_);
    const std::string name("\x03\0\0\0GNU\0", 8);
    const size_t at = bytes.find(name);
    ASSERT_LT(at, size_t(1) << 16);
    bytes[at + name.size()] = char(bytes[at + name.size()] ^ 1);
    overwrite(library_, bytes);
  }

  TempFolder folder_;
  std::string library_;
};

TEST_F(MovedNvrtc, IsTheSameCompilerUntilItsBuildIsAnother) {
  EXPECT_FALSE(was_on_disk(compile()));
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, library_.c_str(), long_ago, 0), 0);
  const std::vector<std::string> moved = {"SPLITKV_LIBNVRTC=" + library_};
  EXPECT_TRUE(was_on_disk(compile(moved))) << "another path and another time";
  const std::string link = folder_ / "link.so";
  fs::create_symlink(library_, link);
  EXPECT_TRUE(was_on_disk(compile({"SPLITKV_LIBNVRTC=" + link})));
  change_build();
  EXPECT_FALSE(was_on_disk(compile(moved))) << "an update that kept its version";
  EXPECT_TRUE(was_on_disk(compile(moved)));
  EXPECT_TRUE(was_on_disk(compile())) << "the old one's kernel is still there";
}

// The loader tells what it opens.
TEST_F(MovedNvrtc, IsNotOpenedForAKernelOnDisk) {
  const std::string told = "LD_DEBUG=files";
  const Finished cold = compile({told}), hit = compile({told});
  EXPECT_FALSE(was_on_disk(cold));
  EXPECT_TRUE(was_on_disk(hit));
  EXPECT_NE(cold.err.find("libnvrtc.so"), std::string::npos) << cold.err;
  EXPECT_EQ(hit.err.find("libnvrtc.so"), std::string::npos) << hit.err;
  EXPECT_NE(hit.err.find("calling init: "), std::string::npos) << "the loader tells nothing here";
}

TEST(ColdProcesses, CompileWithNvrtcSideBySideWithoutADisk) {
  if (const auto nvrtc = cuda::nvrtc(); !nvrtc) {
    GTEST_SKIP() << "needs NVRTC: " << nvrtc.error().message;
  }
  std::vector<std::future<Finished>> processes;
  for (int i = 0; i < 8; ++i) {
    processes.push_back(std::async(std::launch::async, [] {
      return cli_test::run_splitkv(kCompileForCuda, {"SPLITKV_NO_DISK=1"});
    }));
  }
  std::string first;
  for (std::future<Finished>& process : processes) {
    const Finished finished = process.get();
    EXPECT_FALSE(was_on_disk(finished));
    if (first.empty()) first = line_of(finished.out, "kernel");
    EXPECT_EQ(line_of(finished.out, "kernel"), first);
  }
}

#endif

}  // namespace
