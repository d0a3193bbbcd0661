// Compiling through the CPU compiler library: levels this machine cannot run, failures, the missing
// library.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/cpu/cpu_module.hpp"
#include "runtime/cpu/host.hpp"

namespace splitkv::test {
namespace {

KernelSource emit_for(const char* problem, const char* schedule, const Target& target) {
  const Problem parsed = *parse_problem(problem);
  const Schedule chosen = *parse_schedule(schedule);
  EXPECT_FALSE(verify(parsed, chosen, target));
  return emit_llvm(parsed, chosen, target);
}

constexpr const char* kProblem = "attention q=bf16 kv=fp16 heads=8/2 dim=128 lse=natural";
constexpr const char* kSchedule =
    "schedule family=vector tile=64 rows=4 warps=1 partition=fixed splits=3";

TEST(CpuCompile, EveryLevelPassesVerifierAndCodeGeneration) {
  for (const char* name :
       {"cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4:256"}) {
    const Target target = *parse_target(name);
    for (const char* schedule : {kSchedule,
                                 "family=vector tile=128 rows=8 warps=1 unroll=1 partition=flat "
                                 "blocks=7 reduce=last_block "
                                 "merge=lse"}) {
      for (const char* problem : {kProblem,
                                  "attention q=fp32 kv=fp32 heads=6/2 dim=40/72 "
                                  "kv_layout=paged:48:hnd window=9 softcap=3"}) {
        const KernelSource source = emit_for(problem, schedule, target);
        const Result<CpuObject> object = compile_cpu_object(source, target);
        ASSERT_TRUE(object) << name << ": " << object.error().message;
        EXPECT_GT(object->compile_ms, 0);
        const Result<CpuModule> module = load_cpu(object->bytes, source, target);
        ASSERT_TRUE(module) << name << ": " << module.error().message;
        EXPECT_NE(module->split(), nullptr);
        EXPECT_GT(module->code_bytes(), 500u);
      }
    }
  }
}

// Odd tails, every table and every guard.
constexpr const char* kRichProblems[] = {
    "attention q=bf16 kv=e4m3 heads=16/2 dim=192/128 query_len=4 kv_layout=paged:16:nhd "
    "page_tables=separate kv_scale=token softcap=30 alibi=on bias=fp16 params=slope:head,t:scalar "
    "score=tanh(score/t)*t+slope*abs(query_pos-key_pos)+sigmoid(score) mask=tree window=1024 "
    "where=key_pos%3==0||key_pos<4 sink=on lse=base2 checked=on",
    "attention q=fp16 k=int8 v=e5m2 out=partial heads=14/2 dim=44/20 query_len=3 align=4 "
    "kv_scale=inline positions=strided chunk=100 merge=mlo checked=on",
    "attention q=fp32 kv=fp32 heads=3/1 dim=70/54 q_rope=22 v_in_k=on align=4 bias=fp32 "
    "where=select(key_pos<t,head%2==0,batch<3) params=t:row",
};

TEST(CpuCompile, EveryLevelTakesEveryOption) {
  for (const char* name :
       {"cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4:256"}) {
    const Target target = *parse_target(name);
    for (const char* problem : kRichProblems) {
      const Result<CpuModule> module =
          compile_cpu(emit_for(problem,
                               "family=vector tile=64 rows=3 warps=1 unroll=4 partition=flat "
                               "blocks=7 reduce=last_block",
                               target),
                      target);
      ASSERT_TRUE(module) << name << ": " << module.error().message;
    }
    for (Merge form : {Merge::mlo, Merge::lse}) {
      const Result<CpuModule> module =
          compile_cpu(emit_merge(form, LseOutput::natural, target), target);
      ASSERT_TRUE(module) << name << ": " << module.error().message;
      EXPECT_EQ(module->reduce(), nullptr);
    }
  }
}

TEST(CpuCompile, WiderTargetsGiveWiderInstructionsThanNarrowOnes) {
  const Target narrow = *parse_target("cpu:x86-64-v4:128"), wide = *parse_target("cpu:x86-64-v4");
  EXPECT_NE(emit_for(kProblem, kSchedule, wide).text.find("<16 x float>"), std::string::npos);
  const std::string text = emit_for(kProblem, kSchedule, narrow).text;
  EXPECT_NE(text.find("<4 x float>"), std::string::npos);
  EXPECT_EQ(text.find("<16 x float>"), std::string::npos);
}

TEST(CpuCompile, LastBlockReducesWithoutASecondEntry) {
  const Target target = *resolve_cpu_target("cpu", 1);
  const KernelSource source = emit_for(
      kProblem, "family=vector tile=64 rows=4 warps=1 partition=fixed splits=3 reduce=last_block",
      target);
  EXPECT_EQ(source.reduce_entry, "");
  const Result<CpuModule> module = compile_cpu(source, target);
  ASSERT_TRUE(module) << module.error().message;
  EXPECT_EQ(module->reduce(), nullptr);
}

TEST(CpuCompile, ARefusedTextNamesItsLineAndLlvmsReason) {
  const Target target = *resolve_cpu_target("cpu", 1);
  const KernelSource source{SourceLanguage::llvm_ir,
                            "; a comment\ndefine void @f(ptr %args, i64 %block) {\n"
                            "  %x = add i64 %block, %missing\n  ret void\n}\n",
                            "f", ""};
  const Result<CpuModule> module = compile_cpu(source, target);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().status, Status::compile_failed);
  EXPECT_NE(module.error().message.find("line 3"), std::string::npos) << module.error().message;
  EXPECT_NE(module.error().message.find("missing"), std::string::npos) << module.error().message;
}

TEST(CpuCompile, TheVerifiersRefusalIsAnError) {
  const Target target = *resolve_cpu_target("cpu", 1);
  const KernelSource source{SourceLanguage::llvm_ir,
                            "define void @f(ptr %args, i64 %block) {\n"
                            "entry:\n  br label %b\na:\n  %x = add i64 %block, 1\n  br label %b\n"
                            "b:\n  %y = add i64 %x, 1\n  ret void\n}\n",
                            "f", ""};
  const Result<CpuModule> module = compile_cpu(source, target);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().status, Status::compile_failed);
  EXPECT_NE(module.error().message.find("dominate"), std::string::npos) << module.error().message;
}

