// Emitted source for a handful of problems, held as reviewed files. A change of an emitter shows as
// a change of these files in its commit. `golden --update` rewrites them.
//
// CUDA units are held from the line "// ---- this problem ----" on: what stands before it is the
// text of templates/, which the repository already holds.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "codegen/append_source.hpp"
#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

bool update_golden = false;

struct Golden {
  const char* file;
  const char* target;
  const char* problem;
  const char* schedule;
};

const Golden goldens[] = {
    {"llama_bf16_flat.cu", "cuda:sm_90a", "attention q=bf16 kv=bf16 heads=32/8 dim=128 lse=natural",
     "schedule family=simt tile=64 rows=4 partition=flat blocks=264 reduce=last_block"},
    {"gemma_softcap_window_paged.cu", "cuda:sm_90a",
     "attention q=bf16 kv=bf16 heads=16/8 dim=256 kv_layout=paged:16:nhd scale=0.0625 window=4096 "
     "softcap=50",
     "schedule family=simt tile=64 rows=2 partition=fixed splits=8 reduce=kernel"},
    {"fp32_odd_dims_lse.cu", "cuda:sm_80",
     "attention q=fp32 kv=fp32 heads=7/1 dim=80/72 kv_layout=bthd lse=base2 merge=lse",
     "schedule family=simt tile=32 rows=7 warps=2 unroll=1 partition=strided splits=5 "
     "reduce=kernel"},
    {"llama_bf16_mma.cu", "cuda:sm_90a", "attention q=bf16 kv=bf16 heads=32/8 dim=128 lse=natural",
     "schedule family=mma tile=64 rows=4 unroll=1 stages=2 partition=fixed splits=8 reduce=kernel"},
    {"llama_bf16_cluster.cu", "cuda:sm_90a",
     "attention q=bf16 kv=bf16 heads=32/8 dim=128 lse=natural",
     "schedule family=mma tile=64 rows=4 unroll=1 stages=2 partition=fixed splits=8 reduce=cluster "
     "cluster=4 partials=bf16 merge=lse pdl=on"},
    {"llama_bf16_tensor.cu", "cuda:sm_90a",
     "attention q=bf16 kv=bf16 heads=32/8 dim=128 kv_layout=paged:16:nhd lse=natural",
     "schedule family=mma tile=64 rows=4 unroll=1 stages=3 loads=tensor partition=flat blocks=132 "
     "reduce=last_block pdl=on"},
    {"latent_row_warps.cu", "cuda:sm_90a",
     "attention q=bf16 kv=bf16 heads=128/1 dim=576/512 q_rope=64 v_in_k=on "
     "kv_layout=paged:64:nhd lse=natural",
     "schedule family=mma tile=32 rows=32 warps=8 row_warps=4 unroll=1 stages=2 partition=fixed "
     "splits=8 reduce=kernel"},
    {"latent_wgmma.cu", "cuda:sm_90a",
     "attention q=bf16 kv=bf16 heads=128/1 dim=576/512 q_rope=64 v_in_k=on "
     "kv_layout=paged:64:nhd lse=natural",
     "schedule family=wgmma tile=64 rows=64 warps=8 unroll=1 stages=2 loads=tensor partition=flat "
     "blocks=132 reduce=last_block pdl=on"},
    {"every_option_mma.cu", "cuda:sm_90a",
     "attention q=bf16 kv=e4m3 heads=16/2 dim=192/128 query_len=4 kv_layout=paged:16:nhd "
     "page_tables=separate kv_scale=head softcap=30 alibi=on bias=fp16 params=slope:head,t:scalar "
     "score=tanh(score/t)*t+slope*abs(query_pos-key_pos) mask=tree window=1024 "
     "where=key_pos%2==0||key_pos<4 sink=on lse=base2 checked=on",
     "schedule family=mma tile=64 rows=16 unroll=1 stages=2 partition=flat blocks=8 "
     "reduce=last_block"},
    {"striped_partial.cu", "cuda:sm_90a",
     "attention q=fp32 kv=fp32 out=partial heads=4/4 dim=64 query_len=3 chunk=512 "
     "positions=strided merge=mlo",
     "schedule family=simt tile=32 rows=3 unroll=2 partition=fixed splits=4 reduce=kernel"},
    {"llama_bf16_fixed.ll", "cpu:x86-64-v3",
     "attention q=bf16 kv=bf16 heads=32/8 dim=128 lse=natural",
     "schedule family=vector tile=64 rows=4 warps=1 partition=fixed splits=4 reduce=kernel"},
    {"window_softcap_paged_flat.ll", "cpu:x86-64-v2",
     "attention q=fp32 kv=fp32 heads=2/1 dim=16 kv_layout=paged:16:hnd window=100 softcap=30 "
     "lse=natural merge=lse",
     "schedule family=vector tile=32 rows=2 warps=1 partition=flat blocks=8 reduce=last_block"},
};

