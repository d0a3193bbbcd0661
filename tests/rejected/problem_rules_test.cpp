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

std::vector<Case> tensor_cases() {
  return {
      {"kv_heads_are_in_range", "q=bf16 heads=4/0 dim=128", "heads", "4/0", "heads=4/1"},
      {"kv_heads_are_in_range", "q=bf16 heads=70000/70000 dim=8", "heads", "70000/70000",
       "heads=70000/65536"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=32/5 dim=128", "heads", "32/5",
       "heads=30/5"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=2/8 dim=128", "heads", "2/8",
       "heads=8/8"},
      {"q_heads_are_a_multiple_of_kv_heads", "q=bf16 heads=-8/8 dim=128", "heads", "-8/8",
       "heads=8/8"},
      {"q_is_floating", "q=e4m3 kv=bf16 heads=1 dim=64", "q", "e4m3", "q=bf16"},
      {"q_is_floating", "q=int8 kv=bf16 out=bf16 heads=1 dim=64", "q", "int8", "q=bf16"},
      {"out_is_floating", "q=bf16 heads=1 dim=64 out=e5m2", "out", "e5m2", "out=bf16"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=578", "dim", "578", "dim=576"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=1000/512", "dim", "1000", "dim=576"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=128/0", "dim", "0", "dim=8"},
      {"head_dims_are_in_range", "q=bf16 heads=1 dim=6", "dim", "6", "dim=8"},
      {"head_dims_are_even", "q=bf16 heads=1 dim=101", "dim", "101", "dim=102"},
      {"head_dims_are_even", "q=fp32 heads=1 dim=64/61", "dim", "61", "dim=62"},
      {"rows_of_8_bit_types_are_whole_words", "q=bf16 kv=e4m3 heads=1 dim=66", "dim", "66",
       "dim=68"},
      {"rows_of_8_bit_types_are_whole_words", "q=bf16 k=bf16 v=int8 heads=1 dim=66/90", "dim", "90",
       "dim=92"},
      {"q_rope_is_a_part_of_q", "q=bf16 heads=1 dim=64 q_rope=64", "q_rope", "64", "q_rope=62"},
      {"q_rope_is_a_part_of_q", "q=bf16 heads=1 dim=64 q_rope=-2", "q_rope", "-2", "q_rope=0"},
      {"q_rope_is_a_part_of_q", "q=bf16 heads=1 dim=64 q_rope=7", "q_rope", "7", "q_rope=6"},
      {"v_in_k_has_the_type_of_k", "q=bf16 heads=1 dim=64 k=bf16 v=fp16 v_in_k=on", "v", "fp16",
       "v=bf16"},
      {"v_in_k_is_not_wider_than_k", "q=bf16 heads=1 dim=64/72 v_in_k=on", "dim", "64/72",
       "dim=64/64"},
      {"v_in_k_has_the_scale_of_k", "q=bf16 heads=1 dim=64 k_scale=token v_in_k=on", "v_scale",
       "none", "v_scale=token"},
      {"v_in_k_has_the_pages_of_k",
       "q=bf16 heads=1 dim=64 kv_layout=paged:16:nhd page_tables=separate v_in_k=on", "page_tables",
       "separate", "page_tables=shared"},
      {"query_len_is_in_range", "q=bf16 heads=1 dim=64 query_len=65", "query_len", "65",
       "query_len=64"},
      {"query_len_is_in_range", "q=bf16 heads=1 dim=64 query_len=0", "query_len", "0",
       "query_len=1"},
      {"query_rows_are_in_range", "q=bf16 heads=32768/1 dim=64 query_len=3", "query_len", "3",
       "query_len=2"},
  };
}

std::vector<Case> memory_and_score_cases() {
  return {
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
      {"separate_tables_have_pages", "q=bf16 heads=1 dim=64 page_tables=separate", "page_tables",
       "separate", "page_tables=shared or kv_layout=paged:16:nhd"},
      {"chunk_is_in_range", "q=bf16 heads=1 dim=64 chunk=-8", "chunk", "-8", "chunk=0"},
      {"chunk_is_in_range", "q=bf16 heads=1 dim=64 chunk=2000000000", "chunk", "2000000000",
       "chunk=1073741824"},
      {"bias_is_fp32_or_fp16", "q=bf16 heads=1 dim=64 bias=bf16", "bias", "bf16", "bias=fp16"},
      {"tree_keys_are_contiguous", "q=bf16 heads=1 dim=64 query_len=4 mask=tree positions=strided",
       "positions", "strided", "positions=contiguous or mask=causal"},
      {"partial_has_no_sink", "q=bf16 heads=1 dim=64 out=partial sink=on", "sink", "on",
       "sink=off"},
      {"align_is_a_load_width", "q=bf16 heads=1 dim=64 align=12", "align", "12",
       "align=16, align=8, align=4 or align=2"},
      {"align_covers_an_element", "q=fp16 k=fp16 v=fp32 heads=1 dim=64 align=2", "align", "2",
       "align=4"},
      {"inline_scale_is_aligned", "q=bf16 heads=1 dim=64 kv=int8 kv_scale=inline align=2", "align",
       "2", "align=4"},
  };
}

std::vector<Case> expression_cases() {
  return {
      {"params_are_few",
       "q=bf16 heads=1 dim=64 params=a:row,b:row,c:row,d:row,e:row,f:row,g:row,h:row,i:row",
       "params", "9 names", "params=a:row,b:row,c:row,d:row,e:row,f:row,g:row,h:row"},
      {"param_names_are_new_words", "q=bf16 heads=1 dim=64 params=score:head", "params", "score",
       "params=slope:scalar"},
      {"param_names_are_new_words", "q=bf16 heads=1 dim=64 params=tanh:head", "params", "tanh",
       "params=slope:scalar"},
      {"param_names_are_new_words", "q=bf16 heads=1 dim=64 params=2nd:row", "params", "2nd",
       "params=slope:scalar"},
      {"param_names_are_new_words", "q=bf16 heads=1 dim=64 params=Slope:row", "params", "Slope",
       "params=slope:scalar"},
      {"param_names_differ", "q=bf16 heads=1 dim=64 params=a:row,b:row,a:head", "params", "a",
       "params=a:scalar"},
      {"expression_constants_fit_fp32", "q=bf16 heads=1 dim=64 score=score+1e16", "score",
       "score+1e+16", "score=score*0.5"},
      {"floor_division_is_of_whole_numbers", "q=bf16 heads=1 dim=64 score=score//2", "score",
       "score//2", "score=key_pos//64"},
      {"floor_division_is_of_whole_numbers", "q=bf16 heads=1 dim=64 where=key_pos//0<3", "where",
       "key_pos//0<3", "where=key_pos//64"},
      {"floor_division_is_of_whole_numbers", "q=bf16 heads=1 dim=64 where=key_pos%2.5<1", "where",
       "key_pos%2.5<1", "where=key_pos//64"},
      {"floor_division_is_of_whole_numbers", "q=bf16 heads=1 dim=64 where=key_pos//kv_len<1",
       "where", "key_pos//kv_len<1", "where=key_pos//64"},
      {"whole_numbers_fit_64_bits", "q=bf16 heads=1 dim=64 where=key_pos*key_pos*key_pos>8",
       "where", "8<key_pos*key_pos*key_pos", "where=key_pos<4096"},
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = [] {
    std::vector<Case> all = tensor_cases();
    for (const auto& more : {memory_and_score_cases(), expression_cases()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
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

// What the text form cannot say, but a caller of the library can.
TEST(ProblemRules, AProblemThatNoTextGivesIsRefused) {
  const auto rule_of = [](auto spoil) {
    Problem problem;
    spoil(problem);
    const std::optional<Refusal> refusal = verify(problem, h200());
    return refusal ? refusal->rule : "";
  };
  EXPECT_EQ(rule_of([](Problem& p) { p.out_partial = true; }), "partial_is_fp32");
  EXPECT_EQ(rule_of([](Problem& p) { leaf(p.score_mod, ScoreOp::dot); }),
            "expressions_use_what_is_there");
  EXPECT_EQ(rule_of([](Problem& p) { param(p.score_mod, 0); }), "expressions_use_what_is_there");
  EXPECT_EQ(rule_of([](Problem& p) { leaf(p.predicate, ScoreOp::score); }),
            "predicate_does_not_use_score");
  EXPECT_EQ(rule_of([](Problem& p) { apply(p.score_mod, ScoreOp::neg, constant(p.score_mod, 3)); }),
            "negative_numbers_are_numbers");
  const auto in_text_order = "expressions_are_in_text_order";
  EXPECT_EQ(rule_of([](Problem& p) {  // one node used twice
              const int score = leaf(p.score_mod, ScoreOp::score);
              apply(p.score_mod, ScoreOp::add, score, score);
            }),
            in_text_order);
  EXPECT_EQ(rule_of([](Problem& p) {  // a node that nothing uses
              constant(p.score_mod, 1);
              leaf(p.score_mod, ScoreOp::score);
            }),
            in_text_order);
  EXPECT_EQ(rule_of([](Problem& p) {  // operands in the wrong order
              const int score = leaf(p.score_mod, ScoreOp::score);
              apply(p.score_mod, ScoreOp::sub, constant(p.score_mod, 1), score);
            }),
            in_text_order);
  EXPECT_EQ(rule_of([](Problem& p) {
              int sum = leaf(p.score_mod, ScoreOp::score);
              for (int i = 0; i < 128; ++i)
                sum = apply(p.score_mod, ScoreOp::add, sum, constant(p.score_mod, i));
            }),
            "expressions_are_short");
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
  std::set<std::string> hit = {"target_architecture_is_supported",
                               "target_facts_are_complete",
                               "target_vector_width_is_supported",
                               "partial_is_fp32",
                               "expressions_are_short",
                               "expressions_are_in_text_order",
                               "expressions_use_what_is_there",
                               "predicate_does_not_use_score",
                               "negative_numbers_are_numbers"};  // the tests above
  for (const Case& c : cases()) hit.insert(c.rule);
  for (const ProblemRule& rule : problem_rules())
    EXPECT_EQ(hit.erase(rule.name), 1u) << rule.name << " has no rejected case";
  EXPECT_TRUE(hit.empty()) << *hit.begin() << " is no rule";
}

}  // namespace
}  // namespace splitkv
