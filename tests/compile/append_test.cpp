// The KV writer for every stored type, scale and way to say where tokens go, compiled by NVRTC for
// every architecture we know, without spills.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/append_source.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace splitkv {
namespace {

struct Case {
  const char* problem;
  DType type;
  AppendPlaces places;
};

const Case cases[] = {
    {"q=fp32 heads=8/8 dim=576/512 align=4", DType::fp32, AppendPlaces::slots},
    {"q=fp16 heads=8/8 dim=128 kv_layout=paged:16:nhd", DType::fp16, AppendPlaces::rows},
    {"q=bf16 heads=8/8 dim=46/40 align=2", DType::bf16, AppendPlaces::slots},
    {"q=bf16 kv=e4m3 kv_scale=token heads=8/8 dim=128 kv_layout=paged:3:hnd page_tables=separate "
     "checked=on",
     DType::bf16, AppendPlaces::rows},
    {"q=bf16 kv=e5m2 kv_scale=inline heads=8/8 dim=100 align=4", DType::fp16, AppendPlaces::rows},
    {"q=bf16 kv=int8 kv_scale=inline heads=8/8 dim=128 kv_layout=paged:16:nhd align=4 checked=on",
     DType::bf16, AppendPlaces::slots},
    {"q=bf16 k=e4m3 v=fp16 k_scale=head v_scale=token heads=8/8 dim=128/576 align=8", DType::fp32,
     AppendPlaces::slots},
    {"q=bf16 kv=e4m3 heads=16/1 dim=576/512 v_in_k=on kv_scale=tensor kv_layout=paged:64:nhd",
     DType::bf16, AppendPlaces::slots},
};

class CompileAppend : public testing::TestWithParam<std::string> {};

TEST_P(CompileAppend, EveryWriterCompilesWithoutSpills) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  const auto target = parse_target("cuda:" + GetParam());
  ASSERT_TRUE(target.ok()) << target.error().message;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.problem);
    auto problem = parse_problem(c.problem);
    ASSERT_TRUE(problem.ok()) << problem.error().message;
    if (problem->checked == Checked::automatic) problem->checked = Checked::off;
    const auto refusal = verify(*problem, *target);
    ASSERT_FALSE(refusal) << to_string(*refusal);
    const auto cubin =
        compile_cuda(emit_append(append_of(*problem, c.type, c.places), *target), GetParam());
    ASSERT_TRUE(cubin.ok()) << cubin.error().message;
    const auto entries = parse_ptxas_log(cubin->log);
    ASSERT_EQ(entries.size(), 1u) << cubin->log;
    EXPECT_EQ(entries[0].spill_store_bytes, 0);
    EXPECT_EQ(entries[0].spill_load_bytes, 0);
    EXPECT_EQ(entries[0].smem_bytes, 0);
    EXPECT_GT(entries[0].registers, 0);
    EXPECT_LE(entries[0].registers, 64);
  }
}

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const Target& target : known_cuda_targets()) names.push_back(target.arch);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Architectures, CompileAppend, testing::ValuesIn(architectures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace splitkv
