// One tiny case for each rule of the schedule table: a schedule that breaks this rule and no
// earlier one.
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
  std::string schedule;
  std::string target;
  std::string field;
  std::string value;
  std::string fits;
};

const std::string kPlain = "q=bf16 heads=32/8 dim=128";
const std::string kWide = "q=bf16 heads=64/8 dim=256";
const std::string kMma = "family=mma unroll=1 stages=3 ";
const std::string kMmaTensor = kMma + "loads=tensor";
const std::string kWgmma = "family=wgmma ";  // over defaults, so with the words that go with it
const std::string kGpu = "cuda:sm_90a";
const std::string kCpu = "cpu:x86-64-v3";

// Of the kernel family and what a block holds.
std::vector<Case> cases_of_blocks() {
  return {
      {"family_runs_on_the_target", kPlain, "family=vector warps=1", kGpu, "family", "vector",
       "family=simt"},
      {"family_runs_on_the_target", kPlain, "family=simt", kCpu, "family", "simt", "family=vector"},
      {"tile_is_in_range", kPlain, "tile=4", kGpu, "tile", "4", "tile=8"},
      {"tile_is_in_range", kPlain, "tile=2048", kGpu, "tile", "2048", "tile=1024"},
      {"tile_is_made_of_whole_steps", kPlain, "tile=60", kGpu, "tile", "60", "tile=64"},
      {"tile_is_made_of_whole_steps", kPlain, kMma + "warps=8 tile=64", kGpu, "tile", "64",
       "tile=128"},
      {"row_warps_divide_the_rows", "q=bf16 heads=32/1 dim=64", "rows=8 row_warps=2", kGpu,
       "row_warps", "2", "row_warps=1"},
      {"row_warps_divide_the_rows", "q=bf16 heads=32/1 dim=64",
       kMma + "rows=16 row_warps=3 warps=6", kGpu, "row_warps", "3", "row_warps=2"},
      {"row_warps_divide_the_rows", "q=bf16 heads=32/1 dim=64",
       kMma + "rows=32 row_warps=3 warps=6", kGpu, "row_warps", "3", "row_warps=2"},
      {"row_warps_divide_the_rows", "q=bf16 heads=32/1 dim=64",
       kMma + "rows=32 row_warps=4 warps=6", kGpu, "row_warps", "4", "row_warps=1"},
      {"row_warps_divide_the_rows", kPlain, kMma + "rows=4 row_warps=2", kGpu, "row_warps", "2",
       "row_warps=1"},
      {"row_warps_divide_the_rows", kPlain, kMma + "rows=4 row_warps=0", kGpu, "row_warps", "0",
       "row_warps=1"},
      {"rows_are_in_range", "q=bf16 heads=128/1 dim=128", kMma + "rows=72 row_warps=2 warps=4",
       kGpu, "rows", "72", "rows=64"},
      {"tile_is_made_of_whole_steps", "q=bf16 heads=32/1 dim=64",
       kMma + "rows=32 row_warps=2 warps=8 tile=32", kGpu, "tile", "32", "tile=64"},
      {"rows_are_in_range", kPlain, "rows=0", kGpu, "rows", "0", "rows=1"},
      {"rows_are_in_range", kPlain, "rows=9", kGpu, "rows", "9", "rows=8"},
      {"rows_are_in_range", kPlain, kMma + "rows=40", kGpu, "rows", "40", "rows=32"},
      {"rows_are_in_range", "q=bf16 heads=128/1 dim=64", kMma + "rows=65", kGpu, "rows", "65",
       "rows=64"},
      {"mma_takes_16_bit_q", "q=fp32 kv=bf16 heads=8/1 dim=64", kMma, kGpu, "family", "mma",
       "family=simt"},
      {"mma_takes_k_like_q_or_of_8_bits", "q=bf16 k=fp16 v=bf16 heads=8/1 dim=64", kMma, kGpu,
       "family", "mma", "family=simt"},
      {"mma_takes_v_of_16_or_8_bits", "q=bf16 k=e4m3 v=fp32 heads=8/1 dim=64", kMma, kGpu, "family",
       "mma", "family=simt"},
      {"mma_copies_words", kPlain + " align=2", kMma, kGpu, "family", "mma", "family=simt"},
      {"mma_holds_a_row_of_v", "q=bf16 heads=8/1 dim=520", kMma, kGpu, "family", "mma",
       "family=simt"},
      {"warps_are_in_range", kPlain, "warps=0", kGpu, "warps", "0", "warps=1"},
      {"warps_are_in_range", kPlain, "warps=17", kGpu, "warps", "17", "warps=16"},
      {"warps_are_in_range", kPlain, "family=vector warps=4", kCpu, "warps", "4", "warps=1"},
      {"unroll_is_a_power_of_two_up_to_8", kPlain, "unroll=3", kGpu, "unroll", "3",
       "unroll=1, unroll=2, unroll=4 or unroll=8"},
      {"unroll_is_a_power_of_two_up_to_8", kPlain, "family=mma stages=3 unroll=4", kGpu, "unroll",
       "4", "unroll=1"},
      {"stages_are_in_range", kPlain, "stages=2", kGpu, "stages", "2", "stages=1"},
      {"stages_are_in_range", kPlain, "family=vector warps=1 stages=0", kCpu, "stages", "0",
       "stages=1"},
      {"stages_are_in_range", kPlain, "family=mma stages=1", kGpu, "stages", "1", "stages=2"},
      {"stages_are_in_range", kPlain, "family=mma unroll=1 stages=9", kGpu, "stages", "9",
       "stages=8"},
      {"registers_fit_a_thread", kWide, "rows=8 unroll=8 warps=2", kGpu, "unroll", "8", "unroll=4"},
      {"shared_memory_fits_a_block", kWide, "rows=8 unroll=1 warps=16", "cuda:sm_86", "warps", "16",
       "warps=12"},
      {"registers_fit_a_thread", "q=bf16 heads=8/1 dim=576", "rows=8 unroll=4", kGpu, "rows", "8",
       "rows=3 unroll=1"},
      {"shared_memory_fits_a_block", kPlain, "family=mma unroll=1 warps=4 stages=8", kGpu, "stages",
       "8", "stages=7"},
      {"shared_memory_fits_a_block", "q=bf16 heads=8/1 dim=576/512", kMma + "warps=4", kGpu,
       "warps", "4", "warps=2 stages=2"},
      {"registers_fit_the_file", kWide, "rows=8 unroll=4 warps=12", kGpu, "warps", "12", "warps=8"},
  };
}

