// Jobs from start to end, against a CPU compiler that does as it is told.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/background/job_case.hpp"
#include "tests/support/fake_cpu_compiler.hpp"

using namespace splitkv::background_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Folder;
using splitkv::pack_test::LoggedRuntime;
using splitkv::pack_test::Variable;

namespace {

class Jobs : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SPLITKV_CPU_LIBRARY", FAKE_CPU_COMPILER, 1);
    fake_cpu_compiler::reset();
  }
  // A kernel of kProblem, as an engine has it before it thinks of better ones.
  KernelOwner own_kernel() {
    KernelOwner kernel;
    const Answer answer = prepare(runtime.get(), "cpu", kProblem, "tile=32 splits=2", &kernel);
    EXPECT_TRUE(answer.ok()) << answer;
    return kernel;
  }

  RuntimeOwner runtime = open_runtime();
};

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(Jobs, CompileBesideTheCallerWhoTakesTheKernelOnce) {
  const KernelOwner kernel = own_kernel();
  fake_cpu_compiler::hold();
  const JobOwner job = compile(runtime.get(), kProblem, "tile=64 splits=4");
  ASSERT_TRUE(fake_cpu_compiler::wait_until_begun(2));
  const Polled running = poll(job);
  EXPECT_TRUE(running.answer.ok()) << running.answer;
  EXPECT_TRUE(running.is(SPLITKV_JOB_COMPILING));
  KernelOwner adopted;
  Answer answer = adopt(kernel, job, &adopted);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("has not ended")) << answer;

  fake_cpu_compiler::let_go();
  const Polled ended = wait(job);
  EXPECT_TRUE(ended.answer.ok()) << ended.answer;
  EXPECT_TRUE(ended.is(SPLITKV_JOB_DONE));
  EXPECT_EQ(ended.state.done, 1);
  EXPECT_EQ(ended.state.taken, 0);
  ASSERT_TRUE((answer = adopt(kernel, job, &adopted)).ok()) << answer;
  EXPECT_NE(std::string(info_of(adopted.get()).schedule).find("splits=4"), std::string::npos);
  EXPECT_NE(std::string(info_of(kernel.get()).schedule).find("splits=2"), std::string::npos);
  EXPECT_EQ(poll(job).state.taken, 1);
  KernelOwner again;
  answer = adopt(kernel, job, &again);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("taken already")) << answer;
}

TEST_F(Jobs, RunInTheirOrderAndOneThatWaitsIsCancelledAtOnce) {
  fake_cpu_compiler::hold();
  const JobOwner first = compile(runtime.get(), kProblem, "splits=2");
  JobOwner second = compile(runtime.get(), kProblem, "tile=32 splits=3");
  const JobOwner third = compile(runtime.get(), kProblem, "tile=128 splits=4");
  ASSERT_TRUE(fake_cpu_compiler::wait_until_begun(1));
  EXPECT_TRUE(poll(second).is(SPLITKV_JOB_WAITING));
  splitkv_cancel_job(second.get());
  const Polled cancelled = poll(second);
  EXPECT_TRUE(cancelled.is(SPLITKV_JOB_CANCELLED));
  EXPECT_EQ(cancelled.state.done, 1);
  EXPECT_EQ(cancelled.answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(cancelled.answer.says("cancelled")) << cancelled.answer;
  EXPECT_LT(seconds_of([&] { second.reset(); }), 5);  // the first is still held
  EXPECT_TRUE(poll(first).is(SPLITKV_JOB_COMPILING));
  fake_cpu_compiler::let_go();
  EXPECT_TRUE(wait(third).is(SPLITKV_JOB_DONE));
  EXPECT_TRUE(wait(first).is(SPLITKV_JOB_DONE));
  EXPECT_EQ(fake_cpu_compiler::begun(), 2);
}

TEST_F(Jobs, ThatAreCancelledWhileTheyCompileGiveNothing) {
  const KernelOwner kernel = own_kernel();
  fake_cpu_compiler::hold();
  const JobOwner job = compile(runtime.get(), kProblem, "tile=64 splits=4");
  ASSERT_TRUE(fake_cpu_compiler::wait_until_begun(2));
  splitkv_cancel_job(job.get());
  EXPECT_TRUE(poll(job).is(SPLITKV_JOB_COMPILING));  // a compile is finished
  fake_cpu_compiler::let_go();
  EXPECT_TRUE(wait(job).is(SPLITKV_JOB_CANCELLED));
  KernelOwner adopted;
  const Answer answer = adopt(kernel, job, &adopted);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("was cancelled")) << answer;
  splitkv_cancel_job(job.get());  // nothing happens
  EXPECT_TRUE(poll(job).is(SPLITKV_JOB_CANCELLED));
}

