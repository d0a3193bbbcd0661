// The contracts of docs/design.md, one by one, on whichever device the numeric tests run. Inputs
// are poisoned with NaN outside every row's keys, outputs and scratch before every run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/numeric/contract.hpp"

namespace splitkv {
namespace {

using testing_support::expect_right;
using testing_support::Judged;
using testing_support::problem_of;
using testing_support::run_and_judge;
using testing_support::schedules;
using testing_support::test_device;

TEST(EmptyRows, AreZeroWithAnLseOfMinusInfinityUnderEverySchedule) {
  for (const char* type : {"fp32", "fp16", "bf16"}) {
    for (const char* schedule : schedules()) {
      for (const char* merge : {"mlo", "lse"}) {
        const std::string text =
            fmt::format("q={} heads=4/2 dim=64 lse=natural merge={}", type, merge);
        const Judged judged = expect_right(text, schedule, {0, 1, 5, 0});
        ASSERT_EQ(judged.execution.lse.size(), 16u);
        for (int head = 0; head < 4; ++head) {
          for (int row : {0, 3}) {
            EXPECT_EQ(judged.execution.lse[size_t(row * 4 + head)],
                      -std::numeric_limits<float>::infinity());
            for (int d = 0; d < 64; ++d) {
              const float value = judged.execution.out[size_t((row * 4 + head) * 64 + d)];
              EXPECT_EQ(value, 0.0f);
              EXPECT_FALSE(std::signbit(value));
            }
          }
        }
      }
    }
  }
}

TEST(EmptyRows, AGraphBatchOf64WithOneRealRowWritesThe63Others) {
  std::vector<int32_t> lengths(64, 0);
  lengths[17] = 300;
  for (const char* schedule : schedules())
    expect_right("q=bf16 heads=8/2 dim=64", schedule, lengths);
}

// One tile: of the blocks of a cluster one has keys, and what the others bring changes no bit.
TEST(EmptyPieces, OfAClusterChangeNoBit) {
  if (!testing_support::has_clusters(testing_support::test_target())) {
    GTEST_SKIP() << test_device() << " has no clusters";
  }
  for (const char* words : {"q=bf16 heads=4/2 dim=64", "q=fp32 heads=4/2 dim=46 align=8",
                            "q=bf16 heads=4/2 dim=64 out=partial"}) {
    for (const char* merge : {"mlo", "lse"}) {
      const std::string text = fmt::format("{} lse=natural merge={}", words, merge);
      const auto run = [&](const char* schedule) {
        return expect_right(text, schedule, {64, 1, 0, 50}).execution;
      };
      const tool::Execution alone = run("tile=64 partition=fixed splits=1");
      for (const char* partition : {"fixed", "strided"}) {
        for (const int clusters : {1, 3}) {
          const tool::Execution joined =
              run(fmt::format("tile=64 partition={} splits={} reduce=cluster cluster=4", partition,
                              4 * clusters)
                      .c_str());
          EXPECT_EQ(alone.out, joined.out);
          EXPECT_EQ(alone.lse, joined.lse);
          EXPECT_EQ(alone.partial_m, joined.partial_m);
          EXPECT_EQ(alone.partial_l, joined.partial_l);
        }
      }
    }
  }
}

TEST(Tails, EveryLengthFrom1To300) {
  std::vector<int32_t> lengths;
  for (int32_t length = 1; length <= 300; ++length) lengths.push_back(length);
  for (const char* layout : {"bhtd", "bthd", "paged:16:nhd"}) {
    for (const char* schedule : schedules()) {
      expect_right(fmt::format("q=fp16 heads=2/1 dim=64 kv_layout={} lse=natural", layout),
                   schedule, lengths);
    }
  }
}

TEST(Pages, AnyPageSizeAtItsEdges) {
  for (int page : {1, 2, 3, 16, 19, 48, 64, 96, 256, 784, 1056}) {
    for (const char* order : {"nhd", "hnd"}) {
      expect_right(
          fmt::format("q=bf16 heads=4/2 dim=64 kv_layout=paged:{}:{} lse=natural", page, order),
          "partition=flat blocks=5 reduce=last_block", {1, page - 1, page, page + 1, 2 * page + 3});
    }
  }
}

TEST(Groups, AnyGroupSize) {
  for (int group :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 32, 40, 64, 71, 128}) {
    for (int kv_heads : {1, 3}) {
      for (int queries : {1, 4}) {
        expect_right(fmt::format("q=bf16 heads={}/{} dim=64 query_len={} lse=natural",
                                 group * kv_heads, kv_heads, queries),
                     "partition=fixed splits=3 reduce=kernel", {130, 33});
      }
    }
  }
}

TEST(Dims, EveryMultipleOf8UpTo256AndUnequalOnes) {
  for (int dim = 8; dim <= 256; dim += 8) {
    expect_right(fmt::format("q=fp32 heads=3/1 dim={} lse=natural", dim),
                 "partition=strided splits=3 reduce=last_block", {150});
  }
  for (const char* dims : {"192/128", "8/256", "256/8", "40/72", "320/256", "576/512", "46 align=4",
                           "320", "512", "10/14 align=4"}) {
    expect_right(fmt::format("q=bf16 heads=3/1 dim={} lse=natural", dims),
                 "partition=fixed splits=4 reduce=kernel", {150, 7});
  }
}

// V of key i is one-hot at dim i % dim in the reference inputs of this test only through its
// values: the reference sees exactly `window` keys, so one key too many or few is far outside the
// tolerance.
TEST(Window, KeepsExactlyTheNewestKeys) {
  for (int window : {1, 127, 128, 129, 1000, 2000}) {
    for (const char* schedule : schedules()) {
      expect_right(fmt::format("q=fp32 heads=2/1 dim=64 window={} lse=natural", window), schedule,
                   {127, 128, 129, 1000, 1, 0});
    }
  }
}

TEST(Window, PagesWhollyBeforeItAreNeverLookedUp) {
  // Their slots in the table hold an id that no page has.
  for (const char* schedule : schedules()) {
    expect_right("q=bf16 heads=2/1 dim=64 kv_layout=paged:16:nhd window=128 lse=natural", schedule,
                 {1000, 130, 5});
  }
}

TEST(Softcap, IsAppliedAfterTheScale) {
  expect_right("q=fp32 heads=2/1 dim=64 scale=3 softcap=1 lse=natural", "partition=fixed splits=2",
               {100, 3});
  expect_right("q=bf16 heads=2/1 dim=64 softcap=30 window=17 lse=base2", "partition=fixed splits=2",
               {100, 3});
}

// An option that changes the mathematics changes the output.
TEST(Options, AreHonouredNotIgnored) {
  const std::string plain = "q=fp32 heads=2/1 dim=64 lse=natural";
  const auto out = [&](const std::string& words) {
    return expect_right(plain + words, "partition=fixed splits=2", {100}).execution;
  };
  const auto base = out("");
  for (const char* words :
       {" scale=0.5", " softcap=0.5", " window=50", " alibi=on", " bias=fp32", " sink=on",
        " chunk=64", " score=score*2", " where=key_pos%2==0", " kv_scale=head", " kv_scale=token",
        " kv_scale=inline align=4", " positions=strided window=50"}) {
    EXPECT_NE(base.out, out(words).out) << words;
  }
  Problem base2 = problem_of(plain);
  base2.lse = LseOutput::base2;
  const Judged judged = run_and_judge(test_device(), base2, "partition=fixed splits=2", {100}, 1);
  ASSERT_EQ(judged.failure, "");
  for (size_t i = 0; i < base.lse.size(); ++i) {
    EXPECT_NEAR(judged.execution.lse[i], base.lse[i] * std::log2(std::exp(1.0f)), 1e-4);
  }
}

TEST(Merge, SingleKvHeadWithSeveralSplits) {
  for (const char* heads : {"4/1", "1/1"}) {
    for (int splits : {2, 3}) {
      expect_right(fmt::format("q=bf16 heads={} dim=128 lse=natural", heads),
                   fmt::format("partition=fixed splits={} reduce=kernel", splits), {777});
    }
  }
}

TEST(Merge, BothVariantsAgreeOnLargeLogits) {
  for (const char* merge : {"mlo", "lse"}) {
    expect_right(fmt::format("q=fp32 heads=4/4 dim=64 scale=40 lse=natural merge={}", merge),
                 "partition=fixed splits=64 reduce=kernel", {400});
  }
}

// All scores are near 512 and near each other, so that every key counts: an fp32 score would be off
// by an ulp of 512, 6e-5, and the output by more than the 1e-5 allowed.
TEST(Accuracy, Fp32HoldsForLargeScoresThatAreNearlyEqual) {
  const Problem problem = problem_of("q=fp32 heads=4/2 dim=64 lse=natural");
  tool::Inputs inputs = tool::generate_inputs(problem, {400, 37}, 5);
  const auto shift = [](std::vector<std::byte>& bytes, float factor) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, &bytes[at], sizeof(float));
      value = 8 + factor * value;  // NaN stays poison
      std::memcpy(&bytes[at], &value, sizeof(float));
    }
  };
  shift(inputs.q, 0.01f);
  shift(inputs.k, 0.01f);
  for (const char* schedule : schedules()) {
    for (const char* merge : {"mlo", "lse"}) {
      SCOPED_TRACE(std::string(schedule) + " merge=" + merge);
      const Judged judged = testing_support::judge_inputs(
          test_device(), problem, std::string(schedule) + " merge=" + merge, inputs, 5);
      EXPECT_EQ(judged.failure, "");
      EXPECT_TRUE(judged.accuracy.out_ok)
          << judged.accuracy.out_relative_l2 << " above " << judged.accuracy.out_limit;
      EXPECT_TRUE(judged.accuracy.lse_ok) << judged.accuracy.lse_error;
    }
  }
}

