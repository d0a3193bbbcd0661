// Split and reduce kernels of many problems, compiled by NVRTC for every architecture we know, with
// registers, spills and shared memory checked against the resource model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "codegen/entry_names.hpp"
#include "codegen/kernel_source.hpp"
#include "codegen/launch_shape.hpp"
#include "codegen/merge_source.hpp"
#include "compiler/default_schedule.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace splitkv {
namespace {

// The shapes that real models bring, and the corners of the space. An empty schedule is the default
// one.
struct Case {
  const char* problem;
  const char* schedule;
};

const Case cases[] = {
    {"q=bf16 heads=32/8 dim=128 lse=natural", ""},
    {"q=bf16 heads=32/8 dim=128 merge=lse", "partition=strided splits=4 reduce=last_block"},
    {"q=bf16 heads=32/8 dim=128", "partition=flat blocks=264 reduce=last_block"},
    {"q=bf16 heads=32/8 dim=128", "partition=flat blocks=264 reduce=kernel"},
    {"q=fp16 heads=64/8 dim=128 kv_layout=paged:16:nhd lse=natural", ""},
    {"q=fp32 heads=8/2 dim=128 lse=natural", ""},
    {"q=bf16 heads=28/4 dim=128 kv_layout=paged:1:hnd", ""},
    {"q=bf16 heads=71/1 dim=64", ""},
    {"q=bf16 heads=16/8 dim=256 window=4096 softcap=50 scale=0.0625", ""},
    {"q=fp32 heads=16/8 dim=256 window=4096 softcap=50 scale=0.0625", ""},
    {"q=bf16 heads=32/32 dim=96", ""},
    {"q=bf16 heads=16/1 dim=192/128", ""},
    {"q=fp16 heads=12/4 dim=72/40 align=2", ""},
    {"q=bf16 heads=8/1 dim=8", ""},
    {"q=bf16 kv=fp32 out=fp16 heads=9/3 dim=64 lse=base2", ""},
    // Shapes and layouts.
    {"q=bf16 heads=8/2 dim=46 align=4", ""},
    {"q=bf16 heads=8/2 dim=40", ""},
    {"q=bf16 heads=32/4 dim=320/256", ""},
    {"q=bf16 heads=8/4 dim=512", ""},
    {"q=bf16 heads=128/1 dim=576/512 v_in_k=on kv_layout=paged:64:nhd", ""},
    {"q=bf16 heads=16/1 dim=576/512 q_rope=64 v_in_k=on", ""},
    {"q=fp32 heads=16/1 dim=576/512 v_in_k=on", ""},
    {"q=bf16 heads=32/8 dim=128 kv_layout=paged:3:hnd page_tables=separate", ""},
    {"q=bf16 heads=32/8 dim=128 positions=strided query_len=3", ""},
    // Types and scales.
    {"q=bf16 kv=e4m3 heads=32/8 dim=128 kv_scale=head", ""},
    {"q=fp16 kv=e5m2 heads=32/8 dim=128 kv_scale=token kv_layout=paged:16:nhd", ""},
    {"q=bf16 kv=int8 heads=32/8 dim=128 kv_scale=inline align=4", ""},
    {"q=fp32 kv=int8 heads=8/8 dim=64 kv_scale=token", ""},
    {"q=bf16 k=e4m3 v=bf16 heads=8/2 dim=128 k_scale=tensor", ""},
    {"q=bf16 kv=e4m3 heads=16/1 dim=576/512 v_in_k=on kv_scale=tensor", ""},
    // Queries, scores and masks.
    {"q=bf16 heads=16/2 dim=128 query_len=8 mask=tree", ""},
    {"q=bf16 heads=16/2 dim=128 query_len=4 mask=none", ""},
    {"q=bf16 heads=12/1 dim=192/128 query_len=64", ""},
    {"q=bf16 heads=64/8 dim=64 sink=on window=128 lse=natural", ""},
    {"q=bf16 heads=32/32 dim=128 alibi=on", ""},
    {"q=bf16 heads=32/8 dim=128 chunk=1024 query_len=2", ""},
    {"q=bf16 heads=32/8 dim=128 bias=fp16 query_len=2", ""},
    {"q=fp32 heads=8/8 dim=128 bias=fp32", ""},
    {"q=bf16 heads=32/8 dim=128 params=slope:head,t:scalar "
     "score=tanh(score/t)*t+slope*abs(key_pos-query_pos)",
     ""},
    {"q=bf16 heads=32/8 dim=128 query_len=3 where=key_pos%2==0&&key_pos>=query_pos//256*256", ""},
    // Outputs and checks.
    {"q=bf16 heads=32/8 dim=128 out=partial merge=mlo", ""},
    {"q=bf16 heads=32/8 dim=128 out=partial merge=lse lse=base2", "reduce=kernel splits=4"},
    {"q=bf16 heads=32/8 dim=128 checked=on kv_layout=paged:16:nhd", ""},
    // Exchanged in bf16.
    {"q=bf16 heads=32/8 dim=128", "splits=8 reduce=kernel partials=bf16 merge=mlo"},
    {"q=bf16 heads=32/8 dim=128/50 sink=on", "splits=8 reduce=last_block partials=bf16 merge=lse"},
};

// What came with sm_90: clusters and programmatic launches. Two stages leave room for clusters
// everywhere.
const Case newer_cases[] = {
    {"q=bf16 heads=32/8 dim=128 lse=natural", "stages=2 splits=8 cluster=8 pdl=on"},
    {"q=bf16 heads=32/8 dim=128 lse=natural",
     "stages=2 splits=64 cluster=16 partials=bf16 merge=lse"},
    {"q=fp16 heads=16/2 dim=128 query_len=4 ragged=on sink=on",
     "stages=2 partition=strided splits=6 cluster=3 merge=lse pdl=on"},
    {"q=fp32 heads=6/2 dim=64/50 lse=base2", "splits=4 cluster=2 merge=mlo"},
    {"q=bf16 heads=32/8 dim=128 out=partial merge=lse", "stages=2 splits=8 cluster=4"},
    {"q=bf16 kv=e4m3 heads=16/2 dim=192/128 kv_scale=head", "warps=2 stages=2 splits=16 cluster=8"},
    {"q=bf16 heads=32/8 dim=128 lse=natural",
     "stages=2 splits=8 reduce=kernel partials=bf16 pdl=on"},
    {"q=fp32 heads=8/2 dim=128", "partition=flat blocks=264 reduce=last_block pdl=on"},
    {"q=bf16 heads=32/8 dim=128 lse=natural",
     "family=mma stages=2 loads=tensor partition=flat blocks=264 reduce=last_block pdl=on"},
    {"q=bf16 heads=32/8 dim=96/64 kv_layout=paged:16:nhd checked=on",
     "family=mma stages=2 loads=tensor splits=8 cluster=4"},
    {"q=bf16 heads=128/1 dim=576/512 v_in_k=on q_rope=64 kv_layout=paged:64:nhd",
     "rows=16 row_warps=2 warps=2 tile=16 stages=2 loads=tensor splits=8 reduce=kernel"},
    {"q=bf16 kv=e4m3 heads=16/1 dim=576/512 v_in_k=on kv_scale=tensor",
     "family=mma warps=2 tile=32 stages=2 loads=tensor splits=8 reduce=kernel"},
};

// Products of warp groups: every number of columns, both types, rows of K and V apart and together,
// and every partition and reduce.
const Case sm_90a_cases[] = {
    {"q=bf16 heads=128/1 dim=576/512 v_in_k=on q_rope=64 kv_layout=paged:64:nhd lse=natural",
     "family=wgmma partition=flat blocks=132 reduce=last_block pdl=on"},
    {"q=bf16 heads=128/1 dim=576/512 v_in_k=on kv_layout=paged:64:nhd",
     "family=wgmma splits=8 reduce=kernel"},
    {"q=fp16 heads=16/1 dim=512 v_in_k=on sink=on query_len=2", "family=wgmma splits=2"},
    {"q=bf16 heads=128/1 dim=576/512 v_in_k=on kv_layout=paged:128:hnd checked=on query_len=2",
     "family=wgmma partition=strided splits=4 reduce=last_block merge=lse"},
    {"q=bf16 heads=32/8 dim=128 lse=natural", "family=wgmma stages=4 splits=8 cluster=8"},
    {"q=fp16 heads=64/8 dim=64 sink=on window=128", "family=wgmma stages=8 splits=1"},
    {"q=bf16 heads=32/4 dim=256 softcap=50 query_len=4 ragged=on kv_layout=paged:64:nhd "
     "page_tables=separate",
     "family=wgmma stages=2 partition=flat blocks=264 reduce=kernel"},
    {"q=fp16 heads=32/4 dim=320/192 mask=tree query_len=8 out=partial merge=mlo",
     "family=wgmma stages=2 splits=4"},
};

std::string full_schedule(const Problem& problem, const Case& c, const Target& target,
                          Schedule& out) {
  out = default_schedule(problem, {1, 8192}, target).schedule;
  if (*c.schedule == '\0') return {};
  const auto parsed = parse_schedule(c.schedule, out);
  if (!parsed) return parsed.error().message;
  out = *parsed;
  return {};
}

class CompileCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  }
};