// Of products of warp groups.
std::vector<Case> cases_of_wgmma() {
  const std::string latent = "q=bf16 heads=128/1 dim=576/512 v_in_k=on";
  return {
      {"wgmma_is_of_sm_90a", kPlain, kWgmma, "cuda:sm_80", "family", "wgmma", "family=mma"},
      {"wgmma_is_of_sm_90a", kPlain, kWgmma, "cuda:sm_100a", "family", "wgmma", "family=mma"},
      {"family_runs_on_the_target", kPlain, kWgmma, kCpu, "family", "wgmma", "family=vector"},
      {"wgmma_takes_one_16_bit_type", "q=bf16 kv=e4m3 heads=32/8 dim=128", kWgmma, kGpu, "family",
       "wgmma", "family=mma"},
      {"wgmma_takes_one_16_bit_type", "q=fp32 heads=32/8 dim=128", kWgmma, kGpu, "family", "wgmma",
       "family=simt"},
      {"wgmma_takes_one_16_bit_type", "q=bf16 k=bf16 v=fp16 heads=32/8 dim=128", kWgmma, kGpu,
       "family", "wgmma", "family=mma"},
      {"wgmma_takes_whole_columns", "q=bf16 heads=32/8 dim=96", kWgmma, kGpu, "family", "wgmma",
       "family=mma"},
      {"wgmma_takes_whole_columns", "q=bf16 heads=32/8 dim=128/96", kWgmma, kGpu, "family", "wgmma",
       "family=mma"},
      {"wgmma_holds_a_row_of_v", "q=bf16 heads=8/1 dim=576", kWgmma, kGpu, "family", "wgmma",
       "family=simt"},
      {"wgmma_copies_16_bytes", kPlain + " align=8", kWgmma, kGpu, "family", "wgmma", "family=mma"},
      {"wgmma_takes_tiles_of_one_page", kPlain + " kv_layout=paged:16:nhd", kWgmma, kGpu, "family",
       "wgmma", "family=mma"},
      {"wgmma_takes_no_scales_of_keys", kPlain + " k_scale=token", kWgmma, kGpu, "family", "wgmma",
       "family=mma"},
      {"wgmma_loads_by_tensor_map", kPlain, kWgmma + "loads=copy", kGpu, "loads", "copy",
       "loads=tensor"},
      {"warps_are_in_range", kPlain, kWgmma + "warps=4", kGpu, "warps", "4", "warps=8"},
      {"row_warps_divide_the_rows", kPlain, kWgmma + "row_warps=2", kGpu, "row_warps", "2",
       "row_warps=1"},
      {"tile_is_in_range", kPlain, kWgmma + "tile=128", kGpu, "tile", "128", "tile=64"},
      {"rows_are_in_range", latent, kWgmma + "rows=65", kGpu, "rows", "65", "rows=64"},
      {"unroll_is_a_power_of_two_up_to_8", kPlain, kWgmma + "unroll=2", kGpu, "unroll", "2",
       "unroll=1"},
      {"stages_are_in_range", kPlain, kWgmma + "stages=1", kGpu, "stages", "1", "stages=2"},
      {"shared_memory_fits_a_block", latent, kWgmma + "rows=64 stages=3", kGpu, "stages", "3",
       "stages=2"},
      {"shared_memory_fits_a_block", "q=bf16 heads=8/1 dim=448/384", kWgmma, kGpu, "stages", "2",
       "family=mma"},
      {"shared_memory_fits_a_block", latent, kWgmma + "rows=64 splits=8 cluster=8", kGpu, "stages",
       "2", "stages=2 reduce=last_block cluster=1"},
  };
}

