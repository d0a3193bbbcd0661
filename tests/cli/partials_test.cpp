#include "tools/splitkv/partials.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "compiler/text.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {
namespace {

PartialCount count(const std::string& problem_text, const std::string& schedule_text,
                   const std::vector<int32_t>& kv_len) {
  const auto problem = parse_problem(problem_text);
  const auto schedule = parse_schedule(schedule_text);
  EXPECT_TRUE(problem.ok() && schedule.ok()) << problem_text << "; " << schedule_text;
  return count_partials(*problem, *schedule, kv_len);
}

TEST(Partials, AreNoneWhereEverySequenceIsOnePiece) {
  const PartialCount one =
      count("attention q=bf16 kv=bf16 heads=8/2 dim=64",
            "schedule family=simt tile=64 rows=4 partition=fixed splits=1", {1000, 0, 3});
  EXPECT_EQ(one, (PartialCount{.sequences = 6}));
  const PartialCount short_rows =
      count("attention q=bf16 kv=bf16 heads=8/2 dim=64",
            "schedule family=simt tile=64 rows=4 partition=strided splits=7", {64, 1, 0});
  EXPECT_EQ(short_rows.partials, 0);
}

TEST(Partials, CountRealRowsAndTheFormsBytes) {
  // Group 7 in row blocks of 4: 4 and 3 rows. 5 tiles in 3 pieces.
  const std::string problem = "attention q=fp32 kv=fp32 heads=7/1 dim=80 merge=";
  const std::string schedule = "schedule family=simt tile=64 rows=4 partition=fixed splits=3";
  const PartialCount mlo = count(problem + "mlo", schedule, {259});
  EXPECT_EQ(mlo, (PartialCount{2, 2, 6, 3 * 7 * (80 + 2) * 4, 6}));
  const PartialCount lse = count(problem + "lse", schedule, {259});
  EXPECT_EQ(lse, (PartialCount{2, 2, 6, 3 * 7 * (80 + 1) * 4, 6}));
}

TEST(Partials, InBf16TakeHalfAnOutput) {
  const PartialCount halved = count("attention q=bf16 kv=bf16 heads=7/1 dim=80 merge=mlo",
                                    "schedule family=simt tile=64 rows=4 partition=fixed splits=3 "
                                    "partials=bf16",
                                    {259});
  EXPECT_EQ(halved, (PartialCount{2, 2, 6, 3 * 7 * (80 * 2 + 2 * 4), 6}));
}

TEST(Partials, OfClustersAreOneOfEachClusterThatTakesPart) {
  const std::string problem = "attention q=bf16 kv=bf16 heads=4/1 dim=64 merge=mlo";
  const std::string schedule =
      "schedule family=simt tile=16 rows=4 partition=strided splits=12 reduce=cluster cluster=4";
  // 1, 4, 5 and 12 of 12 pieces take part: 1, 1, 2 and 3 clusters. m and l lie in scratch once for
  // each of a cluster's 4 blocks.
  const PartialCount three = count(problem, schedule, {16, 64, 80, 999});
  EXPECT_EQ(three, (PartialCount{4, 2, 2 + 3, (2 + 3) * 4 * (64 * 4 + 4 * 2 * 4), 4 + 5 + 12}));
  const PartialCount halved = count(problem, schedule + " partials=bf16", {16, 64, 80, 999});
  EXPECT_EQ(halved.bytes, (2 + 3) * 4 * (64 * 2 + 4 * 2 * 4));
}

TEST(Partials, OfOneClusterNeverLeaveSharedMemory) {
  const PartialCount joined =
      count("attention q=bf16 kv=bf16 heads=4/1 dim=64",
            "schedule family=simt tile=16 rows=4 partition=fixed splits=8 reduce=cluster cluster=8",
            {16, 48, 999});
  EXPECT_EQ(joined, (PartialCount{.sequences = 3, .pieces = 3 + 8}));
}

TEST(Partials, OfAWindowCountItsTilesOnly) {
  // Keys 413 to 512 lie in tiles 6, 7 and 8 of 64.
  const PartialCount windowed =
      count("attention q=fp32 kv=fp32 heads=1 dim=64 window=100",
            "schedule family=simt tile=64 rows=1 partition=strided splits=64", {513});
  EXPECT_EQ(windowed.partials, 3);
}

// Every unit of every sequence in a line, each with the block that has it.
int64_t flat_partials_unit_by_unit(const Problem& problem, const Schedule& schedule,
                                   const std::vector<int32_t>& kv_len) {
  std::vector<int64_t> sequence_of_unit;
  int64_t sequence = 0;
  for (const int32_t length : kv_len) {
    const int64_t first = first_visible(problem, length) / schedule.tile_kv;
    const int64_t tiles = (length + schedule.tile_kv - 1) / schedule.tile_kv - first;
    for (int i = 0; i < problem.kv_heads * row_blocks(problem, schedule); ++i, ++sequence) {
      sequence_of_unit.insert(sequence_of_unit.end(), std::max<int64_t>(1, tiles), sequence);
    }
  }
  const int64_t total = int64_t(sequence_of_unit.size());
  std::map<int64_t, std::set<int64_t>> blocks_of;
  for (int64_t block = 0; block < schedule.blocks; ++block) {
    for (int64_t unit = block * total / schedule.blocks;
         unit < (block + 1) * total / schedule.blocks; ++unit) {
      blocks_of[sequence_of_unit[unit]].insert(block);
    }
  }
  int64_t partials = 0;
  for (const auto& [of, blocks] : blocks_of) partials += blocks.size() > 1 ? blocks.size() : 0;
  return partials;
}

TEST(Partials, OfFlatSchedulesAgreeWithDealingOutUnitByUnit) {
  std::mt19937 engine(1);
  const auto problem = parse_problem("attention q=fp32 kv=fp32 heads=6/2 dim=64 window=300");
  ASSERT_TRUE(problem.ok());
  for (int round = 0; round < 100; ++round) {
    Schedule schedule;
    schedule.tile_kv = 16;
    schedule.rows = 2;
    schedule.partition = Partition::flat;
    schedule.blocks = 1 + int(engine() % 90);
    std::vector<int32_t> kv_len(1 + engine() % 5);
    for (int32_t& length : kv_len) length = int32_t(engine() % 400);
    EXPECT_EQ(count_partials(*problem, schedule, kv_len).partials,
              flat_partials_unit_by_unit(*problem, schedule, kv_len));
  }
}

}  // namespace
}  // namespace splitkv::tool
