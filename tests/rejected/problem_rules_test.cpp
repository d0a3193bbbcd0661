// One tiny case for each rule of the problem table: a problem that breaks this rule and no earlier
// one.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/rejected/with_word.hpp"

namespace splitkv {
namespace {

using testing_support::with_word;

struct Case {
  std::string rule;
  std::string problem;
  std::string field;
  std::string value;
  std::string fits;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"kv_heads_are_in_range", "q=bf16 heads=4/0 dim=128", "heads", "4/0", "heads=4/1"},
      {"kv_heads_are_in_range", "q=bf16 heads=70000/70000 dim=8", "heads", "70000/70000",
       "heads=70000/65536"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=32/5 dim=128", "heads", "32/5",
       "heads=30/5"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=2/8 dim=128", "heads", "2/8",
       "heads=8/8"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=-8/8 dim=128", "heads", "-8/8",
       "heads=8/8"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=264", "dim", "264", "dim=256"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=576/512", "dim", "576", "dim=256"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=128/0", "dim", "0", "dim=8"},
      {"head_dims_are_multiples_of_8", "q=bf16 heads=1 dim=100", "dim", "100", "dim=104"},
      {"head_dims_are_multiples_of_8", "q=bf16 heads=1 dim=64/60", "dim", "60", "dim=64"},
      {"query_len_is_one", "q=bf16 heads=1 dim=64 query_len=4", "query_len", "4", "query_len=1"},
      {"query_len_is_one", "q=bf16 heads=1 dim=64 query_len=0", "query_len", "0", "query_len=1"},
      {"page_size_is_in_range", "q=bf16 heads=1 dim=64 kv_layout=paged:0:hnd", "kv_layout",
       "paged:0:hnd", "kv_layout=paged:1:hnd"},
      {"page_size_is_in_range", "q=bf16 heads=1 dim=64 kv_layout=paged:65537:nhd", "kv_layout",
       "paged:65537:nhd", "kv_layout=paged:65536:nhd"},
      {"scale_fits_fp32", "q=bf16 heads=1 dim=64 scale=inf", "scale", "inf", "scale=0.125"},
      {"scale_fits_fp32", "q=bf16 heads=1 dim=64 scale=nan", "scale", "nan", "scale=0.125"},
      {"scale_fits_fp32", "q=bf16 heads=1 dim=64 scale=-1e16", "scale", "-1e+16", "scale=0.125"},
      {"softcap_fits_fp32", "q=bf16 heads=1 dim=64 softcap=-50", "softcap", "-50",
       "softcap=0 (none) or softcap=50"},
      {"softcap_fits_fp32", "q=bf16 heads=1 dim=64 softcap=1e-300", "softcap", "1e-300",
       "softcap=0 (none) or softcap=50"},
      {"softcap_fits_fp32", "q=bf16 heads=1 dim=64 softcap=nan", "softcap", "nan",
       "softcap=0 (none) or softcap=50"},
      {"window_is_in_range", "q=bf16 heads=1 dim=64 window=-1", "window", "-1", "window=0"},
      {"window_is_in_range", "q=bf16 heads=1 dim=64 window=2000000000", "window", "2000000000",
       "window=1073741824"},
      {"align_is_a_load_width", "q=bf16 heads=1 dim=64 align=12", "align", "12",
       "align=16, align=8, align=4 or align=2"},
      {"align_covers_an_element", "q=fp16 k=fp16 v=fp32 heads=1 dim=64 align=2", "align", "2",
       "align=4"},
  };
  return list;
}

Problem problem_of(const std::string& text) {
  const Result<Problem> problem = parse_problem(text);
  EXPECT_TRUE(problem.ok()) << text;
  return problem.value();
}

const Target& h200() {
  static const Target target = parse_target("cuda:sm_90a").value();
  return target;
}

TEST(ProblemRules, RefuseWithRuleFieldValueAndWhatWouldFit) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.problem);
    const std::optional<Refusal> refusal = verify(problem_of(c.problem), h200());
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->rule, c.rule);
    EXPECT_EQ(refusal->field, c.field);
    EXPECT_EQ(refusal->value, c.value);
    EXPECT_EQ(refusal->fits, c.fits);
    EXPECT_EQ(to_string(*refusal), c.rule + ": " + c.field + "=" + c.value + " " + refusal->limit +
                                       "; " + c.fits + " would fit");
  }
}

TEST(ProblemRules, WhatTheyOfferPassesTheRule) {
  for (const Case& c : cases()) {
    const std::string mended = with_word(c.problem, c.fits);
    const std::optional<Refusal> refusal = verify(problem_of(mended), h200());
    EXPECT_TRUE(!refusal || refusal->rule != c.rule) << mended << "\n" << to_string(*refusal);
  }
}

TEST(ProblemRules, APageSizeWithoutPagesIsRefused) {
  Problem problem;
  problem.kv_layout.page_size = 16;
  const std::optional<Refusal> refusal = verify(problem, h200());
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->rule, "page_size_is_in_range");
  EXPECT_EQ(refusal->value, "16");
  EXPECT_EQ(refusal->fits, "kv_layout=paged:16:nhd");
}

TEST(ProblemRules, AnArchitectureBelowSm80IsRefused) {
  Target turing = h200();
  turing.arch = "sm_75";
  const std::optional<Refusal> refusal = verify(Problem{}, turing);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(to_string(*refusal),
            "target_architecture_is_supported: target=cuda:sm_75 is below sm_80; cuda:sm_80 and "
            "above, or cpu, would fit");
  turing.arch = "sm_103a";
  EXPECT_FALSE(verify(Problem{}, turing));
}

TEST(ProblemRules, ATargetWithoutItsFactsIsRefused) {
  const auto field_of = [](auto spoil) {
    Target target = h200();
    spoil(target);
    const std::optional<Refusal> refusal = verify(Problem{}, target);
    EXPECT_TRUE(refusal && refusal->rule == "target_facts_are_complete");
    return refusal ? refusal->field : "";
  };
  EXPECT_EQ(field_of([](Target& t) { t.sm_count = 0; }), "sm_count");
  EXPECT_EQ(field_of([](Target& t) { t.max_threads_per_sm = 0; }), "max_threads_per_sm");
  EXPECT_EQ(field_of([](Target& t) { t.max_blocks_per_sm = 0; }), "max_blocks_per_sm");
  EXPECT_EQ(field_of([](Target& t) { t.registers_per_sm = 0; }), "registers_per_sm");
  EXPECT_EQ(field_of([](Target& t) { t.smem_per_block_bytes = 0; }), "smem_per_block_bytes");
}

TEST(ProblemRules, AVectorWidthThatNoCpuHasIsRefused) {
  Target cpu = parse_target("cpu:x86-64-v3").value();
  cpu.vector_bits = 64;
  const std::optional<Refusal> refusal = verify(Problem{}, cpu);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->rule, "target_vector_width_is_supported");
  EXPECT_EQ(refusal->value, "cpu:x86-64-v3:64");
  EXPECT_EQ(refusal->fits, "cpu:x86-64-v3:256");
}

TEST(ProblemRules, EachHasACase) {
  std::set<std::string> hit = {"target_architecture_is_supported", "target_facts_are_complete",
                               "target_vector_width_is_supported"};  // the tests above
  for (const Case& c : cases()) hit.insert(c.rule);
  for (const ProblemRule& rule : problem_rules())
    EXPECT_EQ(hit.erase(rule.name), 1u) << rule.name << " has no rejected case";
  EXPECT_TRUE(hit.empty()) << *hit.begin() << " is no rule";
}

}  // namespace
}  // namespace splitkv
