// Background jobs and tuning as a caller of the C API has them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/splitkv_tune.h"
#include "tests/api/decode_case.hpp"
#include "tests/pack/pack_case.hpp"

namespace splitkv::background_test {

inline constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";
inline constexpr const char* kOther = "attention q=fp32 kv=fp32 heads=4/2 dim=64 lse=natural";

struct ReleaseJob {
  void operator()(splitkv_job* job) const { splitkv_release_job(job); }
};
using JobOwner = std::unique_ptr<splitkv_job, ReleaseJob>;

struct ReleaseTuning {
  void operator()(splitkv_tuning* tuning) const { splitkv_release_tuning(tuning); }
};
using TuningOwner = std::unique_ptr<splitkv_tuning, ReleaseTuning>;

splitkv_workload workload(int64_t batch, int64_t kv_len, int64_t mean = 0);

// options may be null. Null unless the answer is ok.
testing_support::Answer start(splitkv_runtime* runtime, const char* problem,
                              const splitkv_job_options* options, JobOwner* job,
                              const splitkv_workload* workload = nullptr,
                              const char* device = "cpu");
// A job that compiles with these words.
JobOwner compile(splitkv_runtime* runtime, const char* problem, const char* schedule);
// A job that tunes for one row; worker may be null.
testing_support::Answer start_tuning(splitkv_runtime* runtime, const char* worker, JobOwner* job);

struct Polled {
  testing_support::Answer answer;
  splitkv_job_state state = SPLITKV_INIT(splitkv_job_state);

  bool is(splitkv_job_stage stage) const { return state.stage == stage; }
};
Polled poll(const JobOwner& job);
// Waits half a minute, which is an error.
Polled wait(const JobOwner& job);
// Until it is in that stage; false: not within half a minute, or it has ended otherwise.
bool reaches(const JobOwner& job, splitkv_job_stage stage);

testing_support::Answer adopt(const testing_support::KernelOwner& kernel, const JobOwner& job,
                              testing_support::KernelOwner* adopted, int64_t max_batch = 0,
                              const splitkv_buffer_sizes* buffers = nullptr);

splitkv_tuning_info info_of(const TuningOwner& tuning);

// A program that does what the shell script says.
std::string script(const cli_test::Folder& folder, const std::string& name,
                   const std::string& text);

}  // namespace splitkv::background_test