TEST_F(Jobs, ThatAreReleasedWhileTheyCompileAreWaitedFor) {
  fake_cpu_compiler::hold();
  JobOwner job = compile(runtime.get(), kProblem, "splits=2");
  ASSERT_TRUE(fake_cpu_compiler::wait_until_begun(1));
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fake_cpu_compiler::let_go();
  });
  EXPECT_GT(seconds_of([&] { job.reset(); }), 0.05);
  later.join();
  runtime.reset();
  EXPECT_EQ(fake_cpu_compiler::live_codes(), 0);
}

TEST_F(Jobs, OfARuntimeThatIsClosedAreCancelledAndMayBeReleasedLater) {
  fake_cpu_compiler::hold();
  const JobOwner running = compile(runtime.get(), kProblem, "splits=2");
  const JobOwner waiting = compile(runtime.get(), kProblem, "tile=32 splits=2");
  ASSERT_TRUE(fake_cpu_compiler::wait_until_begun(1));
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fake_cpu_compiler::let_go();
  });
  runtime.reset();
  later.join();
  EXPECT_TRUE(poll(running).is(SPLITKV_JOB_CANCELLED));
  EXPECT_TRUE(poll(waiting).is(SPLITKV_JOB_CANCELLED));
  EXPECT_EQ(fake_cpu_compiler::begun(), 1);
}

TEST_F(Jobs, KeepAKernelThatOutlivesTheRuntime) {
  KernelOwner kernel = own_kernel(), adopted;
  JobOwner job = compile(runtime.get(), kProblem, "tile=64 splits=4");
  ASSERT_TRUE(wait(job).is(SPLITKV_JOB_DONE));
  runtime.reset();
  const Answer answer = adopt(kernel, job, &adopted);
  ASSERT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(fake_cpu_compiler::live_codes(), 2);
  kernel.reset();
  EXPECT_EQ(fake_cpu_compiler::live_codes(), 1);
  job.reset();
  adopted.reset();
  EXPECT_EQ(fake_cpu_compiler::live_codes(), 0);
}

TEST_F(Jobs, ThatFailToCompileTellTheLogAndLeaveTheNextAlone) {
  const KernelOwner kernel = own_kernel();
  fake_cpu_compiler::refuse("line 7: expected type");
  const JobOwner job = compile(runtime.get(), kProblem, "tile=64 splits=4");
  const Polled failed = wait(job);
  EXPECT_TRUE(failed.is(SPLITKV_JOB_FAILED));
  EXPECT_EQ(failed.answer.status, SPLITKV_COMPILE_FAILED);
  EXPECT_TRUE(failed.answer.says("line 7: expected type")) << failed.answer;
  EXPECT_TRUE(failed.answer.says("source: ")) << failed.answer;
  KernelOwner adopted;
  const Answer answer = adopt(kernel, job, &adopted);
  EXPECT_EQ(answer.status, SPLITKV_COMPILE_FAILED);
  EXPECT_TRUE(answer.says("line 7: expected type")) << answer;
  EXPECT_EQ(adopted, nullptr);
  fake_cpu_compiler::refuse(nullptr);
  EXPECT_TRUE(wait(compile(runtime.get(), kProblem, "tile=64 splits=4")).is(SPLITKV_JOB_DONE));
}

TEST_F(Jobs, OfWhatCannotBePreparedFailAsAPrepareDoes) {
  const Polled failed = wait(compile(runtime.get(), kProblem, "tile=3"));
  EXPECT_TRUE(failed.is(SPLITKV_JOB_FAILED));
  KernelOwner kernel;
  const Answer answer = prepare(runtime.get(), "cpu", kProblem, "tile=3", &kernel);
  EXPECT_EQ(failed.answer.status, answer.status);
  EXPECT_EQ(failed.answer.message, answer.message);
}

