// Adoption with real machine code: results before and after, while others run, in one pair of
// buffers; and tuning by the program itself.
#include <atomic>
#include <thread>

#include "tests/background/job_case.hpp"

using namespace splitkv::background_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Folder;
using splitkv::pack_test::Variable;

namespace {

const std::vector<int32_t> kLengths = {100, 0, 7, 333};

std::vector<float> result_of(const KernelOwner& kernel, DecodeCase& step) {
  step.out.fill(-1);
  EXPECT_EQ(splitkv_run(kernel.get(), &step.binding, &step.args, nullptr, nullptr), SPLITKV_OK);
  EXPECT_LT(errors_of(step).out, 1e-5);
  return step.out.values();
}

TEST(CpuAdopt, LeavesTheOldKernelAsItWasWhileItRuns) {
  const RuntimeOwner runtime = open_runtime();
  KernelOwner kernel, better;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "tile=32 splits=3", &kernel).ok());
  DecodeCase step(kLengths), watched(kLengths);
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  ASSERT_TRUE(watched.attach(kernel.get()).ok());
  const std::vector<float> before = result_of(kernel, step);

  std::atomic<bool> is_over{false};
  std::atomic<int> steps{0};
  std::thread engine([&] {
    while (!is_over) {
      EXPECT_EQ(result_of(kernel, watched), before);
      ++steps;
    }
  });
  const JobOwner job = compile(runtime.get(), kProblem, "tile=64 partition=flat blocks=9");
  EXPECT_TRUE(wait(job).is(SPLITKV_JOB_DONE));
  const Answer answer = adopt(kernel, job, &better);
  EXPECT_TRUE(answer.ok()) << answer;
  const int at_adoption = steps;
  while (answer.ok() && steps < at_adoption + 20) std::this_thread::yield();
  is_over = true;
  engine.join();
  ASSERT_TRUE(answer.ok());

  EXPECT_EQ(result_of(kernel, step), before);
  DecodeCase other(kLengths);
  ASSERT_TRUE(other.attach(better.get()).ok());
  result_of(better, other);
  kernel.reset();
  result_of(better, other);
}

// As an engine does: buffers for what may come, state zeroed once, bindings kept.
TEST(CpuAdopt, GoesOnWithTheBindingsTheScratchAndTheStateOfTheOld) {
  const RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  ASSERT_TRUE(
      prepare(runtime.get(), "cpu", kProblem, "tile=32 partition=fixed splits=1", &kernel).ok());
  const splitkv_workload expected = workload(int64_t(kLengths.size()), 333);
  splitkv_buffer_sizes own = SPLITKV_INIT(splitkv_buffer_sizes), sizes = own;
  const int64_t batch = int64_t(kLengths.size());
  ASSERT_EQ(splitkv_sizes(kernel.get(), batch, &own, nullptr), SPLITKV_OK);
  ASSERT_EQ(splitkv_sizes_adoptable(kernel.get(), &expected, 1, batch, &sizes, nullptr),
            SPLITKV_OK);
  EXPECT_EQ(own.scratch_bytes, 0u);
  EXPECT_GT(sizes.scratch_bytes, 0u);
  DecodeCase step(kLengths);
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  const Floats scratch(sizes.scratch_bytes / 4 + 16), state(sizes.state_bytes / 4 + 16);
  step.args.scratch = scratch.data();
  step.args.scratch_bytes = sizes.scratch_bytes;
  step.args.state = state.data();
  step.args.state_bytes = sizes.state_bytes;
  ASSERT_EQ(splitkv_state_init(kernel.get(), step.args.state, sizes.state_bytes, nullptr, nullptr),
            SPLITKV_OK);
  const std::vector<float> before = result_of(kernel, step);
  for (const char* words : {"partition=flat blocks=8", "partition=fixed splits=8",
                            "partition=fixed splits=4 rows=1", "partition=fixed splits=2"}) {
    const JobOwner job = compile(runtime.get(), kProblem, words);
    ASSERT_TRUE(wait(job).is(SPLITKV_JOB_DONE)) << words;
    KernelOwner better;
    const Answer answer = adopt(kernel, job, &better, batch, &sizes);
    ASSERT_TRUE(answer.ok()) << answer;
    for (int i = 0; i < 3; ++i) result_of(better, step);
    EXPECT_EQ(result_of(kernel, step), before) << words;
  }
}

TEST(CpuTune, MeasuresWithTheProgramBesideTheTests) {
  const Folder folder;
  const std::string file = folder.file("tuning.txt");
  const Variable users("SPLITKV_TUNING_FILE", file.c_str());
  const RuntimeOwner runtime = open_runtime();
  splitkv_tune_options options = SPLITKV_INIT(splitkv_tune_options);
  options.seconds = 4;
  options.candidates = 3;
  const splitkv_workload one = workload(1, 512);
  splitkv_tuning* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_tune(runtime.get(), "cpu", kProblem, &one, 1, &options, &handle, m);
  });
  ASSERT_TRUE(answer.ok()) << answer;
  const TuningOwner tuning(handle);
  const splitkv_tuning_info info = splitkv::background_test::info_of(tuning);
  EXPECT_NE(std::string(info.worker).find("/bin/splitkv"), std::string::npos) << info.worker;
  EXPECT_STREQ(info.failures, "");
  EXPECT_STREQ(info.untuned, "");
  EXPECT_EQ(info.records, splitkv::pack_test::contents(file));
  KernelOwner kernel;
  splitkv_kernel* prepared = nullptr;
  ASSERT_EQ(splitkv_prepare(runtime.get(), "cpu", kProblem, &one, nullptr, &prepared, nullptr),
            SPLITKV_OK);
  kernel.reset(prepared);
  const std::string why = splitkv::testing_support::info_of(kernel.get()).why;
  EXPECT_NE(why.find("tuned, exact match: " + file), std::string::npos) << why;

  options.flags = SPLITKV_TUNE_AGAIN;
  options.memory_bytes = 1000;
  ASSERT_EQ(splitkv_tune(runtime.get(), "cpu", kProblem, &one, 1, &options, &handle, nullptr),
            SPLITKV_OK);
  const TuningOwner without(handle);
  const std::string untuned = splitkv::background_test::info_of(without).untuned;
  EXPECT_NE(untuned.find("memory_bytes=1000 is below the "), std::string::npos) << untuned;
}

}  // namespace
