// The C++ layer of many kernels, tuning and jobs: values, owners and failures.
#include <stdlib.h>

#include "runtime/splitkv_deploy.hpp"
#include "tests/background/job_case.hpp"
#include "tests/support/fake_cpu_compiler.hpp"

using namespace splitkv;
using splitkv::background_test::kOther;
using splitkv::background_test::kProblem;
using splitkv::cli_test::Folder;
using splitkv::pack_test::contents;
using splitkv::pack_test::Variable;

namespace {

class CppLayer : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SPLITKV_CPU_LIBRARY", FAKE_CPU_COMPILER, 1);
    fake_cpu_compiler::reset();
  }
  // The failure of what must fail.
  template <class Body>
  static Failure failure_of(const Body& body) {
    try {
      body();
    } catch (const Failure& failure) {
      return failure;
    }
    return Failure(SPLITKV_OK, "it did not fail");
  }
  Runtime runtime;
};

TEST_F(CppLayer, PreparesManyAndTellsWhatFailedByItem) {
  const std::vector<PrepareItem> items = {
      {kProblem, {}, "splits=2"}, {kProblem, {}, "tile=3"}, {kOther, {8, 100}, "splits=3"}};
  const splitkv_plan plan = plan_many(runtime, "cpu", items);
  EXPECT_EQ(plan.kernels, 2);
  EXPECT_EQ(plan.refused, 1);
  std::vector<int64_t> told;
  ManyOptions options;
  options.workers = 1;
  options.progress = [&](const splitkv_progress& progress) {
    told.push_back(progress.done);
    return true;
  };
  const std::vector<PreparedItem> prepared = prepare_many(runtime, "cpu", items, options);
  ASSERT_EQ(prepared.size(), 3u);
  ASSERT_TRUE(prepared[0].kernel && prepared[2].kernel);
  EXPECT_STREQ(prepared[2].kernel->info().problem,
               runtime.prepare("cpu", kOther, {}, "splits=3").info().problem);
  EXPECT_FALSE(prepared[1].kernel);
  EXPECT_EQ(prepared[1].status, SPLITKV_UNSUPPORTED);
  EXPECT_NE(prepared[1].message.find("tile=3"), std::string::npos) << prepared[1].message;
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(prepare_many(runtime, "cpu", {}).empty());
  options.workers = -1;
  const Failure failure = failure_of([&] { prepare_many(runtime, "cpu", items, options); });
  EXPECT_EQ(failure.status(), SPLITKV_INVALID_ARGUMENT);
  EXPECT_NE(std::string(failure.what()).find("options.workers=-1"), std::string::npos);
}

TEST_F(CppLayer, AdoptsWhatAJobCompiled) {
  const Kernel kernel = runtime.prepare("cpu", kProblem, {}, "tile=32 splits=2");
  const Job job(runtime, "cpu", kProblem, {}, Job::compile("tile=64 splits=4"));
  EXPECT_EQ(job.wait().stage, SPLITKV_JOB_DONE);
  const Failure small = failure_of([&] { job.adopt(kernel, 8, kernel.sizes(8)); });
  EXPECT_EQ(small.status(), SPLITKV_INVALID_ARGUMENT) << small.what();
  const splitkv_buffer_sizes enough = sizes_adoptable(kernel, {{8, 4096}}, 8);
  const Kernel better = job.adopt(kernel, 8, enough);
  EXPECT_NE(std::string(better.info().schedule).find("splits=4"), std::string::npos);
  EXPECT_EQ(job.state().taken, 1);
  EXPECT_EQ(failure_of([&] { job.adopt(kernel); }).status(), SPLITKV_NOT_PREPARED);
  job.cancel();
  EXPECT_EQ(job.state().stage, SPLITKV_JOB_DONE);
}

TEST_F(CppLayer, ThrowsWhatAJobFailedOf) {
  fake_cpu_compiler::refuse("line 7: expected type");
  const Job job(runtime, "cpu", kProblem);
  const Failure failure = failure_of([&] { job.wait(); });
  EXPECT_EQ(failure.status(), SPLITKV_COMPILE_FAILED);
  EXPECT_NE(std::string(failure.what()).find("line 7"), std::string::npos) << failure.what();
}

TEST_F(CppLayer, TunesNowAndInTheBackground) {
  const Folder folder;
  const std::string file = folder.file("tuning.txt");
  const Variable users("SPLITKV_TUNING_FILE", file.c_str());
  TuneOptions options;
  options.worker = SPLITKV_TEST_WORKER;
  options.candidates = 4;
  int told = 0;
  options.progress = [&](const splitkv_tune_progress&) { return ++told > 0; };
  const Tuning tuning = tune(runtime, "cpu", kProblem, {{1, 4096}}, options);
  EXPECT_EQ(contents(file), tuning.info().records);
  EXPECT_GT(told, 4);
  options.progress = [](const splitkv_tune_progress&) { return false; };
  options.again = true;
  const Failure given_up = failure_of([&] {
    tune(runtime, "cpu", kProblem, {{1, 4096}}, options);
  });
  EXPECT_EQ(given_up.status(), SPLITKV_NOT_PREPARED) << given_up.what();

  const Kernel kernel = runtime.prepare("cpu", kProblem, {}, "splits=2");
  const Failure refused = failure_of([&] {
    Job(runtime, "cpu", kProblem, {1, 512}, Job::tune(options));
  });
  EXPECT_EQ(refused.status(), SPLITKV_INVALID_ARGUMENT) << refused.what();
  options.progress = nullptr;
  const Job job(runtime, "cpu", kProblem, {1, 512}, Job::tune(options));
  EXPECT_EQ(job.wait().stage, SPLITKV_JOB_DONE);
  EXPECT_NE(std::string(job.adopt(kernel).info().why).find("tuned, exact match: " + file),
            std::string::npos);
}

}  // namespace