TEST_F(Jobs, AreNotAdoptedForAnotherProblemOrIntoBuffersThatAreTooSmall) {
  const KernelOwner kernel = own_kernel();
  KernelOwner other, adopted;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kOther, "splits=2", &other).ok());
  const JobOwner job = compile(runtime.get(), kProblem, "tile=64 splits=16");
  ASSERT_TRUE(wait(job).is(SPLITKV_JOB_DONE));
  Answer answer = adopt(other, job, &adopted);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("dim=32") && answer.says("dim=64")) << answer;

  splitkv_buffer_sizes buffers = SPLITKV_INIT(splitkv_buffer_sizes);
  ASSERT_EQ(splitkv_sizes(kernel.get(), 8, &buffers, nullptr), SPLITKV_OK);
  answer = adopt(kernel, job, &adopted, 8, &buffers);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("buffers.scratch_bytes=" + std::to_string(buffers.scratch_bytes)))
      << answer;
  EXPECT_TRUE(answer.says("max_batch=8") && answer.says("splits=16")) << answer;
  EXPECT_EQ(adopted, nullptr);
  buffers.scratch_bytes *= 8;  // 16 splits instead of 2
  buffers.state_bytes = 0;
  answer = adopt(kernel, job, &adopted, 8, &buffers);
  EXPECT_TRUE(answer.says("buffers.state_bytes=0 is below")) << answer;
  buffers.state_bytes = 4096;
  EXPECT_EQ(adopt(kernel, job, &adopted, -1, &buffers).status, SPLITKV_INVALID_ARGUMENT);
  ASSERT_TRUE((answer = adopt(kernel, job, &adopted, 8, &buffers)).ok()) << answer;
}

TEST_F(Jobs, AreMeasuredByWorkloadsOfAnOlderHeaderToo) {
  struct OlderWorkload {
    size_t size;
    int64_t batch, kv_len;  // and no kv_len_mean
  };
  static_assert(sizeof(OlderWorkload) < sizeof(splitkv_workload));
  const KernelOwner kernel = own_kernel();
  const OlderWorkload older[] = {{sizeof(OlderWorkload), 1, 64},
                                 {sizeof(OlderWorkload), 1, 100000}};
  const splitkv_workload same[] = {workload(1, 64), workload(1, 100000)};
  const auto sizes_for = [&](const splitkv_workload* workloads, size_t count) {
    splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
    const Answer answer = answer_of([&](splitkv_message* m) {
      return splitkv_sizes_adoptable(kernel.get(), workloads, count, 1, &sizes, m);
    });
    EXPECT_TRUE(answer.ok()) << answer;
    return sizes.scratch_bytes;
  };
  const auto* read = reinterpret_cast<const splitkv_workload*>(older);
  EXPECT_EQ(sizes_for(read, 2), sizes_for(same, 2));
  const OlderWorkload wrong[] = {older[0], {sizeof(OlderWorkload), 1, -1}};
  const Answer refused = answer_of([&](splitkv_message* m) {
    splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
    return splitkv_sizes_adoptable(kernel.get(), reinterpret_cast<const splitkv_workload*>(wrong),
                                   2, 1, &sizes, m);
  });
  EXPECT_TRUE(refused.says("workloads[1]: workload.kv_len=-1")) << refused;
}

