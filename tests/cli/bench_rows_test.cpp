// The tables of the benchmark: every row is a problem that a GPU takes, of the size it is said to
// have; what is handed beside it, and the rules of arithmetic.
#include "tools/splitkv/bench_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench_arithmetic.hpp"
#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {
namespace {

std::vector<BenchRow> rows_of_table(const TableChoice& choice) {
  const auto rows = table_rows(choice);
  EXPECT_TRUE(rows.ok());
  return rows.ok() ? *rows : std::vector<BenchRow>{};
}

TEST(BenchRows, ParseAndVerifyOnHopper) {
  const auto target = parse_target("cuda:sm_90a");
  ASSERT_TRUE(target.ok());
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const bool paged : {false, true}) {
      const auto rows = rows_of_table({"all", dtype, paged, 0});
      EXPECT_EQ(rows.size(), 13u + 3u + 8u + 9u);
      for (const BenchRow& row : rows) {
        const auto problem = parse_problem(row.problem);
        ASSERT_TRUE(problem.ok()) << row.name << ": " << problem.error().message;
        const auto refusal = verify(*problem, *target);
        EXPECT_FALSE(refusal.has_value()) << row.name << ": " << to_string(*refusal);
        EXPECT_TRUE(check_attend(*problem).ok()) << row.name;
        EXPECT_EQ(is_paged(*problem), paged || row.matrix_flops > 0) << row.name;
        EXPECT_EQ(name(problem->k_dtype), dtype);
      }
    }
  }
}

TEST(BenchRows, HaveTheBytesThatTheTableSays) {
  int checked = 0;
  for (const BenchRow& row : rows_of_table({"all", "bf16", false, 0})) {
    if (row.kv_mb == 0) continue;
    const auto problem = parse_problem(row.problem);
    ASSERT_TRUE(problem.ok());
    const double mb = double(kv_bytes(*problem, row.kv_len)) * 1e-6;
    EXPECT_NEAR(mb, row.kv_mb, row.kv_mb < 10 ? 0.05 : 0.5) << row.name;
    ++checked;
  }
  EXPECT_EQ(checked, 13 + 1 + 8);
}

TEST(BenchRows, HaveNamesOfTheirOwn) {
  std::vector<std::string> names;
  for (const BenchRow& row : rows_of_table({"all", "bf16", false, 0})) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(BenchRows, HandedPeersAreAboveTheirFloor) {
  for (const BenchRow& row : rows_of_table({"all", "bf16", false, 0})) {
    for (const HandedPeer& peer : row.peers) EXPECT_GT(peer.us, row.floor_us) << row.name;
    if (row.goal_ratio != 0) {
      EXPECT_GT(row.goal_ratio, 1.0) << row.name;
    }
  }
}

TEST(BenchRows, OfTheCpuStandAlone) {
  const auto rows = rows_of_table({"cpu", "bf16", false, 0});
  EXPECT_EQ(rows.size(), 6u);
  const auto target = parse_target("cpu:x86-64-v3");
  ASSERT_TRUE(target.ok());
  for (const BenchRow& row : rows) {
    const auto problem = parse_problem(row.problem);
    ASSERT_TRUE(problem.ok());
    EXPECT_FALSE(verify(*problem, *target).has_value()) << row.name;
    EXPECT_LT(kv_bytes(*problem, row.kv_len), 200'000'000) << row.name;
  }
}

TEST(BenchRows, RefuseOtherTablesAndTypes) {
  const auto table = table_rows({"triangular", "bf16", false, 0});
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.error().message.find("--table=triangular"), std::string::npos);
  EXPECT_NE(table.error().message.find("uniform, ragged"), std::string::npos);
  const auto dtype = table_rows({"all", "int4", false, 0});
  ASSERT_FALSE(dtype.ok());
  EXPECT_NE(dtype.error().message.find("--dtype=int4"), std::string::npos);
}

TEST(BenchRows, DrawLengthsFromTheirSeedWithinTheirRange) {
  const auto lengths = log_uniform_lengths(128, 64, 65536, 0);
  ASSERT_EQ(lengths.size(), 128u);
  EXPECT_EQ(lengths, log_uniform_lengths(128, 64, 65536, 0));
  EXPECT_NE(lengths, log_uniform_lengths(128, 64, 65536, 1));
  double mean = 0;
  for (const int32_t length : lengths) {
    EXPECT_GE(length, 64);
    EXPECT_LE(length, 65536);
    mean += std::log2(double(length)) / 128;
  }
  EXPECT_NEAR(mean, 11, 1);  // the middle of 6 and 16, within four deviations of a mean of 128
}

