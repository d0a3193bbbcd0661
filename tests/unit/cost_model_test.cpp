#include "compiler/cost_model.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

Problem problem_of(const std::string& text) { return parse_problem(text).value(); }
Schedule schedule_of(const std::string& text) { return parse_schedule(text).value(); }
Target h200() { return parse_target("cuda:sm_90a").value(); }

double predicted_us(const Problem& problem, const std::vector<RowGroup>& rows,
                    const std::string& schedule) {
  return predict(problem, rows, schedule_of(schedule), h200()).total_us();
}

// Measured on an H200: of each row schedules of different kinds, fastest first, with their times.
struct Measured {
  double us;
  const char* schedule;
};
struct Row {
  const char* problem;
  int64_t kv_len;
  std::vector<Measured> schedules;
};

const std::string kWide = "family=mma tile=128 warps=8 unroll=1 stages=2 ";

const std::vector<Row>& measured_rows() {
  static const std::vector<Row> rows = {
      {"q=bf16 heads=32/8 dim=128",
       8192,
       {{13.80, "rows=4 partition=fixed splits=8 reduce=cluster cluster=8"},
        {16.50, "rows=4 partition=fixed splits=6 reduce=last_block pdl=on"},
        {18.36, "rows=4 partition=fixed splits=24 reduce=last_block pdl=on"},
        {27.94, "rows=4 partition=fixed splits=64 reduce=last_block pdl=on"},
        {63.00, "rows=4 partition=fixed splits=1 reduce=last_block pdl=on"}}},
      {"q=bf16 heads=32/8 dim=128",
       32768,
       {{37.06, "rows=4 partition=fixed splits=8 reduce=cluster cluster=8"},
        {41.86, "rows=4 partition=fixed splits=32 reduce=last_block pdl=on"},
        {45.44, "rows=4 partition=fixed splits=6 pdl=on"},
        {53.59, "rows=4 partition=fixed splits=16 reduce=cluster cluster=8"},
        {239.9, "rows=4 partition=fixed splits=1 reduce=last_block pdl=on"}}},
      {"q=bf16 heads=8/1 dim=128",
       131072,
       {{24.68, "rows=8 partition=fixed splits=64 reduce=cluster cluster=8"},
        {29.94, "rows=8 partition=fixed splits=64 reduce=last_block pdl=on"},
        {34.68, "rows=8 partition=fixed splits=128 reduce=last_block pdl=on"},
        {920.0, "rows=8 partition=fixed splits=1 reduce=last_block pdl=on"}}},
  };
  return rows;
}

TEST(CostModel, OrdersSchedulesAsTheyWereMeasured) {
  for (const Row& row : measured_rows()) {
    SCOPED_TRACE(std::string(row.problem) + ", " + std::to_string(row.kv_len));
    double before = 0;
    for (const Measured& one : row.schedules) {
      const double us =
          predicted_us(problem_of(row.problem), {{1, row.kv_len}}, kWide + one.schedule);
      EXPECT_GT(us, before) << one.schedule;
      before = us;
    }
  }
}

TEST(CostModel, IsWithinAThirdOfWhatWasMeasured) {
  for (const Row& row : measured_rows()) {
    for (const Measured& one : row.schedules) {
      const double us =
          predicted_us(problem_of(row.problem), {{1, row.kv_len}}, kWide + one.schedule);
      EXPECT_NEAR(us / one.us, 1, 0.33) << row.kv_len << " " << one.schedule;
    }
  }
}

TEST(CostModel, OfARaggedBatchPrefersThePartitionThatBalances) {
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  const std::vector<RowGroup> ragged = {{31, 1024}, {1, 131072}};
  EXPECT_LT(predicted_us(problem, ragged,
                         "family=mma tile=64 rows=4 warps=4 unroll=1 stages=2 partition=flat "
                         "blocks=396 reduce=last_block pdl=on"),
            predicted_us(problem, ragged, kWide + "rows=4 splits=1 reduce=last_block pdl=on") / 2);
}

// But for what cuts in unequal pieces cost.
TEST(CostModel, LongerRowsAreNeverCheaper) {
  const double slack = 1 - CostConstants().uneven_share;
  Engine engine(7);
  for (int i = 0; i < 300; ++i) {
    const Problem problem = random_problem(engine);
    const Target target = h200();
    const Schedule schedule = default_schedule(problem, {1, 8192}, target).schedule;
    double before = 0;
    for (int64_t kv_len = 1; kv_len <= (1 << 20); kv_len *= 2) {
      const RowGroup row{1, kv_len};
      const Cost cost = predict(problem, {&row, 1}, schedule, target);
      ASSERT_GE(cost.total_us(), before * slack) << print(problem) << "\n"
                                                 << print(schedule) << "\n"
                                                 << kv_len;
      ASSERT_GE(cost.read_us, 0);
      before = cost.total_us();
    }
  }
}

TEST(CostModel, PartsAreWhatTheScheduleHas) {
  const Problem problem = problem_of("q=bf16 heads=32/8 dim=128");
  const RowGroup row{1, 8192};
  const auto cost = [&](const std::string& words) {
    return predict(problem, {&row, 1}, schedule_of(kWide + "rows=4 " + words), h200());
  };
  const Cost alone = cost("splits=1 reduce=last_block");
  EXPECT_EQ(alone.exchange_us, 0);
  EXPECT_EQ(alone.second_launch_us, 0);
  EXPECT_EQ(alone.partial_bytes, 0);
  EXPECT_EQ(alone.bound, Bound::warps);  // 8 blocks
  const Cost kernel = cost("splits=16 reduce=kernel");
  EXPECT_GT(kernel.second_launch_us, 0);
  EXPECT_GT(kernel.exchange_us, 0);
  EXPECT_EQ(kernel.partials, 16);
  EXPECT_EQ(kernel.partial_bytes, 8 * 16 * 4 * (128 + 2) * 4);
  const Cost cluster = cost("splits=8 cluster=8");
  EXPECT_GT(cluster.exchange_us, 0);
  EXPECT_EQ(cluster.partials, 0);
  EXPECT_EQ(cluster.blocks, 64);
  EXPECT_EQ(cluster.block_bytes, 1024.0 * 512);
  EXPECT_LT(cost("splits=16 reduce=kernel pdl=on").launch_us, kernel.launch_us);
}

// 120 of an H200's 132 SMs take part in clusters of 8 at one block an SM.
TEST(CostModel, ClustersThatDoNotFitRunInASecondWave) {
  const Schedule cluster = schedule_of(kWide + "rows=4 splits=16 cluster=8");
  EXPECT_EQ(resident_blocks(cluster, 1, h200()), 120);
  EXPECT_EQ(resident_blocks(schedule_of(kWide + "rows=4 splits=16"), 1, h200()), 132);
  const RowGroup row{1, 8192};
  EXPECT_EQ(predict(problem_of("q=bf16 heads=32/8 dim=128"), {&row, 1}, cluster, h200()).waves, 2);
}

TEST(CostModel, AWindowBoundsWhatIsRead) {
  const std::string schedule = kWide + "rows=4 splits=8 reduce=last_block pdl=on";
  const Problem window = problem_of("q=bf16 heads=32/8 dim=128 window=4096");
  EXPECT_EQ(predicted_us(window, {{1, 131072}}, schedule),
            predicted_us(window, {{1, 4096}}, schedule));
}

}  // namespace
}  // namespace splitkv