TEST_F(Jobs, OfLockedDownRuntimesAreRefused) {
  JobOwner job;
  const LoggedRuntime no_jit(SPLITKV_NO_JIT);
  Answer answer = start(no_jit.get(), kProblem, nullptr, &job);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("SPLITKV_NO_JIT")) << answer;
  answer = start_tuning(no_jit.get(), nullptr, &job);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("SPLITKV_NO_JIT")) << answer;
  const LoggedRuntime no_tuning(SPLITKV_NO_TUNING);
  answer = start_tuning(no_tuning.get(), nullptr, &job);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED);
  EXPECT_TRUE(answer.says("SPLITKV_NO_TUNING")) << answer;
  EXPECT_TRUE(start(no_tuning.get(), kProblem, nullptr, &job).ok());
  EXPECT_TRUE(wait(job).is(SPLITKV_JOB_DONE));
  const Variable forbidden("SPLITKV_NO_JIT", "1");
  answer = start(runtime.get(), kProblem, nullptr, &job);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  const LoggedRuntime no_disk(SPLITKV_NO_DISK);
  const Variable allowed("SPLITKV_NO_JIT", nullptr);
  EXPECT_TRUE(start(no_disk.get(), kProblem, nullptr, &job).ok());
  EXPECT_TRUE(wait(job).is(SPLITKV_JOB_DONE));
}

TEST_F(Jobs, OfAParentAreCancelledInAChildOfFork) {
  const JobOwner done = compile(runtime.get(), kProblem, "splits=2");
  ASSERT_TRUE(wait(done).is(SPLITKV_JOB_DONE));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // instead of waiting for a thread that is not there
    JobOwner job;
    const Answer answer = start(runtime.get(), kProblem, nullptr, &job);
    const bool refused = answer.status == SPLITKV_NOT_PREPARED && answer.says("before a fork");
    const Polled left = poll(done);
    const bool cancelled = left.is(SPLITKV_JOB_CANCELLED) && left.state.done == 1;
    splitkv_cancel_job(done.get());
    runtime.reset();
    _exit(refused && cancelled ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(poll(done).is(SPLITKV_JOB_DONE));
}

TEST_F(Jobs, RefuseWhatCannotBeRead) {
  const auto refused = [&](const Answer& answer, const std::string& words) {
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
    EXPECT_TRUE(answer.says(words)) << answer;
  };
  JobOwner job;
  splitkv_job_options options = SPLITKV_INIT(splitkv_job_options);
  splitkv_tune_options tune = SPLITKV_INIT(splitkv_tune_options);
  refused(start(nullptr, kProblem, nullptr, &job), "runtime is NULL");
  refused(start(runtime.get(), nullptr, nullptr, &job), "problem is NULL");
  options.kind = splitkv_job_kind(3);
  refused(start(runtime.get(), kProblem, &options, &job), "options.kind=3 is unknown");
  options.kind = SPLITKV_JOB_COMPILE;
  options.tune = &tune;
  refused(start(runtime.get(), kProblem, &options, &job), "options.tune is given");
  options.kind = SPLITKV_JOB_TUNE;
  tune.progress = [](void*, const splitkv_tune_progress*) -> int32_t { return 0; };
  refused(start(runtime.get(), kProblem, &options, &job), "progress is given to a job");
  tune.progress = nullptr;
  tune.flags = 4;
  refused(start(runtime.get(), kProblem, &options, &job), "options.flags=0x4 has unknown bits");
  tune.flags = 0;
  tune.seconds = -1;
  refused(start(runtime.get(), kProblem, &options, &job), "options.seconds=-1");
  tune.seconds = 0;
  tune.candidates = -1;
  refused(start(runtime.get(), kProblem, &options, &job), "options.candidates=-1");
  tune.candidates = 0;
  tune.worker = "";
  refused(start(runtime.get(), kProblem, &options, &job), "options.worker is empty");
  tune.worker = nullptr;
  options.schedule = "splits=2";
  refused(start(runtime.get(), kProblem, &options, &job), "options.schedule=\"splits=2\"");
  const splitkv_workload negative = workload(-1, 0);
  refused(start(runtime.get(), kProblem, nullptr, &job, &negative), "workload.batch=-1");
  splitkv_job_state state = SPLITKV_INIT(splitkv_job_state);
  refused(answer_of([&](splitkv_message* m) { return splitkv_poll_job(nullptr, &state, m); }),
          "job is NULL");
  ASSERT_TRUE(start(runtime.get(), kProblem, nullptr, &job).ok());
  wait(job);
  state.size = 0;
  refused(answer_of([&](splitkv_message* m) { return splitkv_poll_job(job.get(), &state, m); }),
          "state.size=0");
  splitkv_release_job(nullptr);
  splitkv_cancel_job(nullptr);
}

}  // namespace
