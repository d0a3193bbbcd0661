// splitkv_tune and jobs that tune, with a measuring process that answers at once, crashes, hangs or
// is not there.
#include <stdlib.h>

#include <chrono>

#include "runtime/tuning_file.hpp"
#include "tests/background/job_case.hpp"
#include "tests/support/fake_cpu_compiler.hpp"

using namespace splitkv::background_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Folder;
using splitkv::pack_test::contents;
using splitkv::pack_test::LoggedRuntime;
using splitkv::pack_test::Variable;

namespace {

bool holds(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::ptrdiff_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

class Tune : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SPLITKV_CPU_LIBRARY", FAKE_CPU_COMPILER, 1);
    fake_cpu_compiler::reset();
    options.worker = SPLITKV_TEST_WORKER;
    options.candidates = 12;
  }
  Answer tune(const std::vector<splitkv_workload>& workloads) {
    splitkv_tuning* handle = nullptr;
    const Answer answer = answer_of([&](splitkv_message* m) {
      return splitkv_tune(runtime.get(), "cpu", kProblem, workloads.data(), workloads.size(),
                          &options, &handle, m);
    });
    tuning.reset(handle);
    return answer;
  }
  std::string why(int64_t batch, int64_t kv_len, int64_t mean) {
    const splitkv_workload hints = workload(batch, kv_len, mean);
    splitkv_kernel* kernel = nullptr;
    const Answer answer = answer_of([&](splitkv_message* m) {
      return splitkv_prepare(runtime.get(), "cpu", kProblem, &hints, nullptr, &kernel, m);
    });
    EXPECT_TRUE(answer.ok()) << answer;
    const KernelOwner owner(kernel);
    return answer.ok() ? splitkv::testing_support::info_of(kernel).why : "";
  }

  const Folder folder;
  const std::string file = folder.file("tuning.txt");
  const Variable users{"SPLITKV_TUNING_FILE", file.c_str()};
  RuntimeOwner runtime = open_runtime();
  splitkv_tune_options options = SPLITKV_INIT(splitkv_tune_options);
  TuningOwner tuning;
};

TEST_F(Tune, KeepsRecordsThatTheNextPrepareTakes) {
  EXPECT_FALSE(holds(why(8, 1000, 1000), "tuned"));
  const Answer answer = tune({workload(8, 1000), workload(1, 4096)});
  ASSERT_TRUE(answer.ok()) << answer;
  const splitkv_tuning_info info = info_of(tuning);
  EXPECT_EQ(lines_in(info.records), 4);  // equal, ragged and any rows of eight; one row
  EXPECT_STREQ(info.failures, "");
  EXPECT_STREQ(info.untuned, "");
  EXPECT_EQ(info.file, file);
  EXPECT_STREQ(info.worker, SPLITKV_TEST_WORKER);
  EXPECT_EQ(info.processes, 1);
  EXPECT_EQ(info.known, 0);
  EXPECT_EQ(info.out_of_time, 0);
  EXPECT_GE(info.candidates, 12);
  EXPECT_EQ(info.compiled, info.candidates);
  EXPECT_EQ(info.checked, info.candidates);
  EXPECT_GT(info.measured, 12);
  EXPECT_GE(info.kernels, 1);
  EXPECT_EQ(contents(file), info.records);
  for (const int64_t mean : {0, 1000, 100}) {
    EXPECT_TRUE(holds(why(8, 1000, mean), "tuned, exact match: " + file)) << why(8, 1000, mean);
  }
  EXPECT_TRUE(holds(why(1, 4096, 0), "tuned, exact match"));
}

TEST_F(Tune, LeavesOutWhatHasRecordsUnlessItIsToMeasureAgain) {
  ASSERT_TRUE(tune({workload(1, 4096)}).ok());
  ASSERT_TRUE(tune({workload(1, 4000)}).ok());  // of the same bucket
  splitkv_tuning_info info = info_of(tuning);
  EXPECT_EQ(info.known, 1);
  EXPECT_EQ(info.processes, 0);
  EXPECT_STREQ(info.records, "");
  EXPECT_STREQ(info.worker, "");
  EXPECT_EQ(lines_in(contents(file)), 1);
  options.flags = SPLITKV_TUNE_AGAIN;
  ASSERT_TRUE(tune({workload(1, 4000)}).ok());
  EXPECT_EQ(info_of(tuning).known, 0);
  EXPECT_EQ(lines_in(contents(file)), 2);
}

