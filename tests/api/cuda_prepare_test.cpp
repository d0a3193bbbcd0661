// What a prepare does on a device: target facts, attributes, eager loading, kernels in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "runtime/cuda/device.hpp"
#include "tests/api/fake_driver.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;

namespace {

using CudaPrepare = FakeDriver;

int count(const std::string& name) {
  const auto names = fake_cuda::call_names();
  return int(std::count(names.begin(), names.end(), name));
}

TEST_F(CudaPrepare, FactsComeFromTheDevice) {
  const auto target = cuda_target(1);
  ASSERT_TRUE(target.ok()) << target.error().message;
  EXPECT_EQ(target->arch, "sm_90a");
  EXPECT_EQ(target->sm_count, 132);
  EXPECT_EQ(target->smem_per_block_bytes, 232448);
  EXPECT_EQ(target->smem_per_sm_bytes, 233472);
  EXPECT_EQ(target->registers_per_sm, 65536);
  EXPECT_EQ(target->max_threads_per_sm, 2048);
  EXPECT_EQ(target->max_blocks_per_sm, 32);
  EXPECT_EQ(target->l2_bytes, 62914560);
  EXPECT_NEAR(target->read_gb_per_s, 4700, 50);
}

TEST_F(CudaPrepare, ArchitecturesFromNinePointZeroUpAreExact) {
  const std::pair<std::pair<int, int>, const char*> expected[] = {
      {{8, 0}, "sm_80"},    {{8, 6}, "sm_86"},    {{8, 9}, "sm_89"},   {{9, 0}, "sm_90a"},
      {{10, 0}, "sm_100a"}, {{10, 3}, "sm_103a"}, {{12, 0}, "sm_120a"}};
  for (const auto& [capability, arch] : expected) {
    fake_cuda::set_capability(capability.first, capability.second);
    EXPECT_EQ(cuda_target(0)->arch, arch);
  }
}

TEST_F(CudaPrepare, WrongOrdinalsAreToldHowManyDevicesThereAre) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  Answer answer = prepare(runtime.get(), "cuda:2", kCudaProblem, nullptr, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(answer.says("device=cuda:2 does not exist: there are 2 CUDA devices")) << answer;
  fake_cuda::set_device_count(0);
  answer = prepare(runtime.get(), "cuda:0", kCudaProblem, nullptr, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(answer.says("there are no CUDA devices")) << answer;
  for (const char* device : {"cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:0x", "cuda:sm_90a"}) {
    answer = prepare(runtime.get(), device, kCudaProblem, nullptr, &kernel);
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << device;
    EXPECT_TRUE(answer.says("cuda:0 would fit")) << answer;
  }
}

TEST_F(CudaPrepare, FunctionsAreLoadedAtOnceAndTheirFiguresReadBack) {
  CudaStep step("cuda:0", "partition=fixed splits=2 reduce=kernel", 1);
  ASSERT_TRUE(step.prepared.ok());
  EXPECT_EQ(count("cuModuleLoadData"), 2);
  EXPECT_EQ(count("cuModuleGetFunction"), 2);
  EXPECT_EQ(count("cuFuncLoad"), 2);
  const splitkv_kernel_info info = info_of(step.kernel.get());
  EXPECT_EQ(info.registers_split, 42);
  EXPECT_EQ(info.registers_reduce, 42);
  EXPECT_EQ(info.local_bytes_split, 16);
  EXPECT_GT(info.module_bytes, 1000u);
  EXPECT_STREQ(info.target, "cuda:sm_90a");
}

TEST_F(CudaPrepare, SharedMemoryAboveFortyEightKilobytesIsAskedFor) {
  const char* schedule = "partition=fixed splits=2 rows=4 warps=4 reduce=kernel";
  CudaStep below("cuda:0", schedule, 1);
  ASSERT_TRUE(below.prepared.ok());
  const int64_t dynamic = info_of(below.kernel.get()).smem_bytes;
  ASSERT_GT(dynamic, 0);
  ASSERT_LT(dynamic, 48 * 1024);
  EXPECT_EQ(count("cuFuncSetAttribute"), 0);

  fake_cuda::set_static_smem(int(48 * 1024 - dynamic));
  CudaStep fitting("cuda:0", schedule, 1);
  EXPECT_EQ(count("cuFuncSetAttribute"), 0);

  fake_cuda::set_static_smem(int(48 * 1024 - dynamic) + 1);
  CudaStep above("cuda:0", schedule, 1);
  ASSERT_EQ(count("cuFuncSetAttribute"), 1);
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuFuncSetAttribute") continue;
    EXPECT_EQ(call.values[0], 8);  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    EXPECT_EQ(call.values[1], dynamic);
  }
}

TEST_F(CudaPrepare, ClustersAboveEightBlocksAreAskedForAndOnlyOfTheSplitKernel) {
  CudaStep portable(
      "cuda:0", "tile=32 warps=2 stages=2 partition=fixed splits=8 reduce=cluster cluster=8", 1);
  ASSERT_TRUE(portable.prepared.ok());
  EXPECT_EQ(count("cuFuncSetAttribute"), 0);
  CudaStep wide("cuda:0",
                "tile=32 warps=2 stages=2 partition=fixed splits=32 reduce=cluster cluster=16", 1);
  ASSERT_TRUE(wide.prepared.ok());
  ASSERT_EQ(count("cuFuncSetAttribute"), 1);
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuFuncSetAttribute") continue;
    EXPECT_EQ(call.values[0], 14);  // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    EXPECT_EQ(call.values[1], 1);
  }
  EXPECT_EQ(info_of(wide.kernel.get()).kernels_per_run, 1);
}

