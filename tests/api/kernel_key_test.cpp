// The key changes exactly when the compiled bytes can: every field of Problem and Schedule is
// changed alone, and key and emitted source are compared.
#include "runtime/kernel_key.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

using namespace splitkv;

namespace {

const CompilerFacts kFacts{"NVRTC 13.0", {"-arch=sm_90a", "-std=c++20"}, "sm_90a"};

struct Mutation {
  const char* field;
  std::function<void(Problem&, Schedule&)> change;
};

void set_words(Problem& problem, const std::string& words) {
  const auto changed = parse_problem(print(problem) + " " + words);
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  problem = *changed;
}

// Every field of both structs that can change alone; family follows the target.
const Mutation kMutations[] = {
    {"q_dtype", [](Problem& p, Schedule&) { p.q_dtype = DType::fp16; }},
    {"k_dtype", [](Problem& p, Schedule&) { p.k_dtype = DType::fp16; }},
    {"v_dtype", [](Problem& p, Schedule&) { p.v_dtype = DType::fp32; }},
    {"out_dtype", [](Problem& p, Schedule&) { p.out_dtype = DType::fp32; }},
    {"q_heads", [](Problem& p, Schedule&) { p.q_heads = 16; }},
    {"kv_heads", [](Problem& p, Schedule&) { p.kv_heads = 4; }},
    {"dim_qk", [](Problem& p, Schedule&) { p.dim_qk = 64; }},
    {"dim_v", [](Problem& p, Schedule&) { p.dim_v = 64; }},
    {"kv_layout.kind", [](Problem& p, Schedule&) { p.kv_layout.kind = KvLayoutKind::bthd; }},
    {"kv_layout.page_size",
     [](Problem& p, Schedule&) {
       p.kv_layout = {KvLayoutKind::paged, 16, PageOrder::nhd};
     }},
    {"kv_layout.page_order",
     [](Problem& p, Schedule&) {
       p.kv_layout = {KvLayoutKind::paged, 16, PageOrder::hnd};
     }},
    {"scale", [](Problem& p, Schedule&) { p.scale = 0.25; }},
    {"softcap", [](Problem& p, Schedule&) { p.softcap = 50; }},
    {"window", [](Problem& p, Schedule&) { p.window = 4096; }},
    {"lse", [](Problem& p, Schedule&) { p.lse = LseOutput::natural; }},
    {"lse", [](Problem& p, Schedule&) { p.lse = LseOutput::base2; }},
    {"merge", [](Problem& p, Schedule&) { p.merge = Merge::lse; }},
    {"merge", [](Problem& p, Schedule&) { p.merge = Merge::mlo; }},
    {"deterministic", [](Problem& p, Schedule&) { p.deterministic = true; }},
    {"align", [](Problem& p, Schedule&) { p.align = 4; }},
    {"out_partial",
     [](Problem& p, Schedule&) {
       p.out_partial = true;
       p.out_dtype = DType::fp32;
     }},
    {"dim_rope", [](Problem& p, Schedule&) { p.dim_rope = 64; }},
    {"v_in_k", [](Problem& p, Schedule&) { p.v_in_k = true; }},
    {"query_len", [](Problem& p, Schedule&) { p.query_len = 2; }},
    {"separate_tables",
     [](Problem& p, Schedule&) {
       p.kv_layout = {KvLayoutKind::paged, 16, PageOrder::nhd};
       p.separate_tables = true;
     }},
    {"k_scale", [](Problem& p, Schedule&) { p.k_scale = KvScale::head; }},
    {"v_scale", [](Problem& p, Schedule&) { p.v_scale = KvScale::token; }},
    {"alibi", [](Problem& p, Schedule&) { p.alibi = true; }},
    {"bias", [](Problem& p, Schedule&) { p.bias = DType::fp16; }},
    {"score_mod", [](Problem& p, Schedule&) { set_words(p, "params=w:head score=score*w"); }},
    {"score_mod", [](Problem& p, Schedule&) { set_words(p, "score=score*2"); }},
    {"mask", [](Problem& p, Schedule&) { p.mask = Mask::tree; }},
    {"mask", [](Problem& p, Schedule&) { p.mask = Mask::none; }},
    {"chunk", [](Problem& p, Schedule&) { p.chunk = 64; }},
    {"predicate", [](Problem& p, Schedule&) { set_words(p, "where=key_pos%2==0"); }},
    {"strided_positions", [](Problem& p, Schedule&) { p.strided_positions = true; }},
    {"sink", [](Problem& p, Schedule&) { p.sink = true; }},
    {"checked", [](Problem& p, Schedule&) { p.checked = Checked::on; }},
    {"tile_kv", [](Problem&, Schedule& s) { s.tile_kv = 128; }},
    {"rows", [](Problem&, Schedule& s) { s.rows = 2; }},
    {"warps", [](Problem&, Schedule& s) { s.warps = s.warps == 1 ? 1 : 8; }},
    {"row_warps", [](Problem&, Schedule& s) { s.row_warps = 2; }},
    {"unroll", [](Problem&, Schedule& s) { s.unroll = 2; }},
    {"loads", [](Problem&, Schedule& s) { s.loads = Loads::tensor; }},
    {"partition", [](Problem&, Schedule& s) { s.partition = Partition::strided; }},
    {"partition",
     [](Problem&, Schedule& s) {
       s.partition = Partition::flat;
       s.splits = 1;
       s.blocks = 264;
     }},
    {"splits", [](Problem&, Schedule& s) { s.splits = 9; }},
    {"reduce", [](Problem&, Schedule& s) { s.reduce = Reduce::last_block; }},
    {"merge", [](Problem&, Schedule& s) { s.merge = Merge::lse; }},
    {"cluster",
     [](Problem&, Schedule& s) {
       s.reduce = Reduce::cluster;
       s.cluster = 4;
     }},
    {"partial_dtype", [](Problem&, Schedule& s) { s.partial_dtype = DType::bf16; }},
    {"pdl", [](Problem&, Schedule& s) { s.pdl = true; }},
};

struct Emitted {
  KernelSource source;
  KernelKey key;
};

Emitted emitted(const Problem& problem, const Schedule& schedule, const Target& target) {
  const KernelSource source = emit(problem, schedule, target);
  return {source, kernel_key(source, kFacts)};
}

void every_field_alone(const Target& target, Schedule schedule) {
  const Problem problem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=128");
  const auto refusal = verify(problem, schedule, target);
  ASSERT_FALSE(refusal) << to_string(*refusal);
  const Emitted base = emitted(problem, schedule, target);
  int differing = 0, tried = 0;
  for (const Mutation& mutation : kMutations) {
    Problem changed_problem = problem;
    Schedule changed_schedule = schedule;
    mutation.change(changed_problem, changed_schedule);
    if (verify(changed_problem, changed_schedule, target)) continue;
    ++tried;
    const Emitted changed = emitted(changed_problem, changed_schedule, target);
    const bool same_code =
        without_comment_lines(changed.source) == without_comment_lines(base.source) &&
        changed.source.split_entry == base.source.split_entry &&
        changed.source.reduce_entry == base.source.reduce_entry;
    EXPECT_EQ(changed.key.digest == base.key.digest, same_code) << mutation.field;
    differing += same_code ? 0 : 1;
    if (std::string_view(mutation.field) == "splits") {
      EXPECT_TRUE(same_code) << "splits is a launch-time value";
    }
  }
  EXPECT_GE(tried, 42);
  EXPECT_GE(differing, 34);
}

TEST(KernelKeyOf, CudaProblemsAndSchedulesDiffersExactlyWhenTheCodeDoes) {
  every_field_alone(*parse_target("cuda:sm_90a"),
                    *parse_schedule("family=simt tile=64 rows=4 warps=4 unroll=4 partition=fixed "
                                    "splits=8 reduce=kernel"));
}

TEST(KernelKeyOf, CpuProblemsAndSchedulesDiffersExactlyWhenTheCodeDoes) {
  every_field_alone(*parse_target("cpu:x86-64-v3"),
                    *parse_schedule("family=vector tile=64 rows=4 warps=1 unroll=4 "
                                    "partition=fixed splits=8 reduce=kernel"));
}

TEST(KernelKeyOf, AClusterIsInTheCodeAndTheNumberOfItsClustersIsNot) {
  const Problem problem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=128");
  const auto digest = [&](const char* words) {
    const Schedule schedule = *parse_schedule(words);
    const Target target = *parse_target("cuda:sm_90a");
    EXPECT_FALSE(verify(problem, schedule, target)) << words;
    return emitted(problem, schedule, target).key.digest;
  };
  EXPECT_EQ(digest("splits=8 cluster=8"), digest("splits=64 cluster=8"));
  EXPECT_NE(digest("splits=8 cluster=8"), digest("splits=8 cluster=4"));
  EXPECT_NE(digest("splits=8 cluster=8"), digest("splits=8 cluster=8 pdl=on"));
  EXPECT_NE(digest("splits=8 cluster=8"), digest("splits=8 cluster=8 partials=bf16"));
}

TEST(KernelKeyOf, CompilerFactsEachChangeTheKey) {
  const KernelSource source{SourceLanguage::cuda, "// a comment\nint x;\n", "split", "reduce"};
  const KernelKey base = kernel_key(source, kFacts);
  CompilerFacts version = kFacts, options = kFacts, arch = kFacts;
  version.compiler = "NVRTC 12.8";
  options.options.push_back("-ftz=true");
  arch.arch = "sm_80";
  for (const CompilerFacts& facts : {version, options, arch}) {
    EXPECT_NE(kernel_key(source, facts).digest, base.digest);
  }
  EXPECT_EQ(kernel_key(source, kFacts), base);
  EXPECT_EQ(base.digest.size(), 32u);
  EXPECT_EQ(base.text.find("schema="), 0u);
}

TEST(KernelKeyOf, WholeCommentLinesDoNotCountAndTheRestDoes) {
  const auto kept = [](SourceLanguage language, const char* text) {
    return without_comment_lines({language, text, "", ""});
  };
  EXPECT_EQ(kept(SourceLanguage::cuda, "// a\n  // b\nint x;  // c\n\nint y;"),
            "int x;  // c\n\nint y;");
  EXPECT_EQ(kept(SourceLanguage::llvm_ir, "; a\n%x = add i32 1, 2 ; b\n//no\n"),
            "%x = add i32 1, 2 ; b\n//no\n");
  EXPECT_EQ(kept(SourceLanguage::cuda, ""), "");
}

}  // namespace