TEST_F(Tune, NotKeptIsKnownToThisRuntimeAloneAndBeforeTheFile) {
  ASSERT_TRUE(tune({workload(1, 4096)}).ok());
  options.flags = SPLITKV_TUNE_NOT_KEPT;
  const std::string before = contents(file);
  ASSERT_TRUE(tune({workload(1, 4096)}).ok());
  EXPECT_EQ(contents(file), before);
  EXPECT_STREQ(info_of(tuning).file, "");
  EXPECT_EQ(lines_in(info_of(tuning).records), 1);
  EXPECT_TRUE(holds(why(1, 4096, 0), "tuned, exact match: this process")) << why(1, 4096, 0);
  runtime = open_runtime();
  EXPECT_TRUE(holds(why(1, 4096, 0), "tuned, exact match: " + file));
}

TEST_F(Tune, IntoAFileOfTheCallersIsKnownToThisRuntimeToo) {
  const std::string other = folder.file("other.txt");
  options.file = other.c_str();
  ASSERT_TRUE(tune({workload(1, 4096)}).ok());
  EXPECT_EQ(contents(other), info_of(tuning).records);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(holds(why(1, 4096, 0), "tuned, exact match: this process"));
  options.flags = SPLITKV_TUNE_NOT_KEPT;
  const Answer answer = tune({workload(1, 4096)});
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("SPLITKV_TUNE_NOT_KEPT")) << answer;
}

TEST_F(Tune, SurvivesACandidateThatCrashesAndNamesIt) {
  const Variable crashes("TUNING_WORKER_CRASHES", "unroll=8");
  const Answer answer = tune({workload(1, 4096)});
  ASSERT_TRUE(answer.ok()) << answer;
  const splitkv_tuning_info info = info_of(tuning);
  EXPECT_EQ(lines_in(info.records), 1);
  EXPECT_TRUE(holds(info.failures, "unroll=8")) << info.failures;
  EXPECT_TRUE(holds(info.failures, "signal 11")) << info.failures;
  EXPECT_GE(info.processes, 2);
  EXPECT_TRUE(holds(contents(file), "# failed: ")) << contents(file);
}

TEST_F(Tune, SaysWhereNothingCouldBeMeasured) {
  const Variable crashes("TUNING_WORKER_CRASHES", "family");
  const Answer answer = tune({workload(1, 4096)});
  ASSERT_TRUE(answer.ok()) << answer;
  const splitkv_tuning_info info = info_of(tuning);
  EXPECT_STREQ(info.records, "");
  EXPECT_STREQ(info.file, "");
  EXPECT_TRUE(holds(info.untuned, "every candidate failed")) << info.untuned;
  JobOwner job;
  ASSERT_TRUE(start_tuning(runtime.get(), SPLITKV_TEST_WORKER, &job).ok());
  const Polled failed = wait(job);
  EXPECT_TRUE(failed.is(SPLITKV_JOB_FAILED));
  EXPECT_EQ(failed.answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(failed.answer.says("every candidate failed")) << failed.answer;
}

TEST_F(Tune, WithoutTheProgramOrWithAnotherVersionOfItIsAnError) {
  options.worker = "/nowhere/splitkv";
  Answer answer = tune({workload(1, 4096)});
  EXPECT_EQ(answer.status, SPLITKV_LIBRARY_MISSING);
  EXPECT_TRUE(answer.says("/nowhere/splitkv")) << answer;
  EXPECT_TRUE(answer.says("worker=/path/to/splitkv would work")) << answer;
  const std::string older = script(folder, "older", "echo ready 1 0.0.9; exec sleep 60");
  options.worker = older.c_str();
  answer = tune({workload(1, 4096)});
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("is of SplitKV 0.0.9")) << answer;
  EXPECT_EQ(contents(file), "");
}

TEST_F(Tune, RefusesALimitOfMemoryThatTheProcessCannotKeepTo) {
  options.memory_bytes = 1000;
  const Answer answer = tune({workload(1, 4096)});
  EXPECT_EQ(answer.status, SPLITKV_UNSUPPORTED);
  EXPECT_TRUE(answer.says("memory_bytes=1000")) << answer;
}

TEST_F(Tune, TellsItsProgressAndIsGivenUpWhileItsProcessIsWaitedFor) {
  struct Told {
    std::vector<std::string> stages;
    double done = 0;
    bool stop = false;
  } told;
  options.user = &told;
  options.progress = [](void* user, const splitkv_tune_progress* progress) -> int32_t {
    Told& told = *static_cast<Told*>(user);
    told.stages.push_back(progress->stage);
    EXPECT_GE(progress->done, told.done);
    EXPECT_GE(progress->seconds_left, 0);
    told.done = progress->done;
    return told.stop && told.stages.size() > 3;
  };
  ASSERT_TRUE(tune({workload(1, 4096)}).ok());
  EXPECT_TRUE(holds(told.stages[told.stages.size() / 2], "checking") ||
              holds(told.stages[told.stages.size() / 2], "measuring"));
  EXPECT_TRUE(holds(told.stages.back(), "measuring 1x4096")) << told.stages.back();

  const std::string before = contents(file);
  const std::string never = script(folder, "never", "exec sleep 60");
  options.worker = never.c_str();
  options.flags = SPLITKV_TUNE_AGAIN;
  told = {{}, 0, true};
  const auto begin = std::chrono::steady_clock::now();
  const Answer answer = tune({workload(1, 4096)});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("cancelled")) << answer;
  EXPECT_EQ(contents(file), before);
}