TEST_F(CudaPrepare, ClustersThatFitNowhereAreRefusedWithWhatWouldFit) {
  const char* words = "partition=fixed splits=16 rows=4 warps=4 reduce=cluster cluster=";
  const auto prepared = [&](int cluster) {
    const std::string schedule = words + std::to_string(cluster);
    KernelOwner kernel;
    return prepare(open_runtime().get(), "cuda:0", kCudaProblem, schedule.c_str(), &kernel);
  };
  EXPECT_TRUE(prepared(16).ok());
  ASSERT_EQ(count("cuOccupancyMaxActiveClusters"), 1);
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuOccupancyMaxActiveClusters") continue;
    EXPECT_EQ(call.entry.rfind("splitkv_split_", 0), 0u) << call.entry;
    EXPECT_EQ(call.grid[0], 16u);
    EXPECT_EQ(call.block[0], 128u);
    EXPECT_GT(call.smem_bytes, 0u);
  }
  fake_cuda::set_active_clusters(0);
  Answer answer = prepared(16);
  EXPECT_EQ(answer.status, SPLITKV_UNSUPPORTED) << answer;
  EXPECT_TRUE(answer.says("cluster=16: cuda:0 holds no 16 blocks of 128 threads")) << answer;
  EXPECT_TRUE(answer.says("cluster=8 would fit")) << answer;
  answer = prepared(4);
  EXPECT_EQ(answer.status, SPLITKV_UNSUPPORTED) << answer;
  EXPECT_TRUE(answer.says("reduce=last_block would fit")) << answer;

  // CUDA_ERROR_INVALID_CLUSTER_SIZE is the same answer; other failures are the driver's.
  fake_cuda::set_active_clusters(8);
  fake_cuda::fail("cuOccupancyMaxActiveClusters", 1, 912);
  EXPECT_EQ(prepared(16).status, SPLITKV_UNSUPPORTED);
  fake_cuda::fail("cuOccupancyMaxActiveClusters", 1, 719);
  EXPECT_EQ(prepared(16).status, SPLITKV_DEVICE_ERROR);
  fake_cuda::clear_calls();
  EXPECT_TRUE(CudaStep("cuda:0", "partition=fixed splits=16 reduce=kernel", 1).prepared.ok());
  EXPECT_EQ(count("cuOccupancyMaxActiveClusters"), 0);
}

TEST_F(CudaPrepare, ASecondPrepareCompilesAndLoadsNothing) {
  CudaStep first("cuda:0", "partition=fixed splits=2 reduce=last_block", 1);
  ASSERT_TRUE(first.prepared.ok());
  fake_cuda::clear_calls();
  KernelOwner second;
  ASSERT_TRUE(prepare(first.runtime.get(), "cuda:0", kCudaProblem,
                      "partition=fixed splits=9 reduce=last_block", &second)
                  .ok());
  EXPECT_EQ(count("cuModuleLoadData"), 0);
  EXPECT_EQ(info_of(second.get()).from_memory, 1);
  EXPECT_EQ(statistics_of(first.runtime.get()).compiles, 1u);
}

TEST_F(CudaPrepare, AnotherDeviceLoadsTheSameCubinOnceMore) {
  CudaStep first("cuda:0", "partition=fixed splits=2 reduce=last_block", 1);
  ASSERT_TRUE(first.prepared.ok());
  fake_cuda::clear_calls();
  KernelOwner second;
  ASSERT_TRUE(prepare(first.runtime.get(), "cuda:1", kCudaProblem,
                      "partition=fixed splits=2 reduce=last_block", &second)
                  .ok());
  EXPECT_EQ(statistics_of(first.runtime.get()).compiles, 1u);
  for (const auto& call : fake_cuda::calls()) {
    if (call.name != "cuModuleLoadData") continue;
    EXPECT_EQ(call.context, fake_cuda::primary_context(1));
  }
  EXPECT_EQ(count("cuModuleLoadData"), 1);
}

TEST_F(CudaPrepare, EightThreadsWithOneKeyCompileAndLoadOnce) {
  RuntimeOwner runtime = open_runtime();
  std::vector<Answer> answers(8);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) {
    threads.emplace_back([&] {
      KernelOwner kernel;
      answer =
          prepare(runtime.get(), "cuda:0", kCudaProblem, "splits=4 reduce=last_block", &kernel);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) EXPECT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  EXPECT_EQ(count("cuModuleLoadData"), 1);
}

TEST_F(CudaPrepare, ModulesAndContextsAreGivenBackWithTheLastHolder) {
  const int modules = fake_cuda::live_modules(), retains = fake_cuda::retains(0);
  {
    CudaStep step("cuda:0", "partition=fixed splits=2 reduce=last_block", 1);
    ASSERT_TRUE(step.prepared.ok());
    step.runtime.reset();
    EXPECT_EQ(fake_cuda::live_modules(), modules + 1);
    EXPECT_TRUE(step.run().ok());
  }
  EXPECT_EQ(fake_cuda::live_modules(), modules);
  EXPECT_EQ(fake_cuda::retains(0), retains);
}

TEST_F(CudaPrepare, WithoutJitAMissIsAStatus) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.flags = SPLITKV_NO_JIT;
  RuntimeOwner runtime = open_runtime(&options);
  KernelOwner kernel;
  const Answer answer = prepare(runtime.get(), "cuda:0", kCudaProblem, nullptr, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  EXPECT_EQ(count("cuModuleLoadData"), 0);
}

}  // namespace
