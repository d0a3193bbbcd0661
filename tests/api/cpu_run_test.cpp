// Whole decode steps through the C API and the C++ layer, on the CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "runtime/splitkv.hpp"
#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

const std::vector<int32_t> kLengths = {5, 0, 130, 1, 64};

Answer run(const splitkv_kernel* kernel, const DecodeCase& step) {
  return answer_of([&](splitkv_message* m) {
    return splitkv_run(kernel, &step.binding, &step.args, nullptr, m);
  });
}

class CpuRun : public testing::TestWithParam<const char*> {};

TEST_P(CpuRun, MatchesTwoPassesInDoubleAndLeavesStateAtZero) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step(kLengths);
  const Answer prepared = prepare(runtime.get(), "cpu", step.problem, GetParam(), &kernel);
  ASSERT_TRUE(prepared.ok()) << prepared;
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  for (int repeat = 0; repeat < 2; ++repeat) {
    step.out.fill(NAN);
    step.lse.fill(NAN);
    const Answer ran = run(kernel.get(), step);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_LE(errors_of(step).out, 1e-5);
    EXPECT_LE(errors_of(step).lse, 1e-5);
    const auto* state = static_cast<const char*>(step.args.state);
    for (size_t i = 0; i < step.args.state_bytes; ++i) EXPECT_EQ(state[i], 0) << "byte " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, CpuRun,
                         testing::Values("partition=fixed splits=1",
                                         "partition=fixed splits=3 reduce=kernel merge=mlo",
                                         "partition=fixed splits=3 reduce=kernel merge=lse",
                                         "partition=fixed splits=3 reduce=last_block merge=mlo",
                                         "partition=strided splits=4 reduce=last_block merge=lse",
                                         "partition=flat blocks=7 reduce=kernel merge=mlo",
                                         "partition=flat blocks=7 reduce=last_block merge=lse"));

// Written over the lengths after everything was placed: a length below zero is an empty row, as
// zero is.
TEST_P(CpuRun, TakesANegativeLengthForAnEmptyRow) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step(kLengths);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, GetParam(), &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  step.kv_len[0] = -50;
  step.kv_len[3] = -1;
  ASSERT_TRUE(run(kernel.get(), step).ok());
  const std::vector<float> out = step.out.values(), lse = step.lse.values();
  for (const size_t row : {0, 3}) {
    for (size_t head = 0; head < 4; ++head) {
      EXPECT_EQ(lse[row * 4 + head], -INFINITY);
      for (size_t d = 0; d < 32; ++d) EXPECT_EQ(out[(row * 4 + head) * 32 + d], 0.0f);
    }
  }
}

TEST(CpuTargetNames, AreRefusedWhereTheirInstructionsAreNotKnownToBeHere) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const DecodeCase step(kLengths);
  for (const char* name : {"cpu:znver4:512", "cpu:skylake-avx512:512", "cpu:nonsense:256"}) {
    const Answer answer = prepare(runtime.get(), name, step.problem, nullptr, &kernel);
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << name;
    EXPECT_TRUE(answer.says("cpu:x86-64-v3")) << answer;
    EXPECT_NE(splitkv_supports(step.problem.c_str(), name, nullptr), SPLITKV_OK);
  }
  EXPECT_TRUE(prepare(runtime.get(), "cpu:host", step.problem, nullptr, &kernel).ok());
}

TEST(CpuRunStrides, OutAndLseMayBeStridedViewsAndTheGapsStay) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step(kLengths);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, "splits=2", &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  ASSERT_TRUE(run(kernel.get(), step).ok());
  const std::vector<float> dense_out = step.out.values(), dense_lse = step.lse.values();

  constexpr int kHeadStride = 40, kBatchStride = 4 * 40 + 8;
  Floats out(kLengths.size() * kBatchStride), lse(kLengths.size() * 12);
  out.fill(77);
  lse.fill(77);
  step.args.out = out.data();
  step.args.out_stride_head = kHeadStride;
  step.args.out_stride_batch = kBatchStride;
  step.args.lse = lse.data();
  step.args.lse_stride_head = 3;
  step.args.lse_stride_batch = 12;
  const Answer ran = run(kernel.get(), step);
  ASSERT_TRUE(ran.ok()) << ran;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t batch = i / kBatchStride, head = i % kBatchStride / kHeadStride;
    const size_t d = i % kBatchStride % kHeadStride;
    const float expected = head < 4 && d < 32 ? dense_out[(batch * 4 + head) * 32 + d] : 77.0f;
    ASSERT_EQ(out.data()[i], expected) << "element " << i;
  }
  for (size_t i = 0; i < lse.size(); ++i) {
    ASSERT_EQ(lse.data()[i], i % 3 == 0 ? dense_lse[i / 3] : 77.0f) << "lse " << i;
  }
}

