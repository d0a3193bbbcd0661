#include "compiler/text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

TEST(Text, EveryProblemReadsBackAsItself) {
  Engine engine(1);
  for (int i = 0; i < 5000; ++i) {
    const Problem problem = random_problem(engine);
    const std::string text = print(problem);
    const Result<Problem> again = parse_problem(text);
    ASSERT_TRUE(again.ok()) << text << "\n" << again.error().message;
    ASSERT_EQ(*again, problem) << text;
    ASSERT_EQ(print(*again), text);
  }
}

TEST(Text, EveryScheduleReadsBackAsItselfWhateverTheBase) {
  Engine engine(2);
  for (int i = 0; i < 5000; ++i) {
    const Schedule schedule = any_schedule(engine);
    const std::string text = print(schedule);
    const Result<Schedule> again = parse_schedule(text);
    ASSERT_TRUE(again.ok()) << text << "\n" << again.error().message;
    ASSERT_EQ(*again, schedule) << text;
    const Result<Schedule> over_another = parse_schedule(text, any_schedule(engine));
    ASSERT_TRUE(over_another.ok());
    ASSERT_EQ(*over_another, schedule) << text;
  }
}

TEST(Text, EveryDoubleReadsBackBitForBit) {
  Engine engine(3);
  for (int i = 0; i < 5000; ++i) {
    const double value = std::bit_cast<double>(engine());
    if (std::isnan(value)) continue;
    Problem problem;
    problem.scale = value;
    problem.softcap = -value;
    const Result<Problem> again = parse_problem(print(problem));
    ASSERT_TRUE(again.ok()) << print(problem);
    ASSERT_EQ(*again, problem) << print(problem);
  }
}

TEST(Text, PrintsWordsInOneOrderWithoutDefaults) {
  const auto canonical = [](std::string_view text) { return print(parse_problem(text).value()); };
  EXPECT_EQ(canonical("dim=128 heads=32/8 q=bf16"), "attention q=bf16 kv=bf16 heads=32/8 dim=128");
  EXPECT_EQ(canonical("attention  align=16 merge=auto lse=none deterministic=off dim=64/64 "
                      "kv_layout=bhtd window=0 softcap=0 query_len=1 heads=4/4 out=fp16 q=fp16"),
            "attention q=fp16 kv=fp16 heads=4 dim=64");
  EXPECT_EQ(
      canonical("align=4 deterministic=on merge=lse lse=base2 window=9 softcap=30.5 scale=0.1 "
                "kv_layout=paged:16:hnd dim=192/128 heads=16/1 out=fp32 v=bf16 k=fp16 q=fp32"),
      "attention q=fp32 k=fp16 v=bf16 heads=16/1 dim=192/128 kv_layout=paged:16:hnd scale=0.1 "
      "softcap=30.5 window=9 lse=base2 merge=lse deterministic=on align=4");
  EXPECT_EQ(print(parse_schedule("rows=2").value()),
            "schedule family=simt tile=64 rows=2 partition=fixed splits=1");
  EXPECT_EQ(
      print(parse_schedule("blocks=7 merge=mlo reduce=last_block unroll=8").value()),
      "schedule family=simt tile=64 rows=4 unroll=8 partition=flat blocks=7 reduce=last_block "
      "merge=mlo");
}

TEST(Text, TypesOfKVAndOutFollowQUnlessNamed) {
  const Problem problem = parse_problem("q=fp16 heads=2 dim=64").value();
  EXPECT_EQ(problem.k_dtype, DType::fp16);
  EXPECT_EQ(problem.v_dtype, DType::fp16);
  EXPECT_EQ(problem.out_dtype, DType::fp16);
  const Problem mixed = parse_problem("out=fp32 kv=bf16 q=fp16 heads=2 dim=64").value();
  EXPECT_EQ(mixed.k_dtype, DType::bf16);
  EXPECT_EQ(mixed.v_dtype, DType::bf16);
  EXPECT_EQ(mixed.out_dtype, DType::fp32);
}

TEST(Text, SomeWordsOfAScheduleKeepTheRestOfTheBase) {
  Schedule base;
  base.warps = 8;
  base.splits = 3;
  Schedule expected = base;
  expected.splits = 7;
  EXPECT_EQ(parse_schedule("splits=7", base).value(), expected);
  expected = base;
  expected.partition = Partition::strided;
  EXPECT_EQ(parse_schedule("partition=strided", base).value(), expected);
  EXPECT_EQ(parse_schedule("", base).value(), base);
}

TEST(Text, AWordOfTheOtherPartitionChangesThePartitionAndDropsWhatWasItsOwn) {
  Schedule flat;
  flat.partition = Partition::flat;
  flat.blocks = 64;
  Schedule fixed;
  fixed.splits = 7;
  EXPECT_EQ(parse_schedule("splits=7", flat).value(), fixed);
  EXPECT_EQ(parse_schedule("blocks=64", fixed).value(), flat);
  EXPECT_EQ(parse_schedule("partition=flat blocks=64", fixed).value(), flat);
  EXPECT_EQ(parse_schedule("partition=fixed splits=7", flat).value(), fixed);
}

}  // namespace
}  // namespace splitkv
