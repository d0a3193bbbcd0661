// Which schedules a row runs: counts that the cost model fills in, the other values of compared
// words, and the file of schedules that the tables are made with.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/text.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/choices.hpp"

namespace splitkv::tool {
namespace {

VariantSpace space_of(const std::string& problem, const std::vector<int32_t>& kv_len,
                      const std::string& compare = "") {
  VariantSpace space;
  space.problem = *parse_problem(problem);
  space.kv_len = kv_len;
  int64_t tokens = 0;
  for (const int32_t length : kv_len) tokens += length;
  space.workload = {int64_t(kv_len.size()), *std::max_element(kv_len.begin(), kv_len.end()),
                    tokens / int64_t(kv_len.size())};
  space.target = *parse_target("cuda:sm_90a");
  if (!compare.empty()) space.groupings = *parse_groupings(compare);
  return space;
}

const std::string kProblem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";

std::vector<Variant> expanded_all(const std::vector<Variant>& wanted, const VariantSpace& space) {
  const auto variants = expanded(wanted, space);
  EXPECT_TRUE(variants.ok()) << (variants.ok() ? "" : variants.error().message);
  return variants.ok() ? *variants : std::vector<Variant>{};
}

Schedule schedule_of(const Variant& variant, const VariantSpace& space) {
  const auto chosen = chosen_schedule(space.problem, space.workload, space.target, variant.words);
  EXPECT_TRUE(chosen.ok()) << variant.words;
  return chosen.ok() ? chosen->schedule : Schedule{};
}

TEST(BenchExpanded, KeepsWhatLeavesNothingOpen) {
  const VariantSpace space = space_of(kProblem, {8192});
  const std::vector<Variant> wanted = {
      {"default", ""}, {"a", "splits=8"}, {"splits=8", "splits=8"}, {"rows=999", "rows=999"}};
  EXPECT_EQ(expanded_all(wanted, space), wanted);
}

TEST(BenchExpanded, FillsInTheCountThatTheModelPutsFirst) {
  const std::string words = "partition=fixed reduce=kernel pdl=on";
  const VariantSpace one = space_of(kProblem, {32768}),
                     many = space_of(kProblem, std::vector<int32_t>(64, 2048));
  const auto first = expanded_all({{"x", words + " splits=best"}}, one);
  const auto second = expanded_all({{"x", words + " splits=best:2"}}, one);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].label, "x");
  const int splits = schedule_of(first[0], one).splits;
  EXPECT_GT(splits, 4) << "8 sequences do not fill 132 SMs";
  EXPECT_NE(schedule_of(second[0], one).splits, splits);
  const auto full = expanded_all({{"x", words + " splits=best"}}, many);
  EXPECT_LT(schedule_of(full.at(0), many).splits, 4) << "512 sequences do";
}

TEST(BenchExpanded, TakesBlocksOfAFlatPartition) {
  const VariantSpace space = space_of(kProblem, {1024, 1024, 131072});
  const auto variants = expanded_all({{"y", "partition=flat blocks=best reduce=kernel"}}, space);
  ASSERT_EQ(variants.size(), 1u);
  const Schedule schedule = schedule_of(variants[0], space);
  EXPECT_EQ(schedule.partition, Partition::flat);
  EXPECT_GE(schedule.blocks, 24);
}

TEST(BenchExpanded, KeepsClustersWhole) {
  const VariantSpace space = space_of(kProblem, {8192});
  const auto variants =
      expanded_all({{"z", "partition=fixed splits=best reduce=cluster cluster=8"}}, space);
  EXPECT_EQ(schedule_of(variants.at(0), space).splits % 8, 0);
}

TEST(BenchExpanded, RunsAScheduleOfBestOnce) {
  const VariantSpace space = space_of(kProblem, {100});
  const std::string words = "partition=flat reduce=last_block blocks=";
  const auto variants =
      expanded_all({{words + "best", words + "best"}, {words + "best", words + "best"}}, space);
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].label, variants[0].words) << "it has no name of its own";
}

TEST(BenchExpanded, RefusesOtherBests) {
  VariantSpace space = space_of(kProblem, {8192});
  for (const std::string words : {"splits=best:0", "splits=bestest",
                                  "splits=best:", "splits=best:x", "splits=best blocks=best"}) {
    EXPECT_FALSE(expanded({{"a", words}}, space).ok()) << words;
  }
  space.target = *parse_target("cpu:x86-64-v3");
  const auto refused = expanded({{"a", "splits=best"}}, space);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("cost model"), std::string::npos);
}