// Of the grid, of how partials are joined, and of launches.
std::vector<Case> cases_of_launches() {
  return {
      {"splits_are_in_range", kPlain, "splits=0", kGpu, "splits", "0", "splits=1"},
      {"splits_are_in_range", kPlain, "partition=strided splits=1025", kGpu, "splits", "1025",
       "splits=1024"},
      {"splits_are_in_range", kPlain, "partition=flat blocks=8 splits=3", kGpu, "splits", "3",
       "partition=fixed splits=3"},
      {"blocks_are_in_range", kPlain, "partition=flat", kGpu, "blocks", "0", "blocks=1"},
      {"blocks_are_in_range", kPlain, "blocks=65537", kGpu, "blocks", "65537", "blocks=65536"},
      {"blocks_are_in_range", kPlain, "partition=strided blocks=8", kGpu, "blocks", "8",
       "partition=flat blocks=8"},
      {"clusters_are_of_sm_90_and_newer", kPlain, "splits=8 cluster=4", "cuda:sm_89", "reduce",
       "cluster", "reduce=last_block cluster=1"},
      {"clusters_are_of_sm_90_and_newer", kPlain, "family=vector warps=1 splits=8 cluster=4", kCpu,
       "reduce", "cluster", "reduce=last_block cluster=1"},
      {"clusters_hold_one_sequence", kPlain, "blocks=8 cluster=4", kGpu, "reduce", "cluster",
       "reduce=last_block cluster=1"},
      {"cluster_is_in_range", kPlain, "splits=8 reduce=cluster", kGpu, "cluster", "1", "cluster=2"},
      {"cluster_is_in_range", kPlain, "splits=34 cluster=17", kGpu, "cluster", "17", "cluster=16"},
      {"cluster_is_in_range", kPlain, "reduce=cluster cluster=0", kGpu, "cluster", "0",
       "cluster=2"},
      {"cluster_is_in_range", kPlain, "splits=8 reduce=kernel cluster=4", kGpu, "cluster", "4",
       "cluster=1"},
      {"cluster_is_in_range", kPlain, "splits=8 reduce=last_block cluster=2", "cuda:sm_80",
       "cluster", "2", "cluster=1"},
      {"splits_are_whole_clusters", kPlain, "splits=9 cluster=4", kGpu, "splits", "9", "splits=12"},
      {"splits_are_whole_clusters", kPlain, "partition=strided cluster=8", kGpu, "splits", "1",
       "splits=8"},
      {"splits_are_whole_clusters", kPlain, "splits=1024 cluster=3", kGpu, "splits", "1024",
       "splits=1023"},
      {"clusters_fit_a_warp", kPlain, "splits=132 cluster=4", kGpu, "splits", "132", "splits=128"},
      {"tensor_loads_bring_whole_steps", kPlain, "family=simt stages=1 loads=tensor", kGpu, "loads",
       "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", kPlain, kMmaTensor, "cuda:sm_89", "loads", "tensor",
       "loads=copy"},
      {"tensor_loads_bring_whole_steps", kPlain, "family=vector warps=1 loads=tensor", kCpu,
       "loads", "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", kPlain + " kv_layout=paged:24:nhd", kMmaTensor, kGpu,
       "loads", "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", "q=bf16 heads=32/8 dim=80/64", kMmaTensor, kGpu, "loads",
       "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", "q=bf16 heads=32/8 dim=64/80", kMmaTensor, kGpu, "loads",
       "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", "q=bf16 kv=e4m3 heads=32/8 dim=96", kMmaTensor, kGpu,
       "loads", "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", "q=bf16 kv=int8 heads=32/8 dim=128 kv_scale=token",
       kMmaTensor, kGpu, "loads", "tensor", "loads=copy"},
      {"tensor_loads_bring_whole_steps", kPlain + " align=8", kMmaTensor, kGpu, "loads", "tensor",
       "loads=copy"},
      {"partials_are_as_exact_as_the_output", "q=fp16 heads=32/8 dim=128", "splits=8 partials=bf16",
       kGpu, "partials", "bf16", "partials=fp32"},
      {"partials_are_as_exact_as_the_output", kPlain + " out=fp32", "splits=8 partials=bf16", kGpu,
       "partials", "bf16", "partials=fp32"},
      {"partials_are_as_exact_as_the_output", kPlain + " out=partial", "splits=8 partials=bf16",
       kGpu, "partials", "bf16", "partials=fp32"},
      {"partials_are_as_exact_as_the_output", kPlain,
       "family=vector warps=1 splits=8 partials=bf16", kCpu, "partials", "bf16", "partials=fp32"},
      {"programmatic_launches_are_of_sm_90_and_newer", kPlain, "splits=8 pdl=on", "cuda:sm_89",
       "pdl", "on", "pdl=off"},
      {"programmatic_launches_are_of_sm_90_and_newer", kPlain, "family=vector warps=1 pdl=on", kCpu,
       "pdl", "on", "pdl=off"},
      {"merge_agrees_with_the_problem", kPlain + " merge=mlo", "merge=lse", kGpu, "merge", "lse",
       "merge=mlo"},
      {"deterministic_cuts_on_the_row_alone", kPlain + " deterministic=on", "blocks=8", kGpu,
       "partition", "flat", "partition=fixed or partition=strided"},
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = [] {
    std::vector<Case> all = cases_of_blocks();
    for (const Case& c : cases_of_wgmma()) all.push_back(c);
    for (const Case& c : cases_of_launches()) all.push_back(c);
    return all;
  }();
  return list;
}

std::optional<Refusal> refusal_of(const Case& c, const std::string& schedule) {
  const Result<Problem> problem = parse_problem(c.problem);
  const Result<Schedule> parsed = parse_schedule(schedule);
  const Result<Target> target = parse_target(c.target);
  EXPECT_TRUE(problem.ok() && parsed.ok() && target.ok()) << schedule;
  return verify(problem.value(), parsed.value(), target.value());
}

TEST(ScheduleRules, RefuseWithRuleFieldValueAndWhatWouldFit) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.problem + " / " + c.schedule);
    const std::optional<Refusal> refusal = refusal_of(c, c.schedule);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->rule, c.rule);
    EXPECT_EQ(refusal->field, c.field);
    EXPECT_EQ(refusal->value, c.value);
    EXPECT_EQ(refusal->fits, c.fits);
    EXPECT_EQ(to_string(*refusal), c.rule + ": " + c.field + "=" + c.value + " " + refusal->limit +
                                       "; " + c.fits + " would fit");
  }
}