TEST(BenchRows, CountOnlyVisibleBytes) {
  const auto windowed = parse_problem("attention q=bf16 heads=32/8 dim=128 window=4096");
  const auto latent = parse_problem("attention q=bf16 heads=16/1 dim=576/512 v_in_k=on");
  ASSERT_TRUE(windowed.ok() && latent.ok());
  EXPECT_EQ(kv_bytes(*windowed, {131072, 100}), (4096 + 100) * 8 * 128 * 2 * 2);
  EXPECT_EQ(kv_bytes(*latent, {1000}), 1000 * 576 * 2);
}

TEST(BenchRows, DescribeLengthsInAFewWords) {
  EXPECT_EQ(describe_lengths({}), "none");
  EXPECT_EQ(describe_lengths({7, 7}), "7");
  EXPECT_EQ(describe_lengths({1024, 1024, 5}), "1 of 5, 2 of 1024");
  EXPECT_EQ(describe_lengths({1, 2, 3, 4}), "4 of 1 to 4");
}

TEST(BenchRows, GoalsFollowTheSize) {
  EXPECT_EQ(goal_ratio_of(4.2), 1.7);
  EXPECT_EQ(goal_ratio_of(17), 1.25);
  EXPECT_EQ(goal_ratio_of(134), 1.08);
  EXPECT_EQ(goal_ratio_of(268), 1.05);
  EXPECT_EQ(goal_ratio_of(1074), 1.02);
}

constexpr int64_t kMb = 1'000'000;

TEST(BenchRotation, GoesThroughThreeTimesTheL2) {
  const Rotation small = rotation_of({4 * kMb, 5 * kMb, 60 * kMb, 100'000 * kMb, 4e6});
  EXPECT_EQ(small.sets, 45);
  EXPECT_TRUE(small.cold);
  EXPECT_EQ(small.launches % small.sets, 0);
  EXPECT_GE(small.launches, 20);
  // At 3 us a launch the graph takes half a millisecond or more.
  EXPECT_GE(small.launches * 3, 500);
}

TEST(BenchRotation, TakesTwoCopiesUnlessOneIsLargeEnough) {
  EXPECT_EQ(rotation_of({180 * kMb, 180 * kMb, 60 * kMb, 100'000 * kMb, 4e6}).sets, 2);
  EXPECT_EQ(rotation_of({181 * kMb, 181 * kMb, 60 * kMb, 100'000 * kMb, 4e6}).sets, 1);
  EXPECT_EQ(rotation_of({100 * kMb, 100 * kMb, 60 * kMb, 100'000 * kMb, 4e6}).sets, 2);
}

TEST(BenchRotation, TakesFewerLaunchesFromAGigabyteUp) {
  EXPECT_EQ(rotation_of({4295 * kMb, 4295 * kMb, 60 * kMb, 100'000 * kMb, 4e6}).launches, 8);
  EXPECT_EQ(rotation_of({537 * kMb, 537 * kMb, 60 * kMb, 100'000 * kMb, 4e6}).launches, 20);
}

TEST(BenchRotation, SaysWhereMemoryHoldsTooFewCopies) {
  const Rotation cramped = rotation_of({100 * kMb, 1000 * kMb, 60 * kMb, 1500 * kMb, 4e6});
  EXPECT_EQ(cramped.sets, 1);
  EXPECT_FALSE(cramped.cold);
  EXPECT_EQ(rotation_of({100 * kMb, 1000 * kMb, 60 * kMb, 10 * kMb, 4e6}).sets, 1);
}

TEST(BenchFloor, CannotLieMoreThanTwoPercentBelowTheHandedOne) {
  EXPECT_FALSE(impossible_floor(116, 116, 1).has_value());
  EXPECT_FALSE(impossible_floor(200, 116, 1).has_value());
  EXPECT_FALSE(impossible_floor(50, 0, 0).has_value()) << "none was handed";
  // 0.98 x 115.5: half of the last digit is granted.
  EXPECT_FALSE(impossible_floor(113.2, 116, 1).has_value());
  const auto broken = impossible_floor(113.1, 116, 1);
  ASSERT_TRUE(broken.has_value());
  EXPECT_NE(broken->find("113.10"), std::string::npos);
  EXPECT_NE(broken->find("116"), std::string::npos);
}

}  // namespace
}  // namespace splitkv::tool
