// CUDA kernels from a pack, against the recording stand-in for libcuda, with libnvrtc hidden.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "tests/api/fake_driver.hpp"
#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Finished;
using splitkv::cli_test::Folder;

namespace {

constexpr const char* kSchedule = "partition=fixed splits=2 reduce=kernel";

// The binary that builds the pack has NVRTC; this process never does.
class CudaPack : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SPLITKV_LIBCUDA", FAKE_LIBCUDA, 1);
    fake_cuda::reset();
    const Finished made =
        make_pack(path, {kCudaProblem, "--arch", "sm_80,sm_90a", "--schedule", kSchedule});
    if (made.status == 3) GTEST_SKIP() << "needs NVRTC: " << made.err;
    ASSERT_EQ(made.status, 0) << made.err;
    hidden = std::make_unique<Variable>("SPLITKV_LIBNVRTC", "/nowhere/libnvrtc.so.13");
  }

  Folder folder;
  const std::string path = folder.file("kernels.pack");
  std::unique_ptr<Variable> hidden;
};

bool maps_nvrtc() { return says(contents("/proc/self/maps"), "nvrtc"); }

TEST_F(CudaPack, IsLoadedByTheDriverAlone) {
  const Variable disk_on("SPLITKV_NO_DISK", nullptr);
  const std::string cache = folder.file("cache");
  LoggedRuntime logged(0, cache.c_str());
  ASSERT_TRUE(logged.open_pack(path).ok());
  KernelOwner kernel, again;
  const Answer answer = prepare(logged.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
  ASSERT_TRUE(answer.ok()) << answer;
  EXPECT_STREQ(info_of(kernel.get()).origin, "pack");
  EXPECT_GT(info_of(kernel.get()).module_bytes, 1000u);
  const auto names = fake_cuda::call_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "cuModuleLoadData"), 2);
  EXPECT_FALSE(std::filesystem::exists(cache));
  EXPECT_FALSE(maps_nvrtc());
  ASSERT_TRUE(prepare(logged.get(), "cuda:0", kCudaProblem, kSchedule, &again).ok());
  EXPECT_STREQ(info_of(again.get()).origin, "memory");
  ASSERT_TRUE(prepare(logged.get(), "cuda:1", kCudaProblem, kSchedule, &again).ok());
  EXPECT_STREQ(info_of(again.get()).origin, "pack");  // loaded on another device
  EXPECT_EQ(statistics_of(logged.get()).pack_hits, 2u);
  EXPECT_EQ(statistics_of(logged.get()).compiles, 0u);
}

TEST_F(CudaPack, ServesTheArchitecturesThatItWasBuiltFor) {
  LoggedRuntime logged(SPLITKV_NO_JIT, nullptr, path.c_str());
  KernelOwner kernel;
  ASSERT_TRUE(prepare(logged.get(), "cuda:0", kCudaProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).target, "cuda:sm_90a");
  fake_cuda::set_capability(8, 0);
  ASSERT_TRUE(prepare(logged.get(), "cuda:1", kCudaProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).target, "cuda:sm_80");
  fake_cuda::set_capability(8, 9);
  LoggedRuntime other(SPLITKV_NO_JIT, nullptr, path.c_str());
  const Answer answer = prepare(other.get(), "cuda:0", kCudaProblem, kSchedule, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  EXPECT_TRUE(answer.says("[sm_80], [sm_90a], and this is [sm_89]")) << answer;
}

TEST_F(CudaPack, MissIsAStatusThatNamesThePackWhateverElseIsMissing) {
  KernelOwner kernel;
  const auto missed = [&](uint32_t flags) {
    const LoggedRuntime logged(flags, nullptr, path.c_str());
    return prepare(logged.get(), "cuda:0", kCudaProblem, "family=simt tile=32 splits=2", &kernel);
  };
  const Answer locked = missed(SPLITKV_NO_JIT | SPLITKV_NO_DISK);
  EXPECT_EQ(locked.status, SPLITKV_NOT_PREPARED) << locked;
  EXPECT_TRUE(locked.says("`splitkv pack`")) << locked;
  EXPECT_TRUE(locked.says("with the kernels of [schedule ")) << locked;
  EXPECT_FALSE(maps_nvrtc());
  const Answer open = missed(0);
  EXPECT_EQ(open.status, SPLITKV_LIBRARY_MISSING) << open;
  EXPECT_TRUE(open.says("/nowhere/libnvrtc.so.13")) << open;
  EXPECT_TRUE(open.says("with the kernels of [schedule ")) << open;
  const Folder disk;
  const Variable disk_on("SPLITKV_NO_DISK", nullptr);
  const Variable cache("SPLITKV_CACHE_DIR", disk.file("cache").c_str());
  const Answer kept = missed(SPLITKV_NO_JIT);
  EXPECT_EQ(kept.status, SPLITKV_NOT_PREPARED) << kept;
  EXPECT_TRUE(kept.says("it is missing")) << kept;
}

TEST_F(CudaPack, ListsRegistersAndSharedMemory) {
  const Finished listed = cli_test::run_splitkv({"pack", "--list", path});
  ASSERT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(says(listed.out, " registers 0 spilled ")) << listed.out;
  EXPECT_TRUE(says(listed.out, "NVRTC ")) << listed.out;
  EXPECT_TRUE(says(listed.out, "sm_80 ")) << listed.out;
}

// Every file that a process with the pack opens: none of them is of NVRTC, or of the cache.
TEST_F(CudaPack, OpensNoFileOfACompiler) {
  if (std::system("strace -o /dev/null true > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "needs strace, and permission to trace";
  }
  const std::string trace = folder.file("trace"), cache = folder.file("cache");
  hidden = nullptr;  // even where it could be had
  const std::string command = "SPLITKV_NO_DISK=0 SPLITKV_CACHE_DIR=" + cache +
                              " SPLITKV_PACK=" + path + " strace -f -o " + trace +
                              " -e trace=open,openat " SPLITKV_TEST_BINARY " run '" + kCudaProblem +
                              "' --target cuda:0 --kv-len 4096 --schedule '" + kSchedule + "' > " +
                              folder.file("out") + " 2>&1";
  (void)std::system(command.c_str());  // the stand-in computes nothing
  const std::string opened = contents(trace);
  EXPECT_TRUE(says(opened, path)) << opened;
  EXPECT_TRUE(says(opened, "fake_libcuda")) << opened;
  EXPECT_FALSE(says(opened, "nvrtc")) << opened;
  EXPECT_FALSE(says(opened, cache)) << opened;
  EXPECT_FALSE(says(contents(folder.file("out")), "not_prepared")) << contents(folder.file("out"));
}

}  // namespace
