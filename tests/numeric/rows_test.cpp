// Rows without keys, rows of other forms, and what must not matter around them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/numeric/contract.hpp"
#include "tools/splitkv/step_memory.hpp"

namespace splitkv {
namespace {

using testing_support::expect_right;
using testing_support::expect_right_on;
using testing_support::Judged;
using testing_support::kSchedules;
using testing_support::problem_of;
using testing_support::schedules;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(EmptyRows, AreWrittenForQuantisedCachesToo) {
  for (const char* type : {"e4m3", "e5m2", "int8"}) {
    for (const char* schedule : schedules()) {
      const Judged judged =
          expect_right(fmt::format("q=fp16 kv={} kv_scale=head heads=2/1 dim=64 lse=base2", type),
                       schedule, {0, 1, 5});
      ASSERT_EQ(judged.execution.lse.size(), 6u);
      EXPECT_EQ(judged.execution.lse[0], -kInfinity);
      EXPECT_EQ(judged.execution.out[0], 0);
    }
  }
}

TEST(EmptyRows, QueriesBeforeTheFirstKeyAreEmpty) {
  for (const char* schedule : schedules()) {
    const Judged judged =
        expect_right("q=bf16 heads=4/2 dim=64 query_len=4 lse=natural", schedule, {2, 0, 9});
    ASSERT_EQ(judged.execution.lse.size(), 3u * 4 * 4);
    for (size_t i = 0; i < 2 * 4; ++i) {  // queries 0 and 1 of row 0
      EXPECT_EQ(judged.execution.lse[i], -kInfinity);
      EXPECT_EQ(judged.execution.out[i * 64 + 3], 0);
    }
    EXPECT_TRUE(std::isfinite(judged.execution.lse[2 * 4]));
  }
}

TEST(EmptyRows, ABiasOfMinusInfinityEverywhereLeavesNothing) {
  const std::string text = "q=fp32 heads=2/1 dim=32 bias=fp32 lse=natural";
  const Problem problem = problem_of(text);
  tool::Inputs inputs = tool::generate_inputs(problem, {100, 40}, 1);
  for (int64_t i = 0; i < inputs.capacity; ++i) {  // row 0, head 0
    testing_support::set_element(inputs.bias, DType::fp32, i, -kInfinity);
  }
  for (const char* schedule : schedules()) {
    const Judged judged = expect_right_on(text, schedule, inputs);
    ASSERT_FALSE(judged.execution.lse.empty());
    EXPECT_EQ(judged.execution.lse[0], -kInfinity);
    EXPECT_EQ(judged.execution.out[0], 0);
  }
}

TEST(Poison, AroundTheKeysOfARowNeverMatters) {
  for (const char* types : {"q=fp32", "q=fp16", "q=bf16", "q=fp16 kv=e4m3", "q=bf16 kv=e5m2"}) {
    for (const int queries : {1, 4}) {
      for (const bool infinite : {false, true}) {
        tool::StepForm form;
        form.infinite_poison = infinite;
        expect_right(fmt::format("{} heads=4/2 dim=64 query_len={} kv_layout=paged:16:nhd "
                                 "lse=natural",
                                 types, queries),
                     "partition=fixed splits=2 tile=16", {5, 1, 15, 17, 127, 129}, 3, form);
      }
    }
  }
}

TEST(Poison, InScratchNeverMatters) {
  for (const int splits : {2, 8, 64}) {
    for (const char* merge : {"mlo", "lse"}) {
      for (const char* reduce : {"kernel", "last_block"}) {
        expect_right(fmt::format("q=bf16 heads=4/1 dim=64 lse=natural merge={}", merge),
                     fmt::format("partition=fixed splits={} reduce={}", splits, reduce), {1});
      }
    }
  }
}

TEST(Rows, OfRaggedPagedBatchesAreAllWritten) {
  for (const int splits : {1, 2, 3, 7}) {
    const std::string schedule = fmt::format("partition=fixed splits={} reduce=kernel", splits);
    const std::string text = "q=bf16 heads=4/4 dim=64 kv_layout=paged:256:nhd lse=natural";
    expect_right(text, schedule, {1024, 1024});
    expect_right(text, schedule, {1, 300, 0, 256, 1025});
  }
}

// gather() of the tool finds bytes that were written between the rows.
TEST(Rows, ThatLieApartAreWrittenAndNothingBetweenThem) {
  tool::StepForm form;
  form.padded_rows = true;
  for (const char* schedule : schedules()) {
    for (const char* words : {"out=fp16", "out=fp32", "out=partial merge=mlo", "query_len=3"}) {
      expect_right(fmt::format("q=fp16 heads=8/2 dim=64 lse=natural {}", words), schedule,
                   {100, 0, 33}, 2, form);
    }
  }
}

TEST(Queries, MayBeRaggedWithTailsThatAreEqualOrMinusOne) {
  for (const bool minus_one : {false, true}) {
    for (const char* schedule : schedules()) {
      tool::StepForm form;
      form.queries = {3, 0, 1, 4, 0, 0};
      form.spare_rows = 3;
      form.minus_one_tail = minus_one;
      const Judged judged = expect_right("q=bf16 heads=4/2 dim=64 query_len=4 lse=natural",
                                         schedule, {50, 20, 1, 200, 30, 0}, 4, form);
      // Token rows beyond the last query.
      ASSERT_EQ(judged.execution.lse.size(), size_t(8 + 3) * 4);
      for (size_t i = 8 * 4; i < 11 * 4; ++i) {
        EXPECT_EQ(judged.execution.lse[i], -kInfinity);
        EXPECT_EQ(judged.execution.out[i * 64 + 63], 0);
      }
    }
  }
}

TEST(Queries, ABatchWithoutAnyQueryZeroesItsOutput) {
  tool::StepForm form;
  form.queries = {0, 0};
  form.spare_rows = 2;
  for (const char* schedule : schedules()) {
    const Judged judged =
        expect_right("q=bf16 heads=2/1 dim=32 query_len=2 lse=natural", schedule, {9, 4}, 4, form);
    ASSERT_EQ(judged.execution.out.size(), 2u * 2 * 32);
    for (const float value : judged.execution.out) EXPECT_EQ(value, 0);
  }
}

TEST(Lengths, MayBe64BitsWideOrOneScalarOnTheHost) {
  for (const auto form_of_lengths : {tool::LengthForm::int64, tool::LengthForm::host}) {
    tool::StepForm form;
    form.lengths = form_of_lengths;
    expect_right("q=bf16 heads=4/2 dim=64 lse=natural", "partition=flat blocks=7", {77, 77, 77}, 1,
                 form);
    expect_right("q=bf16 heads=4/2 dim=64 lse=natural", "partition=fixed splits=3", {0, 0}, 1,
                 form);
  }
}

TEST(Lengths, PaddingOnTheLeftIsNotThere) {
  for (const char* schedule : schedules()) {
    for (const char* words : {"kv_layout=bhtd", "kv_layout=paged:16:nhd", "window=40"}) {
      tool::StepForm form;
      form.kv_begin = {0, 5, 64, 200, 300};
      expect_right(fmt::format("q=bf16 heads=4/2 dim=64 query_len=2 lse=natural {}", words),
                   schedule, {100, 100, 129, 200, 210}, 1, form);
    }
  }
}

TEST(Sink, IsAddedOnceUnscaledWhateverTheSplits) {
  for (const char* softcap : {"0", "30"}) {
    const std::string text =
        fmt::format("q=fp32 heads=3/1 dim=64 window=64 softcap={} sink=on lse=natural", softcap);
    const Problem problem = problem_of(text);
    tool::Inputs inputs = tool::generate_inputs(problem, {1024, 0}, 1);
    inputs.sink = {-3, 0, 5};
    for (const char* schedule : schedules()) {
      const Judged judged = expect_right_on(text, schedule, inputs);
      ASSERT_EQ(judged.execution.lse.size(), 6u);
      for (size_t head = 0; head < 3; ++head) {  // the empty row
        EXPECT_NEAR(judged.execution.lse[3 + head], inputs.sink[head], 1e-6);
        EXPECT_EQ(judged.execution.out[(3 + head) * 64], 0);
      }
    }
  }
}

TEST(Sink, MayBeHugeWithEveryCacheType) {
  for (const char* type : {"fp32", "fp16", "bf16", "e4m3", "e5m2", "int8"}) {
    const std::string text = fmt::format("q=fp16 kv={} heads=3/1 dim=64 sink=on lse=natural", type);
    const Problem problem = problem_of(text);
    tool::Inputs inputs = tool::generate_inputs(problem, {70, 0}, 1);
    inputs.sink = {3e38f, -3e38f, -kInfinity};
    for (const char* schedule : schedules()) {
      const Judged judged = expect_right_on(text, schedule, inputs);
      ASSERT_EQ(judged.execution.lse.size(), 6u);
      EXPECT_EQ(judged.execution.lse[0], 3e38f);
      EXPECT_EQ(judged.execution.lse[5], -kInfinity);
    }
    const Judged with = expect_right(text, kSchedules[1], {70});
    const Judged without = expect_right(
        fmt::format("q=fp16 kv={} heads=3/1 dim=64 lse=natural", type), kSchedules[1], {70});
    EXPECT_NE(with.execution.out, without.execution.out);
  }
}

}  // namespace
}  // namespace splitkv