TEST_F(Tune, IsRefusedWhereItIsForbiddenOrSwitchedOff) {
  const auto refused = [&](const std::string& words) {
    const Answer answer = tune({workload(1, 4096)});
    EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
    EXPECT_TRUE(answer.says(words)) << answer;
  };
  {
    const Variable off("SPLITKV_TUNING_FILE", "off");
    refused("SPLITKV_TUNING_FILE=off");
  }
  {
    const Variable forbidden("SPLITKV_NO_TUNING", "1");
    refused("SPLITKV_NO_TUNING");
  }
  const Variable no_jit("SPLITKV_NO_JIT", "1");
  refused("SPLITKV_NO_JIT");
}

TEST_F(Tune, RefusesWhatCannotBeTuned) {
  const auto refused = [&](const std::vector<splitkv_workload>& workloads,
                           const std::string& words) {
    const Answer answer = tune(workloads);
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
    EXPECT_TRUE(answer.says(words)) << answer;
  };
  refused({}, "count=0");
  refused({workload(1, 1), workload(1, -1)}, "workloads[1]: workload.kv_len=-1");
  refused({workload(100000, 1)}, "workload.batch=100000 is above 65536");
  refused({workload(1, int64_t(1) << 40)}, "workload.kv_len=1099511627776");
  splitkv_workload unsized = workload(1, 1);
  unsized.size = 3;
  refused({unsized}, "workloads[0].size=3");
  refused({workload(1, 1), unsized}, "workloads[1].size=3 differs");
  splitkv_options threads = SPLITKV_INIT(splitkv_options);
  threads.threads = 333;
  runtime = open_runtime(&threads);
  refused({workload(1, 1)}, "options.threads=333");
  // What cannot be written is known before anything is measured.
  runtime = open_runtime();
  const std::string nowhere = folder.file("tuning.txt/under/a/file");
  splitkv::pack_test::overwrite(file, "");
  options.file = nowhere.c_str();
  options.worker = "/nowhere/splitkv";
  EXPECT_TRUE(tune({workload(1, 1)}).says(nowhere));
}

TEST_F(Tune, JobsTuneAndThenCompileWhatWasFound) {
  KernelOwner kernel, adopted;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "tile=32 splits=2", &kernel).ok());
  JobOwner job;
  Answer answer = start_tuning(runtime.get(), SPLITKV_TEST_WORKER, &job);
  ASSERT_TRUE(answer.ok()) << answer;
  const Polled ended = wait(job);
  ASSERT_TRUE(ended.is(SPLITKV_JOB_DONE)) << ended.answer;
  ASSERT_TRUE((answer = adopt(kernel, job, &adopted)).ok()) << answer;
  const std::string why = splitkv::testing_support::info_of(adopted.get()).why;
  EXPECT_TRUE(holds(why, "tuned, exact match: this process")) << why;
}

TEST_F(Tune, JobsAreCancelledWhileAProcessStartsAndWhileACandidateHangs) {
  const std::string never = script(folder, "never", "exec sleep 60");
  const Variable hangs("TUNING_WORKER_HANGS", "unroll=8");
  for (const char* worker : {never.c_str(), SPLITKV_TEST_WORKER}) {
    JobOwner job;
    ASSERT_TRUE(start_tuning(runtime.get(), worker, &job).ok());
    ASSERT_TRUE(reaches(job, SPLITKV_JOB_TUNING));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ASSERT_TRUE(poll(job).is(SPLITKV_JOB_TUNING)) << worker;
    const auto begin = std::chrono::steady_clock::now();
    splitkv_cancel_job(job.get());
    EXPECT_TRUE(wait(job).is(SPLITKV_JOB_CANCELLED));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
  JobOwner job;
  ASSERT_TRUE(start_tuning(runtime.get(), never.c_str(), &job).ok());
  ASSERT_TRUE(reaches(job, SPLITKV_JOB_TUNING));
  const auto begin = std::chrono::steady_clock::now();
  runtime.reset();
  EXPECT_TRUE(poll(job).is(SPLITKV_JOB_CANCELLED));
  job.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
