// CUDA kernels from disk, against the recording stand-in for libcuda and a real NVRTC.
#include <gtest/gtest.h>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/api/fake_driver.hpp"
#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;
using namespace splitkv::testing_support;

namespace {

using CudaKernelsOnDisk = FakeDriver;

RuntimeOwner open_at(const std::string& folder) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.cache_dir = folder.c_str();
  return open_runtime(&options);
}

TEST_F(CudaKernelsOnDisk, AreLoadedWithoutACompile) {
  const TempFolder folder;
  const char* schedule = "partition=fixed splits=2 reduce=kernel";
  RuntimeOwner first = open_at(folder.path()), second = open_at(folder.path());
  KernelOwner compiled, kept;
  ASSERT_TRUE(prepare(first.get(), "cuda:0", kCudaProblem, schedule, &compiled).ok());
  fake_cuda::clear_calls();
  ASSERT_TRUE(prepare(second.get(), "cuda:0", kCudaProblem, schedule, &kept).ok());
  EXPECT_STREQ(info_of(compiled.get()).origin, "compiled");
  EXPECT_STREQ(info_of(kept.get()).origin, "disk");
  EXPECT_EQ(statistics_of(second.get()).compiles, 0u);
  EXPECT_EQ(info_of(kept.get()).module_bytes, info_of(compiled.get()).module_bytes);
  const auto names = fake_cuda::call_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "cuModuleLoadData"), 2);
}

TEST_F(CudaKernelsOnDisk, HoldTheCubinsTheLogAndTheSource) {
  const TempFolder folder;
  RuntimeOwner runtime = open_at(folder.path());
  KernelOwner kernel;
  ASSERT_TRUE(prepare(runtime.get(), "cuda:0", kCudaProblem,
                      "partition=fixed splits=2 reduce=kernel", &kernel)
                  .ok());
  const splitkv_kernel_info info = info_of(kernel.get());
  const auto entry = decode_entry(contents(folder / "kernels/" + entry_name(info.key)));
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  ASSERT_EQ(entry->code.images.size(), 2u);
  for (const std::string& image : entry->code.images) EXPECT_EQ(image.substr(1, 3), "ELF");
  EXPECT_EQ(parse_ptxas_log(entry->code.log).size(), 2u);
  EXPECT_EQ(entry->source, info.source);
  EXPECT_EQ(entry->code.compile_ms, info.compile_ms);
}

TEST_F(CudaKernelsOnDisk, AreKeyedByTheBuildOfNvrtcAndNotByItsPlace) {
  const auto facts = nvrtc_facts("sm_90a");
  ASSERT_TRUE(facts.ok());
  const std::string version = *nvrtc_version();
  const std::string major = version.substr(0, version.find('.'));
  EXPECT_EQ(facts->compiler.find("NVRTC " + major), 0u) << facts->compiler;
  EXPECT_EQ(facts->compiler.find('/'), std::string::npos) << facts->compiler;
  EXPECT_EQ(nvrtc_facts("sm_90a")->compiler, facts->compiler) << "the same once it is open";
  const size_t build = facts->compiler.find(" build ");
  if (build != std::string::npos) {
    EXPECT_EQ(facts->compiler.find_first_not_of("0123456789abcdef", build + 7), std::string::npos);
    EXPECT_GE(facts->compiler.size(), build + 7 + 16);
  }
}

}  // namespace