// Far beyond what a model brings: the largest score takes all the weight, and nothing is lost or
// NaN.
TEST(Accuracy, HugeScoresStayFinite) {
  for (const char* scale : {"1e6", "1e9", "1e12", "-1e12"}) {
    for (const char* type : {"fp32", "bf16"}) {
      for (const char* merge : {"mlo", "lse"}) {
        expect_right(
            fmt::format("q={} heads=2 dim=64 scale={} lse=natural merge={}", type, scale, merge),
            "partition=fixed splits=3 tile=32", {100, 1, 37});
      }
    }
  }
}

TEST(Growth, EveryLengthOfAGrowingSequence) {
  // The library's own choice of schedule, made once, serves every length.
  std::vector<int32_t> lengths;
  for (int32_t length = 1; length <= 2000; length += 13) lengths.push_back(length);
  expect_right("q=bf16 heads=4/1 dim=64 kv_layout=paged:16:nhd lse=natural", "", lengths);
}

TEST(Grid, BatchesBeyond65535) {
  for (size_t batch : {65535, 65536, 70000}) {
    std::vector<int32_t> lengths(batch);
    for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = int32_t(i % 4);
    for (const char* schedule : {"partition=fixed splits=2 reduce=kernel tile=8",
                                 "partition=flat blocks=99 reduce=last_block tile=8"}) {
      expect_right("q=bf16 heads=1/1 dim=64", schedule, lengths);
    }
  }
}

}  // namespace
}  // namespace splitkv
