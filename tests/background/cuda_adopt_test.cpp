// Background jobs for a device of the stand-in: modules are loaded on the runtime's own thread, and
// old code stays until its kernel is released.
#include <thread>

#include "tests/api/fake_driver.hpp"
#include "tests/background/job_case.hpp"

using namespace splitkv::background_test;
using namespace splitkv::testing_support;
using splitkv::pack_test::Variable;

namespace {

constexpr const char* kOld = "partition=fixed splits=2 rows=4 warps=4 reduce=kernel";
constexpr const char* kNew = "partition=fixed splits=4 rows=4 warps=4 reduce=last_block";

using CudaJobs = FakeDriver;

JobOwner compile_on_device(const CudaStep& step, const char* schedule, const char* device) {
  splitkv_job_options options = SPLITKV_INIT(splitkv_job_options);
  options.schedule = schedule;
  JobOwner job;
  const Answer answer = start(step.runtime.get(), kCudaProblem, &options, &job, nullptr, device);
  EXPECT_TRUE(answer.ok()) << answer;
  return job;
}

int launches() {
  int count = 0;
  for (const auto& call : fake_cuda::calls()) count += call.name.starts_with("cuLaunchKernel");
  return count;
}

TEST_F(CudaJobs, LoadBesideTheOldCodeWhichStaysUntilItsKernelGoes) {
  void* const context = fake_cuda::primary_context(1);
  fake_cuda::make_current(context);
  CudaStep step("cuda:0", kOld, 8);
  ASSERT_TRUE(step.prepared.ok());
  const int modules = fake_cuda::live_modules();
  JobOwner job = compile_on_device(step, kNew, "cuda:0");
  const Polled ended = wait(job);
  ASSERT_TRUE(ended.is(SPLITKV_JOB_DONE)) << ended.answer;
  EXPECT_EQ(fake_cuda::current_context(), context);
  EXPECT_GT(fake_cuda::live_modules(), modules);
  EXPECT_EQ(launches(), 0);

  splitkv_buffer_sizes buffers = SPLITKV_INIT(splitkv_buffer_sizes);
  buffers.scratch_bytes = step.args.scratch_bytes;
  buffers.state_bytes = step.args.state_bytes;
  KernelOwner better;
  Answer answer = adopt(step.kernel, job, &better, 8, &buffers);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << answer;
  const splitkv_workload expected = workload(8, 4096);
  ASSERT_EQ(splitkv_sizes_adoptable(step.kernel.get(), &expected, 1, 8, &buffers, nullptr),
            SPLITKV_OK);
  ASSERT_TRUE((answer = adopt(step.kernel, job, &better, 8, &buffers)).ok()) << answer;

  step.args.scratch_bytes = buffers.scratch_bytes;
  step.args.state_bytes = buffers.state_bytes;
  fake_cuda::clear_calls();
  EXPECT_TRUE(step.run().ok());  // the old one: split and reduce
  EXPECT_EQ(launches(), 2);
  step.kernel.swap(better);
  fake_cuda::clear_calls();
  EXPECT_TRUE(step.run().ok());  // the new one, with the old binding
  EXPECT_EQ(launches(), 1);

  job.reset();
  const int both = fake_cuda::live_modules();
  step.runtime.reset();  // which keeps code for later prepares
  better.reset();
  EXPECT_LT(fake_cuda::live_modules(), both);
  EXPECT_GT(fake_cuda::live_modules(), 0);
  step.kernel.reset();
  EXPECT_EQ(fake_cuda::live_modules(), 0);
}

TEST_F(CudaJobs, ThatFailInTheDriverTellTheCallAndAreNotForAnotherDevice) {
  CudaStep step("cuda:0", kOld, 8);
  ASSERT_TRUE(step.prepared.ok());
  fake_cuda::fail("cuModuleLoadData", 1, 2);
  const Polled failed = wait(compile_on_device(step, kNew, "cuda:0"));
  EXPECT_TRUE(failed.is(SPLITKV_JOB_FAILED));
  EXPECT_EQ(failed.answer.status, SPLITKV_OUT_OF_MEMORY) << failed.answer;
  EXPECT_TRUE(failed.answer.says("cuModuleLoadData")) << failed.answer;
  const JobOwner other = compile_on_device(step, kNew, "cuda:1");
  ASSERT_TRUE(wait(other).is(SPLITKV_JOB_DONE));
  KernelOwner better;
  const Answer answer = adopt(step.kernel, other, &better);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("cuda:0") && answer.says("cuda:1")) << answer;
}

TEST_F(CudaJobs, TuneInAProcessOfTheirOwn) {
  CudaStep step("cuda:0", kOld, 8);
  ASSERT_TRUE(step.prepared.ok());
  const splitkv::cli_test::Folder folder;
  const std::string file = folder.file("tuning.txt");
  const Variable users("SPLITKV_TUNING_FILE", file.c_str());
  splitkv_tune_options tune = SPLITKV_INIT(splitkv_tune_options);
  tune.worker = SPLITKV_TEST_WORKER;
  tune.candidates = 6;
  splitkv_job_options options = SPLITKV_INIT(splitkv_job_options);
  options.kind = SPLITKV_JOB_TUNE;
  options.tune = &tune;
  const splitkv_workload expected = workload(8, 4096, 4096);
  JobOwner job;
  ASSERT_TRUE(start(step.runtime.get(), kCudaProblem, &options, &job, &expected, "cuda:0").ok());
  const Polled ended = wait(job);
  ASSERT_TRUE(ended.is(SPLITKV_JOB_DONE)) << ended.answer;
  splitkv_buffer_sizes buffers = SPLITKV_INIT(splitkv_buffer_sizes);
  ASSERT_EQ(splitkv_sizes_adoptable(step.kernel.get(), &expected, 1, 8, &buffers, nullptr),
            SPLITKV_OK);
  KernelOwner better;
  const Answer answer = adopt(step.kernel, job, &better, 8, &buffers);
  ASSERT_TRUE(answer.ok()) << answer;
  const std::string why = info_of(better.get()).why;
  EXPECT_NE(why.find("tuned, exact match: " + file), std::string::npos) << why;
  EXPECT_EQ(launches(), 0);  // nothing was measured in this process
}

}  // namespace