TEST(BenchExpanded, RunsComparedWordsBothWaysWhereTheyAreOpen) {
  const VariantSpace space = space_of(kProblem, {32768}, "partition,merge,partials,pdl");
  const std::string words = "partition=fixed splits=8 reduce=kernel";
  const auto open = expanded_all({{"a", words}}, space);
  ASSERT_EQ(open.size(), 4u);
  EXPECT_EQ(open[0], (Variant{"a", words})) << "named ones stay as they are";
  const Schedule base = schedule_of(open[0], space);
  int merges = 0, partials = 0, pdls = 0;
  for (size_t i = 1; i < open.size(); ++i) {
    EXPECT_EQ(open[i].label, open[i].words);
    const Schedule other = schedule_of(open[i], space);
    merges += exchanged_merge(space.problem, other) != exchanged_merge(space.problem, base);
    partials += other.partial_dtype != base.partial_dtype;
    pdls += other.pdl != base.pdl;
  }
  EXPECT_EQ(merges, 1);
  EXPECT_EQ(partials, 1);
  EXPECT_EQ(pdls, 1);
  EXPECT_EQ(expanded_all({{"a", words + " merge=lse partials=fp32 pdl=on"}}, space).size(), 1u);
  EXPECT_EQ(expanded_all({{"a", words}}, space_of(kProblem, {32768}, "partition")).size(), 1u);
}

TEST(BenchExpanded, LeavesWordsAloneThatHaveNoBearing) {
  const std::string whole = "partition=fixed splits=1 reduce=last_block pdl=on";
  EXPECT_EQ(expanded_all({{"a", whole}}, space_of(kProblem, {8192}, "merge,partials")).size(), 1u);
  const std::string cut = "partition=fixed splits=8 reduce=kernel";
  EXPECT_EQ(expanded_all({{"a", cut}}, space_of(kProblem + " merge=lse", {8192}, "merge")).size(),
            1u);
}

TEST(BenchSchedulesFile, TheFewFitAnUsualRow) {
  BenchOptions options;
  options.schedules_file = std::string(SPLITKV_TEST_SCHEDULES) + "/few.txt";
  const auto wanted = chosen_variants(options);
  ASSERT_TRUE(wanted.ok()) << wanted.error().message;
  const VariantSpace space = space_of(kProblem, {8192, 1024, 100});
  for (const Variant& variant : expanded_all(*wanted, space)) schedule_of(variant, space);
}

// Every partition with every reduce that it may have, and both values of the other words.
TEST(BenchSchedulesFile, HasEveryPairOnEveryRow) {
  BenchOptions options;
  options.schedules_file = std::string(SPLITKV_TEST_SCHEDULES) + "/decode.txt";
  const auto wanted = chosen_variants(options);
  ASSERT_TRUE(wanted.ok()) << wanted.error().message;
  for (const char* table : {"uniform", "ragged", "models"}) {
    const auto rows = table_rows({table, "bf16", false, 0});
    ASSERT_TRUE(rows.ok());
    for (const BenchRow& row : *rows) {
      const VariantSpace space = space_of(row.problem, row.kv_len, "merge,partials,pdl");
      std::set<std::string> pairs;
      size_t refused = 0;
      const auto variants = expanded_all(*wanted, space);
      for (const Variant& variant : variants) {
        const auto fits =
            chosen_schedule(space.problem, space.workload, space.target, variant.words);
        if (!fits) {
          EXPECT_EQ(fits.error().status, Status::unsupported) << fits.error().message;
          ++refused;
          continue;
        }
        const Schedule& s = fits->schedule;
        EXPECT_EQ(s.family, Family::mma) << row.name;
        for (const std::string pdl : {"", s.pdl ? " on" : " off"})
          pairs.insert(std::string(name(s.partition)) + " " + std::string(name(s.reduce)) + pdl);
      }
      for (const char* pair :
           {"fixed kernel", "fixed last_block", "fixed cluster", "strided kernel",
            "strided last_block", "strided cluster", "flat kernel", "flat last_block"}) {
        EXPECT_TRUE(pairs.contains(pair)) << row.name << ": no " << pair;
        if (space.problem.dim_qk > 128) continue;  // fewer codes fit
        for (const char* pdl : {" on", " off"})
          EXPECT_TRUE(pairs.contains(std::string(pair) + pdl)) << row.name << pair << pdl;
      }
      EXPECT_LT(refused * 3, variants.size() * 2) << row.name;
    }
  }
}

}  // namespace
}  // namespace splitkv::tool
