// The benchmark's own kernels: every architecture compiles them, without spills or warnings.
#include "tools/splitkv/bench_sources.hpp"

#include <gtest/gtest.h>

#include "compiler/target.hpp"
#include "compiler/text.hpp"

#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"

namespace splitkv::tool {
namespace {

void expect_clean(const std::string& source, const std::string& arch, size_t entries) {
  const auto cubin = compile_cuda({SourceLanguage::cuda, source, "bench", ""}, arch);
  ASSERT_TRUE(cubin.ok()) << arch << ": " << cubin.error().message;
  EXPECT_EQ(cubin->log.find("warning"), std::string::npos) << arch << ": " << cubin->log;
  const auto found = parse_ptxas_log(cubin->log);
  EXPECT_EQ(found.size(), entries) << arch;
  for (const PtxasEntry& entry : found) {
    EXPECT_EQ(entry.spill_store_bytes + entry.spill_load_bytes, 0) << arch << " " << entry.name;
  }
}

TEST(BenchSources, OfTheFloorCompileForEveryArchitecture) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  for (const Target& target : known_cuda_targets()) {
    const bool has_bulk = !target.arch.starts_with("sm_8");
    expect_clean(floor_source(), target.arch, has_bulk ? 5 : 3);
  }
}

TEST(BenchSources, OfAttentionCompileForEveryKindOfProblem) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  for (const char* text :
       {"q=bf16 heads=32/8 dim=128", "q=fp32 heads=4 dim=46 kv_layout=bthd align=8",
        "q=bf16 heads=128/1 dim=576/512 v_in_k=on kv_layout=paged:64:nhd",
        "q=fp16 kv=e4m3 kv_scale=head heads=8/2 dim=64 window=100 softcap=30 query_len=2 mask=none",
        "q=bf16 k=int8 v=e5m2 kv_scale=tensor heads=8/4 dim=64/128 out=fp32 kv_layout=paged:16:hnd",
        "q=bf16 kv=fp16 heads=71/1 dim=64 scale=0.5"}) {
    const auto problem = parse_problem(text);
    ASSERT_TRUE(problem.ok()) << text << ": " << problem.error().message;
    EXPECT_TRUE(check_attend(*problem).ok()) << text;
    for (const char* arch : {"sm_80", "sm_90a"}) expect_clean(attend_source(*problem), arch, 2);
  }
}

}  // namespace
}  // namespace splitkv::tool
#endif