TEST_P(CompileCuda, EveryKernelCompilesWithoutSpillsWithinTheModelsResources) {
  const auto target = parse_target("cuda:" + GetParam());
  ASSERT_TRUE(target.ok()) << target.error().message;
  int kernels = 0, mma_kernels = 0, register_errors = 0;
  std::vector<Case> known(std::begin(cases), std::end(cases));
  if (compute_capability(*target) >= 90)
    known.insert(known.end(), std::begin(newer_cases), std::end(newer_cases));
  if (GetParam() == "sm_90a")
    known.insert(known.end(), std::begin(sm_90a_cases), std::end(sm_90a_cases));
  for (const Case& c : known) {
    SCOPED_TRACE(c.problem);
    const auto problem = parse_problem(c.problem);
    ASSERT_TRUE(problem.ok()) << problem.error().message;
    Schedule schedule;
    ASSERT_EQ(full_schedule(*problem, c, *target, schedule), "");
    const auto refusal = verify(*problem, schedule, *target);
    ASSERT_FALSE(refusal.has_value()) << to_string(*refusal);
    const auto cubin = compile_cuda(emit_cuda(*problem, schedule), GetParam());
    ASSERT_TRUE(cubin.ok()) << cubin.error().message;

    const auto entries = parse_ptxas_log(cubin->log);
    ASSERT_EQ(entries.size(), schedule.reduce == Reduce::kernel ? 2u : 1u) << cubin->log;
    const Resources model = resources_of(*problem, schedule, *target);
    for (const PtxasEntry& entry : entries) {
      SCOPED_TRACE(entry.name + " of " + print(schedule));
      EXPECT_EQ(entry.spill_store_bytes, 0);
      EXPECT_EQ(entry.spill_load_bytes, 0);
      EXPECT_EQ(entry.smem_bytes, 0) << "shared memory is dynamic, as the model counts it";
      EXPECT_GT(entry.registers, 0);
      EXPECT_LE(entry.registers * model.threads_per_block, target->registers_per_sm);
    }
    EXPECT_LE(model.smem_bytes, target->smem_per_block_bytes);
    kernels += int(entries.size());
    const auto split = std::find_if(entries.begin(), entries.end(),
                                    [](const auto& entry) { return names_split(entry.name); });
    ASSERT_NE(split, entries.end()) << cubin->log;
    if (schedule.family == Family::wgmma) {
      EXPECT_EQ(cubin->log.find("are serialized"), std::string::npos) << cubin->log;
      EXPECT_NEAR(split->registers, model.compiled_registers, 32);
    }
    if (schedule.family == Family::mma) {
      ++mma_kernels;
      register_errors += std::abs(split->registers - model.compiled_registers);
    }
  }
  std::printf("compiled %d kernels for %s\n", kernels, GetParam().c_str());
  // Problems of every kind: scores and masks of their own take registers that the model leaves out.
  EXPECT_LT(register_errors, 20 * mma_kernels);
  std::printf("registers of %d mma kernels are expected within %.1f on average\n", mma_kernels,
              double(register_errors) / mma_kernels);
}

TEST_P(CompileCuda, TheMergeOfEveryFormAndBaseCompiles) {
  const auto target = parse_target("cuda:" + GetParam());
  ASSERT_TRUE(target.ok()) << target.error().message;
  for (Merge form : {Merge::mlo, Merge::lse}) {
    for (LseOutput base : {LseOutput::natural, LseOutput::base2}) {
      const auto cubin = compile_cuda(emit_merge(form, base, *target), GetParam());
      ASSERT_TRUE(cubin.ok()) << cubin.error().message;
      const auto entries = parse_ptxas_log(cubin->log);
      ASSERT_EQ(entries.size(), 1u) << cubin->log;
      EXPECT_EQ(entries[0].spill_store_bytes, 0);
    }
  }
}

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const Target& target : known_cuda_targets()) names.push_back(target.arch);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Architectures, CompileCuda, testing::ValuesIn(architectures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace splitkv
