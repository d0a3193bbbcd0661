// Where the driver and NVRTC are looked for, and what is said when they are missing. Nothing here
// opens either library successfully: a process keeps the first that opens.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/library_paths.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/api/decode_case.hpp"
#include "tests/support/fake_libcuda.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;
namespace fs = std::filesystem;

namespace {

constexpr const char* kProblem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";

Answer prepare_on_device_zero() {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  return prepare(runtime.get(), "cuda:0", kProblem, nullptr, &kernel);
}

TEST(MissingDriver, ANamedFileIsTheOnlyOneTried) {
  setenv("SPLITKV_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  const Answer answer = prepare_on_device_zero();
  unsetenv("SPLITKV_LIBCUDA");
  EXPECT_EQ(answer.status, SPLITKV_LIBRARY_MISSING) << answer;
  EXPECT_TRUE(answer.says("/nowhere/libcuda.so.1")) << answer;
  EXPECT_TRUE(answer.says("SPLITKV_LIBCUDA")) << answer;
  EXPECT_FALSE(answer.says("/usr/lib")) << answer;
}

TEST(MissingDriver, ALibraryWithoutTheSymbolsIsNotTaken) {
  setenv("SPLITKV_LIBCUDA", "libm.so.6", 1);
  const Answer answer = prepare_on_device_zero();
  unsetenv("SPLITKV_LIBCUDA");
  EXPECT_EQ(answer.status, SPLITKV_LIBRARY_MISSING) << answer;
  EXPECT_TRUE(answer.says("libm.so.6 (lacks the symbol cuInit)")) << answer;
}

TEST(MissingDriver, ADriverThatDoesNotInitialiseIsADeviceError) {
  setenv("SPLITKV_LIBCUDA", FAKE_LIBCUDA, 1);
  fake_cuda::fail("cuInit", 1, 100);
  const Answer answer = prepare_on_device_zero();
  unsetenv("SPLITKV_LIBCUDA");
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(answer.says("cuInit: CUDA_ERROR_NO_DEVICE")) << answer;
}

TEST(MissingNvrtc, ANamedFileIsTheOnlyOneTried) {
  setenv("SPLITKV_LIBNVRTC", "/nowhere/libnvrtc.so.13", 1);
  const auto version = nvrtc_version();
  unsetenv("SPLITKV_LIBNVRTC");
  ASSERT_FALSE(version.ok());
  EXPECT_EQ(version.error().status, Status::library_missing);
  const std::string& message = version.error().message;
  EXPECT_NE(message.find("/nowhere/libnvrtc.so.13"), std::string::npos) << message;
  EXPECT_EQ(message.find("/usr/local"), std::string::npos) << message;
}

bool lists(const std::vector<std::string>& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

TEST(DriverCandidates, AreThePlainNameThenTheUsualPaths) {
  const auto paths = cuda::driver_candidates({});
  for (const char* path : {"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                           "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"})
    EXPECT_TRUE(lists(paths, path)) << path;
}

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "splitkv-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }

  std::string file(const std::string& name) const {
    const fs::path path = path_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "";
    return path.string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(NvrtcCandidates, FindWheelsAndPyTorchsCopiesInTheVirtualEnvironment) {
  const TemporaryFolder folder;
  const std::string site = "lib/python3.11/site-packages/";
  const std::string found[] = {folder.file(site + "nvidia/cu13/lib/libnvrtc.so.13"),
                               folder.file(site + "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),
                               folder.file(site + "torch/lib/libnvrtc-1ea278b5.so.12")};
  const std::string builtins = folder.file(site + "nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  Environment environment;
  environment.virtual_env = folder.path();
  const auto paths = cuda::nvrtc_candidates(environment);
  for (const std::string& path : found) EXPECT_TRUE(lists(paths, path)) << path;
  EXPECT_FALSE(lists(paths, builtins));
}

TEST(NvrtcCandidates, FindThePackagesOfThePythonOnThePath) {
  const TemporaryFolder folder;
  folder.file("bin/python3");
  const std::string wheel =
      folder.file("lib/python3.12/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  Environment environment;
  environment.path = "/nowhere:" + folder.path() + "/bin";
  EXPECT_TRUE(lists(cuda::nvrtc_candidates(environment), wheel));
}

TEST(NvrtcCandidates, FindTheToolkitThatCudaHomeNames) {
  const TemporaryFolder folder;
  const std::string library = folder.file("lib64/libnvrtc.so.12");
  Environment environment;
  environment.cuda_home = folder.path();
  EXPECT_TRUE(lists(cuda::nvrtc_candidates(environment), library));
  environment = {};
  environment.cuda_path = folder.path();
  EXPECT_TRUE(lists(cuda::nvrtc_candidates(environment), library));
}

TEST(NvrtcCandidates, PreferThirteenToTwelveAndPlainNamesToPaths) {
  const auto paths = cuda::nvrtc_candidates({});
  const auto at = [&](const char* path) {
    return std::find(paths.begin(), paths.end(), path) - paths.begin();
  };
  EXPECT_LT(at("libnvrtc.so.13"), at("libnvrtc.so.12"));
  EXPECT_LT(at("libnvrtc.so.12"), at("/usr/local/cuda/lib64/libnvrtc.so"));
  EXPECT_TRUE(lists(paths, "/usr/local/cuda/lib64/libnvrtc.so"));
}

}  // namespace
