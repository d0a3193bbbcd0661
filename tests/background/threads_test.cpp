// Many threads that prepare, start, wait, adopt, run and release at once. Meant for a build with
// ThreadSanitizer as well.
#include <stdlib.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/background/job_case.hpp"
#include "tests/support/fake_cpu_compiler.hpp"

using namespace splitkv::background_test;
using namespace splitkv::testing_support;

namespace {

constexpr int kThreads = 32, kRounds = 6;

std::string words(int number) {
  return "partition=fixed tile=" + std::to_string(32 << number % 3) +
         " splits=" + std::to_string(1 + number % 5);
}

// An engine: a kernel, a better one made in the background, and steps before and after.
void serve(splitkv_runtime* runtime, int thread, std::atomic<int>& adopted_in_all) {
  for (int round = 0; round < kRounds; ++round) {
    KernelOwner kernel, better;
    ASSERT_TRUE(prepare(runtime, "cpu", kProblem, words(thread + round).c_str(), &kernel).ok());
    const JobOwner job = compile(runtime, kProblem, words(thread + round + 1).c_str());
    DecodeCase step({17, 0, 333});
    ASSERT_TRUE(step.attach(kernel.get()).ok());
    EXPECT_EQ(splitkv_run(kernel.get(), &step.binding, &step.args, nullptr, nullptr), SPLITKV_OK);
    if (round % 3 == 1) splitkv_cancel_job(job.get());
    if (round % 3 == 2) continue;  // it is released as it is
    const Polled ended = wait(job);
    const Answer answer = adopt(kernel, job, &better);
    EXPECT_EQ(answer.ok(), ended.is(SPLITKV_JOB_DONE)) << answer;
    if (!answer.ok()) continue;
    kernel.reset();
    ASSERT_TRUE(step.attach(better.get()).ok());
    EXPECT_EQ(splitkv_run(better.get(), &step.binding, &step.args, nullptr, nullptr), SPLITKV_OK);
    ++adopted_in_all;
  }
}

TEST(Threads, PrepareAdoptAndRunAtOnce) {
  setenv("SPLITKV_CPU_LIBRARY", FAKE_CPU_COMPILER, 1);
  fake_cpu_compiler::reset();
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.threads = 2;
  RuntimeOwner runtime = open_runtime(&options);
  std::atomic<int> adopted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { serve(runtime.get(), i, adopted); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(adopted, kThreads * kRounds / 3);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 3u);  // of three tiles; splits are launches
  runtime.reset();
  EXPECT_EQ(fake_cpu_compiler::live_codes(), 0);
}

TEST(Threads, OneJobIsAdoptedByOneOfMany) {
  setenv("SPLITKV_CPU_LIBRARY", FAKE_CPU_COMPILER, 1);
  fake_cpu_compiler::reset();
  const RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "splits=2", &kernel).ok());
  const JobOwner job = compile(runtime.get(), kProblem, "tile=32 splits=4");
  std::atomic<int> taken{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      wait(job);
      KernelOwner better;
      const Answer answer = adopt(kernel, job, &better);
      ++(answer.ok() ? taken : refused);
      EXPECT_TRUE(answer.ok() || answer.says("taken already")) << answer;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(refused, kThreads - 1);
}

}  // namespace