// The KV writer: `schedule` says where tokens go, the new elements have q's type.
const Golden append_goldens[] = {
    {"append_e4m3_token_paged.cu", "cuda:sm_90a",
     "attention q=bf16 kv=e4m3 heads=32/8 dim=128 kv_layout=paged:16:nhd kv_scale=token", "slots"},
    {"append_rows_checked.cu", "cuda:sm_80",
     "attention q=fp16 k=fp16 v=int8 heads=8/2 dim=100/72 kv_layout=paged:3:hnd "
     "page_tables=separate v_scale=inline align=4 checked=on",
     "rows"},
    {"append_int8_inline_slots.ll", "cpu:x86-64-v3",
     "attention q=bf16 kv=int8 heads=2/1 dim=20 v_in_k=on kv_layout=paged:16:nhd kv_scale=inline "
     "align=4",
     "slots"},
};

// CUDA units without the text of templates/.
std::string without_templates(const KernelSource& source, std::string_view begin) {
  if (source.language != SourceLanguage::cuda) return source.text;
  const std::string first_line = source.text.substr(0, source.text.find('\n') + 1);
  return first_line + source.text.substr(source.text.find(begin));
}

std::string emitted_append(const Golden& golden) {
  Problem problem = parse_problem(golden.problem).value();
  if (problem.checked == Checked::automatic) problem.checked = Checked::off;
  const Target target = parse_target(golden.target).value();
  const AppendPlaces places = append_places_from_name(golden.schedule).value();
  const Append append = append_of(problem, problem.q_dtype, places);
  return without_templates(emit_append(append, target), "// ---- this append ----");
}

std::string emitted(const Golden& golden) {
  if (append_places_from_name(golden.schedule)) return emitted_append(golden);
  const Problem problem = parse_problem(golden.problem).value();
  const Schedule schedule = parse_schedule(golden.schedule).value();
  const Target target = parse_target(golden.target).value();
  return without_templates(emit(problem, schedule, target), "// ---- this problem ----");
}

class GoldenTest : public testing::TestWithParam<Golden> {};

// What stands in a golden was emitted, and is no refusal.
void check_legal(const Golden& golden) {
  const auto problem = parse_problem(golden.problem);
  const auto target = parse_target(golden.target);
  ASSERT_TRUE(problem.ok() && target.ok());
  if (append_places_from_name(golden.schedule)) {
    const auto refusal = verify(*problem, *target);
    ASSERT_FALSE(refusal) << to_string(*refusal);
    return;
  }
  const auto schedule = parse_schedule(golden.schedule);
  ASSERT_TRUE(schedule.ok());
  const auto refusal = verify(*problem, *schedule, *target);
  ASSERT_FALSE(refusal) << to_string(*refusal);
}

TEST_P(GoldenTest, EmittedSourceIsTheReviewedOne) {
  ASSERT_NO_FATAL_FAILURE(check_legal(GetParam()));
  const std::string path = std::string(SPLITKV_GOLDEN_DIR) + "/" + GetParam().file;
  const std::string now = emitted(GetParam());
  if (update_golden) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing: run golden --update and review it";
  std::stringstream held;
  held << file.rdbuf();
  EXPECT_EQ(held.str(), now) << "if the change is meant, run golden --update and review the diff";
}

TEST_P(GoldenTest, EmissionIsAPureFunction) {
  ASSERT_NO_FATAL_FAILURE(check_legal(GetParam()));
  EXPECT_EQ(emitted(GetParam()), emitted(GetParam()));
}

std::string test_name(const testing::TestParamInfo<Golden>& info) {
  std::string test_name = info.param.file;
  for (char& c : test_name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return test_name;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest, testing::ValuesIn(goldens), test_name);
INSTANTIATE_TEST_SUITE_P(Appends, GoldenTest, testing::ValuesIn(append_goldens), test_name);

}  // namespace
}  // namespace splitkv

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--update") == 0) splitkv::update_golden = true;
  }
  return RUN_ALL_TESTS();
}
