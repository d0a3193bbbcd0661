#include "tests/background/job_case.hpp"

#include <sys/stat.h>

#include <chrono>
#include <thread>

namespace splitkv::background_test {

using testing_support::Answer;
using testing_support::answer_of;
using testing_support::KernelOwner;

namespace {
constexpr double kLongest_s = 30;
}

splitkv_workload workload(int64_t batch, int64_t kv_len, int64_t mean) {
  splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
  workload.batch = batch;
  workload.kv_len = kv_len;
  workload.kv_len_mean = mean;
  return workload;
}

Answer start(splitkv_runtime* runtime, const char* problem, const splitkv_job_options* options,
             JobOwner* job, const splitkv_workload* workload, const char* device) {
  splitkv_job* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_background_start(runtime, device, problem, workload, options, &handle, m);
  });
  job->reset(handle);
  return answer;
}

JobOwner compile(splitkv_runtime* runtime, const char* problem, const char* schedule) {
  splitkv_job_options options = SPLITKV_INIT(splitkv_job_options);
  options.schedule = schedule;
  JobOwner job;
  const Answer answer = start(runtime, problem, &options, &job);
  EXPECT_TRUE(answer.ok()) << answer;
  return job;
}

Answer start_tuning(splitkv_runtime* runtime, const char* worker, JobOwner* job) {
  splitkv_tune_options tune = SPLITKV_INIT(splitkv_tune_options);
  tune.worker = worker;
  tune.flags = SPLITKV_TUNE_NOT_KEPT;
  splitkv_job_options options = SPLITKV_INIT(splitkv_job_options);
  options.kind = SPLITKV_JOB_TUNE;
  options.tune = &tune;
  return start(runtime, kProblem, &options, job);
}

Polled poll(const JobOwner& job) {
  Polled polled;
  polled.answer =
      answer_of([&](splitkv_message* m) { return splitkv_poll_job(job.get(), &polled.state, m); });
  return polled;
}

Polled wait(const JobOwner& job) {
  Polled polled;
  polled.answer = answer_of([&](splitkv_message* m) {
    return splitkv_wait_job(job.get(), kLongest_s, &polled.state, m);
  });
  EXPECT_GE(polled.state.stage, SPLITKV_JOB_DONE) << "it has not ended";
  return polled;
}

bool reaches(const JobOwner& job, splitkv_job_stage stage) {
  for (double waited = 0; waited < kLongest_s; waited += 0.001) {
    const Polled polled = poll(job);
    if (polled.is(stage)) return true;
    if (polled.state.stage >= SPLITKV_JOB_DONE) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

Answer adopt(const KernelOwner& kernel, const JobOwner& job, KernelOwner* adopted,
             int64_t max_batch, const splitkv_buffer_sizes* buffers) {
  splitkv_kernel* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_adopt(kernel.get(), job.get(), max_batch, buffers, &handle, m);
  });
  adopted->reset(handle);
  return answer;
}

splitkv_tuning_info info_of(const TuningOwner& tuning) {
  splitkv_tuning_info info = SPLITKV_INIT(splitkv_tuning_info);
  EXPECT_EQ(splitkv_get_tuning_info(tuning.get(), &info, nullptr), SPLITKV_OK);
  return info;
}

std::string script(const cli_test::Folder& folder, const std::string& name,
                   const std::string& text) {
  const std::string path = folder.file(name);
  pack_test::overwrite(path, "#!/bin/sh\n" + text + "\n");
  chmod(path.c_str(), 0755);
  return path;
}

}  // namespace splitkv::background_test