TEST(CpuRunPart, PartsFromSeveralThreadsEqualOneRunBitForBit) {
  RuntimeOwner runtime = open_runtime();
  for (const char* schedule : {"partition=fixed splits=3 reduce=last_block",
                               "partition=flat blocks=9 reduce=last_block merge=lse"}) {
    KernelOwner kernel;
    DecodeCase step(kLengths);
    ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, schedule, &kernel).ok());
    ASSERT_TRUE(step.attach(kernel.get()).ok());
    ASSERT_TRUE(run(kernel.get(), step).ok());
    const std::vector<float> whole_out = step.out.values(), whole_lse = step.lse.values();
    for (const int parts : {1, 4, 50}) {
      step.out.fill(NAN);
      step.lse.fill(NAN);
      std::vector<Answer> answers(parts);
      std::vector<std::thread> threads;
      for (int part = 0; part < parts; ++part) {
        threads.emplace_back([&, part] {
          answers[part] = answer_of([&](splitkv_message* m) {
            return splitkv_run_part(kernel.get(), &step.binding, &step.args, part, parts, m);
          });
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const Answer& answer : answers) EXPECT_TRUE(answer.ok()) << answer;
      EXPECT_EQ(step.out.values(), whole_out) << schedule << ", parts=" << parts;
      EXPECT_EQ(step.lse.values(), whole_lse) << schedule << ", parts=" << parts;
    }
  }
}

// Counts the blocks and runs them last to first.
struct CallersLoop {
  std::atomic<int64_t> calls{0}, blocks{0};

  static void parallel_for(void* user, int64_t n, void (*body)(void*, int64_t), void* context) {
    auto& loop = *static_cast<CallersLoop*>(user);
    ++loop.calls;
    loop.blocks += n;
    for (int64_t i = n - 1; i >= 0; --i) body(context, i);
  }
};

TEST(CpuRunParallelFor, TheCallersLoopRunsEveryBlockOfBothPasses) {
  CallersLoop loop;
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.parallel_for = &CallersLoop::parallel_for;
  options.parallel_for_user = &loop;
  RuntimeOwner runtime = open_runtime(&options);
  KernelOwner kernel;
  DecodeCase step(kLengths);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem,
                      "rows=2 partition=fixed splits=3 reduce=kernel", &kernel)
                  .ok());
  runtime.reset();  // kernels outlive their runtime
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  ASSERT_TRUE(run(kernel.get(), step).ok());
  EXPECT_LE(errors_of(step).out, 1e-5);
  const int64_t sequences = int64_t(kLengths.size()) * 2;  // kv heads, one row block
  EXPECT_EQ(loop.calls, 2);
  EXPECT_EQ(loop.blocks, sequences * 3 + sequences);
}

TEST(CppLayer, PreparesBindsAndRuns) {
  splitkv::Options options;
  int lines = 0;
  options.log = [&lines](splitkv_log_level, const char*) { ++lines; };
  options.threads = 2;
  splitkv::Runtime runtime(options);
  DecodeCase step(kLengths);
  splitkv::Kernel kernel = runtime.prepare("cpu", step.problem, {5, 130}, "splits=3 merge=lse");
  EXPECT_GT(lines, 0);
  splitkv_tensors tensors = kernel.dense_strides(step.capacity);
  tensors.k = step.k.data();
  tensors.v = step.v.data();
  const splitkv::Binding binding = kernel.bind(tensors);
  const splitkv_buffer_sizes sizes = kernel.sizes(step.args.batch);
  Floats scratch(sizes.scratch_bytes / 4), state(sizes.state_bytes / 4);
  kernel.state_init(state.data(), sizes.state_bytes);
  step.args.scratch = scratch.data();
  step.args.scratch_bytes = sizes.scratch_bytes;
  step.args.state = state.data();
  step.args.state_bytes = sizes.state_bytes;
  kernel.run(binding, step.args);
  EXPECT_LE(errors_of(step).out, 1e-5);
  EXPECT_LE(errors_of(step).lse, 1e-5);
  EXPECT_EQ(runtime.statistics().compiles, 1u);
  EXPECT_NE(std::string(kernel.info().why).find("merge=lse"), std::string::npos);

  step.args.q = nullptr;
  try {
    kernel.run(binding, step.args);
    FAIL() << "a run without q must throw";
  } catch (const splitkv::Failure& failure) {
    EXPECT_EQ(failure.status(), SPLITKV_INVALID_ARGUMENT);
    EXPECT_STREQ(failure.what(), "args.q is NULL; [batch, query_len, q_heads, dim] would fit");
  }
}

}  // namespace