TEST(ScheduleRules, WhatTheyOfferPassesTheRule) {
  for (const Case& c : cases()) {
    const std::string mended = with_word(c.schedule, c.fits);
    const std::optional<Refusal> refusal = refusal_of(c, mended);
    EXPECT_TRUE(!refusal || refusal->rule != c.rule) << mended << "\n" << to_string(*refusal);
  }
}

// The text form has no word for it.
TEST(ScheduleRules, PartialsAreFp32OrBf16Alone) {
  Schedule schedule = parse_schedule("splits=8").value();
  for (DType type : {DType::fp16, DType::e4m3, DType::int8}) {
    schedule.partial_dtype = type;
    const auto refusal =
        verify(parse_problem(kPlain).value(), schedule, parse_target(kGpu).value());
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->rule, "partials_are_as_exact_as_the_output");
    EXPECT_EQ(refusal->fits, "partials=fp32");
  }
}

TEST(ScheduleRules, TakeClustersEarlyLaunchesAndBf16PartialsOnEveryArchitectureThatHasThem) {
  const std::string words = "splits=32 cluster=16 partials=bf16 merge=lse pdl=on";
  for (const char* target : {"cuda:sm_90a", "cuda:sm_100a", "cuda:sm_103a", "cuda:sm_120a"})
    for (const std::string family : {"", "family=mma unroll=1 stages=2 warps=2 "})
      for (const char* deterministic : {"", " deterministic=on"}) {
        const Case c{"", kPlain + deterministic, "", target, "", "", ""};
        const auto refusal = refusal_of(c, family + words);
        EXPECT_FALSE(refusal) << target << " " << family << to_string(*refusal);
      }
}

TEST(ScheduleRules, ComeAfterThoseOfTheProblem) {
  const Case c{"", "q=bf16 heads=1 dim=101", "", kGpu, "", "", ""};
  const std::optional<Refusal> refusal = refusal_of(c, "rows=99");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->rule, "head_dims_are_even");
}

TEST(ScheduleRules, EachHasACase) {
  std::set<std::string> hit;
  for (const Case& c : cases()) hit.insert(c.rule);
  for (const ScheduleRule& rule : schedule_rules())
    EXPECT_EQ(hit.erase(rule.name), 1u) << rule.name << " has no rejected case";
  EXPECT_TRUE(hit.empty()) << *hit.begin() << " is no rule";
}

}  // namespace
}  // namespace splitkv