TEST(CpuCompile, AnUnknownCpuAndAMissingEntryAreErrors) {
  Target target = *resolve_cpu_target("cpu", 1);
  KernelSource source = emit_for(kProblem, kSchedule, target);
  source.split_entry = "nothing_of_that_name";
  const Result<CpuModule> missing = compile_cpu(source, target);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("nothing_of_that_name"), std::string::npos);
  target.arch = "pentium-nine";
  const Result<CpuModule> unknown = compile_cpu(emit_for(kProblem, kSchedule, target), target);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("pentium-nine"), std::string::npos);
}

TEST(CpuCompile, SeveralThreadsMayCompileAtOnce) {
  const Target target = *resolve_cpu_target("cpu", 1);
  const KernelSource source = emit_for(kProblem, kSchedule, target);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Result<CpuModule> module = compile_cpu(source, target);
      EXPECT_TRUE(module);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CpuCompile, AModuleMovesWithItsCode) {
  const Target target = *resolve_cpu_target("cpu", 1);
  Result<CpuModule> compiled = compile_cpu(emit_for(kProblem, kSchedule, target), target);
  ASSERT_TRUE(compiled);
  const CpuModule::Entry split = compiled->split();
  CpuModule moved = std::move(*compiled);
  EXPECT_EQ(moved.split(), split);
  EXPECT_EQ(compiled->split(), nullptr);
  moved = CpuModule();
  EXPECT_EQ(moved.split(), nullptr);
}

// Only a fresh process has not opened the library yet.
TEST(CpuCompileDeathTest, ANamedLibraryThatIsMissingIsAnErrorWithTheName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("SPLITKV_CPU_LIBRARY", "/nowhere/libsplitkv_cpu.so", 1);
        const Target target = *resolve_cpu_target("cpu", 1);
        const Result<CpuModule> module = compile_cpu(emit_for(kProblem, kSchedule, target), target);
        const bool right = !module && module.error().status == Status::library_missing &&
                           module.error().message.find("/nowhere/") != std::string::npos;
        std::exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CpuCompiler, IsNamedByVersionCpuAndFeatures) {
  const Result<CpuCompiler> host = cpu_compiler(*resolve_cpu_target("cpu", 1));
  ASSERT_TRUE(host);
  int major = 0, minor = 0, patch = 0;
  ASSERT_EQ(std::sscanf(host->llvm.c_str(), "%d.%d.%d", &major, &minor, &patch), 3) << host->llvm;
  EXPECT_EQ(major, 19);
  EXPECT_NE(host->cpu, "host");
  EXPECT_NE(host->cpu, "");
  EXPECT_EQ(host->passes.find("function("), 0u) << host->passes;
#if defined(__x86_64__)
  EXPECT_NE(host->features.find("+sse2"), std::string::npos) << host->features;
  const bool has_avx2 = __builtin_cpu_supports("avx2");
  EXPECT_NE(host->features.find(has_avx2 ? "+avx2" : "-avx2"), std::string::npos);
  const Result<CpuCompiler> level = cpu_compiler(*resolve_cpu_target("cpu:x86-64-v2", 1));
  ASSERT_TRUE(level);
  EXPECT_EQ(*level, (CpuCompiler{host->llvm, "x86-64-v2", "", host->passes}));
#endif
  EXPECT_EQ(*host, *cpu_compiler(*resolve_cpu_target("cpu", 1)));
}

TEST(CpuHost, TheHostIsATargetThatVerifies) {
  const Result<Target> target = resolve_cpu_target("cpu", 0);
  ASSERT_TRUE(target);
  EXPECT_EQ(target->arch, "host");
  EXPECT_EQ(target->threads, usable_threads());
  EXPECT_GE(target->vector_bits, 128);
  EXPECT_FALSE(verify(*parse_problem(kProblem), *target));
  EXPECT_EQ(resolve_cpu_target("cpu", 3)->threads, 3);
}

TEST(CpuHost, ALevelMayBeNamedWithItsVectorWidth) {
  const Result<Target> target = resolve_cpu_target("cpu:x86-64-v2", 1);
  ASSERT_TRUE(target);
  EXPECT_EQ(target->arch, "x86-64-v2");
  EXPECT_EQ(target->vector_bits, 128);
  EXPECT_FALSE(resolve_cpu_target("cuda:sm_90a", 1));
  EXPECT_FALSE(resolve_cpu_target("cpu:", 1));
}

}  // namespace
}  // namespace splitkv::test
