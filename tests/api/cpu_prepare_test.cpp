// Kernels in memory, failures that are tried again, and what a kernel tells about itself.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "runtime/cpu/cpu_module.hpp"
#include "runtime/cpu/host.hpp"
#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";

TEST(PreparedOnTheCpu, ASecondPrepareCompilesNothing) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner first, second;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "splits=2", &first).ok());
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "splits=2", &second).ok());
  EXPECT_EQ(info_of(first.get()).from_memory, 0);
  EXPECT_EQ(info_of(second.get()).from_memory, 1);
  EXPECT_STREQ(info_of(first.get()).key, info_of(second.get()).key);
  const splitkv_statistics statistics = statistics_of(runtime.get());
  EXPECT_EQ(statistics.compiles, 1u);
  EXPECT_EQ(statistics.memory_hits, 1u);
  EXPECT_GT(statistics.compile_ms_total, 0);
}

TEST(PreparedOnTheCpu, SplitsAreALaunchValueThatSharesTheCode) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner two, seven;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "partition=fixed splits=2", &two).ok());
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "partition=fixed splits=7", &seven).ok());
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  EXPECT_STREQ(info_of(two.get()).key, info_of(seven.get()).key);
  EXPECT_STRNE(info_of(two.get()).schedule, info_of(seven.get()).schedule);
}

TEST(PreparedOnTheCpu, EightThreadsWithOneKeyCompileOnce) {
  RuntimeOwner runtime = open_runtime();
  std::vector<Answer> answers(8);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) {
    threads.emplace_back([&] {
      KernelOwner kernel;
      answer = prepare(runtime.get(), "cpu", kProblem, "splits=3", &kernel);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) EXPECT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  EXPECT_EQ(statistics_of(runtime.get()).memory_hits, 7u);
}

TEST(CpuKey, OfAPreparedKernelIsThatOfItsSourceAndOfWhoCompiledIt) {
  using namespace splitkv;
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const std::string problem = std::string(kProblem) + " checked=off";
  ASSERT_TRUE(prepare(runtime.get(), "cpu", problem, nullptr, &kernel).ok());
  const splitkv_kernel_info info = info_of(kernel.get());
  const Target target = *resolve_cpu_target("cpu", 0);
  const KernelSource source =
      emit(*parse_problem(info.problem), *parse_schedule(info.schedule), target);
  EXPECT_EQ(kernel_key(source, facts_of(*cpu_compiler(target), target)).digest, info.key);
}

TEST(CpuKey, ChangesWithVersionCpuFeaturesAndWidth) {
  using namespace splitkv;
  const Target target = *resolve_cpu_target("cpu", 1);
  const KernelSource source{SourceLanguage::llvm_ir, "define void @f() {}", "f", ""};
  const CpuCompiler base{"19.1.7", "znver3", "+avx,+avx2,-avx512f"};
  CpuCompiler version = base, cpu = base, features = base;
  version.llvm = "19.1.6";
  cpu.cpu = "znver4";
  features.features = "+avx,+avx2,+avx512f";
  const auto digest = [&](const CpuCompiler& compiler, const Target& of) {
    return kernel_key(source, facts_of(compiler, of)).digest;
  };
  for (const CpuCompiler& changed : {version, cpu, features}) {
    EXPECT_NE(digest(changed, target), digest(base, target));
  }
  Target narrow = target;
  narrow.vector_bits = target.vector_bits / 2;
  EXPECT_NE(digest(base, narrow), digest(base, target));
  EXPECT_EQ(digest(base, target), digest(base, target));
}

TEST(PreparedOnTheCpu, WithoutJitAMissIsAStatusAndNothingCompiles) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.flags = SPLITKV_NO_JIT;
  RuntimeOwner runtime = open_runtime(&options);
  KernelOwner kernel;
  const Answer answer = prepare(runtime.get(), "cpu", kProblem, nullptr, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  EXPECT_TRUE(answer.says("SPLITKV_NO_JIT")) << answer;
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 0u);
}

TEST(PreparedOnTheCpu, TheLogSaysWhatWasCompiledAndTheDefaultIsSilence) {
  std::vector<std::string> lines;
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.log = [](void* user, splitkv_log_level, const char* line) {
    static_cast<std::vector<std::string>*>(user)->push_back(line);
  };
  options.log_user = &lines;
  RuntimeOwner runtime = open_runtime(&options);
  KernelOwner kernel;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, nullptr, &kernel).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("compiled " + std::string(info_of(kernel.get()).key)), 0u) << lines[0];
  EXPECT_NE(lines[1].find(kProblem), std::string::npos) << lines[1];
}

TEST(PreparedOnTheCpu, AKernelTellsWhatItIs) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", "q=fp32 heads=4/2 dim=32 align=16 lse=natural",
                      "partition=fixed splits=5 reduce=kernel", &kernel)
                  .ok());
  const splitkv_kernel_info info = info_of(kernel.get());
  EXPECT_EQ(std::string(info.problem), "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural");
  EXPECT_NE(std::string(info.schedule).find("splits=5"), std::string::npos) << info.schedule;
  EXPECT_EQ(std::string(info.target).rfind("cpu:host", 0), 0u) << info.target;
  EXPECT_NE(std::string(info.why).find("the schedule argument"), std::string::npos) << info.why;
  EXPECT_NE(std::string(info.source).find(info.problem), std::string::npos);
  EXPECT_EQ(std::string(info.key).size(), 32u);
  EXPECT_EQ(info.kernels_per_run, 2);
  EXPECT_GT(info.module_bytes, 0u);
  EXPECT_GT(info.compile_ms, 0);
}

TEST(PreparedOnTheCpu, SupportsAnswersForTheHostAndNamesTheRule) {
  const auto ask = [](const char* problem, const char* target) {
    return answer_of([&](splitkv_message* m) { return splitkv_supports(problem, target, m); });
  };
  EXPECT_TRUE(ask(kProblem, "cpu").ok());
  EXPECT_TRUE(ask(kProblem, "cpu:x86-64-v2").ok());
  EXPECT_TRUE(ask("attention q=bf16 heads=32/8 dim=128", "cuda:sm_90a").ok());
  const Answer refused = ask("attention q=fp32 heads=4/2 dim=584", "cpu");
  EXPECT_EQ(refused.status, SPLITKV_UNSUPPORTED);
  EXPECT_TRUE(refused.says("dim=584")) << refused;
  EXPECT_EQ(ask(kProblem, "tpu").status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(ask(nullptr, "cpu").says("problem is NULL"));
  EXPECT_TRUE(ask(kProblem, nullptr).says("target is NULL"));
}

}  // namespace
