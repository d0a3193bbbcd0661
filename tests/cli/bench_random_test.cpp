// Rows drawn at random: the same ones from a seed, everywhere and always; each a problem that a GPU
// takes, within the bytes that are promised.
#include "tools/splitkv/bench_random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {
namespace {

TEST(BenchRandom, DrawsTheNumbersOfSplitmix64) {
  Draw draw(0);
  EXPECT_EQ(draw.next(), 0xe220a8397b1dcdafu);
  EXPECT_EQ(draw.next(), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(draw.next(), 0x06c45d188009454fu);
}

TEST(BenchRandom, DrawsOctavesAboutEquallyOften) {
  Draw draw(7);
  int below_32 = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t drawn = draw.log_uniform(1, 1023);
    ASSERT_GE(drawn, 1);
    ASSERT_LE(drawn, 1023);
    below_32 += drawn < 32;
  }
  EXPECT_NEAR(below_32, 2000, 160);  // five of ten octaves; five deviations of a binomial
  for (int i = 0; i < 100; ++i) EXPECT_EQ(draw.log_uniform(5, 5), 5);
}

struct Pinned {
  uint64_t seed;
  int index;
  const char* problem;
  size_t batch;
  const char* lengths;
};

// Whoever publishes a table names its seed: these may never change.
TEST(BenchRandom, RowsOfASeedStayWhatTheyAre) {
  const Pinned pinned[] = {
      {0, 1, "attention q=bf16 kv=bf16 heads=28/4 dim=128", 5, "15073"},
      {0, 2, "attention q=bf16 kv=bf16 heads=32/16 dim=128 kv_layout=paged:16:nhd", 115,
       "114 of 175, 1 of 19970"},
      {0, 6, "attention q=fp16 kv=fp16 heads=12/2 dim=128 kv_layout=paged:16:nhd", 105,
       "105 of 14 to 749"},
      {1, 3, "attention q=bf16 kv=bf16 heads=64/4 dim=128", 3, "172348"},
      {1, 8, "attention q=bf16 kv=bf16 heads=64/8 dim=64 kv_layout=paged:16:nhd", 17,
       "17 of 29 to 1564"},
      {2, 11, "attention q=bf16 kv=bf16 heads=24/2 dim=128", 2, "1 of 4786, 1 of 82447"},
      {2, 12, "attention q=fp16 kv=fp16 heads=32/8 dim=64 kv_layout=paged:16:nhd", 4, "1046"},
  };
  for (const Pinned& pin : pinned) {
    const BenchRow row = random_row(pin.seed, pin.index);
    EXPECT_EQ(row.problem, pin.problem) << row.name;
    EXPECT_EQ(row.kv_len.size(), pin.batch) << row.name;
    EXPECT_EQ(describe_lengths(row.kv_len), pin.lengths) << row.name;
  }
}

TEST(BenchRandom, ASeedGivesTheSameRowsHoweverMany) {
  const std::vector<BenchRow> many = random_rows(42, 20), few = random_rows(42, 5);
  ASSERT_EQ(many.size(), 20u);
  EXPECT_EQ(many, random_rows(42, 20));
  EXPECT_EQ(few, std::vector<BenchRow>(many.begin(), many.begin() + 5));
  EXPECT_EQ(many[0].name, "random 42.1");
  EXPECT_EQ(many[19].name, "random 42.20");
}

TEST(BenchRandom, OtherSeedsGiveOtherRows) {
  std::set<std::string> drawn;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const BenchRow& row : random_rows(seed, 10)) {
      drawn.insert(row.problem + " " + describe_lengths(row.kv_len));
    }
  }
  EXPECT_GE(drawn.size(), 198u) << "200 were drawn";
}

int64_t memory_of(const Problem& problem, const std::vector<int32_t>& lengths) {
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  return int64_t(lengths.size()) * longest * problem.kv_heads * problem.dim_qk * 4;
}

TEST(BenchRandom, RowsVerifyAndKeepTheirBounds) {
  const auto target = parse_target("cuda:sm_90a");
  ASSERT_TRUE(target.ok());
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const BenchRow& row : random_rows(seed, 20)) {
      const auto problem = parse_problem(row.problem);
      ASSERT_TRUE(problem.ok()) << row.name << ": " << problem.error().message;
      EXPECT_EQ(print(*problem), row.problem) << row.name << " is not in canonical form";
      EXPECT_FALSE(verify(*problem, *target).has_value()) << row.name;
      EXPECT_TRUE(check_attend(*problem).ok()) << row.name;
      EXPECT_GE(row.kv_len.size(), 1u);
      EXPECT_LE(row.kv_len.size(), 128u);
      const int64_t bytes = kv_bytes(*problem, row.kv_len);
      EXPECT_GE(bytes, 3'500'000) << row.name << ": lengths are rounded down from 4 MB";
      EXPECT_LE(bytes, 4'100'000'000) << row.name << ": no row has less than one token";
      EXPECT_GT(row.goal_ratio, 1) << row.name;
      if (!is_paged(*problem)) {
        EXPECT_LE(memory_of(*problem, row.kv_len), 16'000'000'000) << row.name;
      }
    }
  }
}

TEST(BenchRandom, EveryKindIsDrawn) {
  std::set<std::string> types;
  std::set<int> dims;
  std::set<bool> paged, ragged;
  int small = 0, large = 0;
  for (const BenchRow& row : random_rows(1, 200)) {
    const auto problem = parse_problem(row.problem);
    ASSERT_TRUE(problem.ok());
    types.insert(std::string(name(problem->k_dtype)));
    dims.insert(problem->dim_qk);
    paged.insert(is_paged(*problem));
    ragged.insert(std::set(row.kv_len.begin(), row.kv_len.end()).size() > 1);
    const int64_t bytes = kv_bytes(*problem, row.kv_len);
    small += bytes < 40'000'000;
    large += bytes > 400'000'000;
  }
  EXPECT_EQ(types, (std::set<std::string>{"bf16", "fp16"}));
  EXPECT_EQ(dims, (std::set<int>{64, 96, 128, 256}));
  EXPECT_EQ(paged.size(), 2u);
  EXPECT_EQ(ragged.size(), 2u);
  EXPECT_NEAR(small, 67, 30);  // a decade of three each
  EXPECT_NEAR(large, 67, 30);
}

TEST(BenchRandom, TheTableHasAsManyAsAreAskedFor) {
  TableChoice choice;
  choice.table = "random";
  choice.seed = 3;
  choice.count = 4;
  const auto rows = table_rows(choice);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(*rows, random_rows(3, 4));
}

}  // namespace
}  // namespace splitkv::tool
