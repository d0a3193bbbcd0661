// Masks, positions, scores and scales, each against the reference where it is easy to get wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/numeric/contract.hpp"

namespace splitkv {
namespace {

using testing_support::expect_right;
using testing_support::expect_right_on;
using testing_support::Judged;
using testing_support::kSchedules;
using testing_support::problem_of;
using testing_support::schedules;
using testing_support::set_element;

// Parents -1, 0, 0, 1, 2: each query sees its ancestors and itself.
const std::vector<int> kFiveNodes = {0b00001, 0b00011, 0b00101, 0b01011, 0b10101};

void plant(tool::Inputs& inputs, int64_t row, const std::vector<int>& bits) {
  for (size_t query = 0; query < bits.size(); ++query) {
    inputs.tree[size_t(row) * bits.size() + query] = std::byte(bits[query]);
  }
}

TEST(TreeMask, IsAppliedInEveryTileOfEveryRow) {
  const std::string text = "q=bf16 heads=4/2 dim=64 query_len=5 mask=tree lse=natural";
  const Problem problem = problem_of(text);
  tool::Inputs inputs = tool::generate_inputs(problem, {5, 132, 133, 134}, 7);
  plant(inputs, 0, kFiveNodes);
  plant(inputs, 2, kFiveNodes);  // the others have random trees
  for (const char* tile : {"64", "128", "8"}) {
    for (const char* schedule : schedules()) {
      expect_right_on(text, fmt::format("{} tile={}", schedule, tile), inputs);
    }
  }
}

// The last piece holds the four drafts only, of which query 0 sees one.
TEST(TreeMask, ATileOfWhichAQuerySeesNothingGivesNoNaN) {
  const std::string text = "q=fp32 heads=2/1 dim=64 query_len=4 mask=tree lse=natural";
  const Problem problem = problem_of(text);
  tool::Inputs inputs = tool::generate_inputs(problem, {68}, 7);
  plant(inputs, 0, {0b0001, 0b0010, 0b0100, 0b1000});
  expect_right_on(text, "partition=fixed splits=2 tile=64", inputs);
  plant(inputs, 0, {0, 0b0010, 0, 0b1000});  // and of which some see nothing at all
  expect_right_on(text, "partition=fixed splits=2 tile=64", inputs);
  expect_right_on(text, "partition=strided splits=2 tile=64 reduce=last_block", inputs);
}

TEST(TreeMask, TakesUpTo64Bits) {
  for (const int queries : {8, 9, 33, 64}) {
    expect_right(fmt::format("q=fp32 heads=2/1 dim=16 query_len={} mask=tree lse=natural", queries),
                 "partition=fixed splits=3 tile=16", {100, 64, 10}, 2);
  }
}

TEST(Window, IsEachQuerysOwn) {
  for (const int window : {1, 128}) {
    for (const char* mask : {"causal", "none"}) {
      for (const char* schedule : schedules()) {
        expect_right(
            fmt::format("q=fp32 heads=2/1 dim=32 query_len=3 mask={} window={} lse=natural", mask,
                        window),
            schedule, {127, 128, 129, 300, 2, 0});
      }
    }
  }
}

// V of key i is one-hot at dim i: exactly the newest keys show.
TEST(Window, OneHotValuesTellWhichKeysContribute) {
  for (const int window : {1, 16, 100}) {
    const std::string text = fmt::format("q=fp32 heads=1 dim=8/128 window={} lse=natural", window);
    const Problem problem = problem_of(text);
    tool::Inputs inputs = tool::generate_inputs(problem, {120}, 1);
    for (int64_t key = 0; key < 120; ++key) {
      for (int64_t d = 0; d < 128; ++d) {
        set_element(inputs.v, DType::fp32, key * 128 + d, d == key ? 1.0f : 0.0f);
      }
    }
    for (const char* schedule : schedules()) {
      const Judged judged = expect_right_on(text, schedule, inputs);
      ASSERT_EQ(judged.execution.out.size(), 128u);
      for (int key = 0; key < 120; ++key) {
        EXPECT_EQ(judged.execution.out[size_t(key)] > 0, key >= 120 - window) << key;
      }
    }
  }
}

TEST(Chunks, BeginAtTheirMultiples) {
  for (const int chunk : {1, 16, 100, 128}) {
    for (const char* schedule : schedules()) {
      expect_right(fmt::format("q=fp32 heads=2/1 dim=32 query_len=4 chunk={} lse=natural", chunk),
                   schedule, {127, 128, 129, 300, 2, 0});
    }
  }
}

// Half of the keys are masked and hold large values, which nothing of the softcap lets through.
TEST(Softcap, ComesBeforeTheMask) {
  const std::string text =
      "q=fp32 heads=2/1 dim=32 scale=0.5 softcap=1 where=key_pos%2==0 lse=natural";
  const Problem problem = problem_of(text);
  tool::Inputs inputs = tool::generate_inputs(problem, {90}, 1);
  for (int64_t key = 1; key < 90; key += 2) {
    for (int64_t d = 0; d < 32; ++d) set_element(inputs.v, DType::fp32, key * 32 + d, 1e4f);
  }
  for (const char* schedule : schedules()) {
    const Judged judged = expect_right_on(text, schedule, inputs);
    for (const float value : judged.execution.out) EXPECT_LT(std::abs(value), 10);
  }
}

TEST(Positions, OfStripedShardsKeepGlobalCausality) {
  for (const int step : {1, 3, 4}) {
    for (int rank = 0; rank < step; ++rank) {
      for (const char* words : {"", "window=20", "chunk=32", "alibi=on", "where=key_pos%2==0"}) {
        tool::StepForm form;
        form.pos0 = rank;
        form.pos_step = step;
        expect_right(fmt::format("q=fp32 heads=12/4 dim=16 query_len=3 positions=strided "
                                 "lse=natural {}",
                                 words),
                     "partition=fixed splits=3 tile=16", {1, 3, 4, 100, 0}, 2, form);
      }
    }
  }
}

TEST(Bias, MayBeSharedByHeadsAndQueries) {
  for (const bool heads : {false, true}) {
    for (const bool queries : {false, true}) {
      for (const char* type : {"fp16", "fp32"}) {
        tool::StepForm form;
        form.bias_for_all_heads = heads;
        form.bias_for_all_queries = queries;
        expect_right(fmt::format("q=bf16 heads=4/2 dim=64 query_len=3 bias={} lse=natural", type),
                     "partition=flat blocks=5", {100, 3, 0}, 2, form);
      }
    }
  }
}

TEST(Scales, AreAppliedWhateverTheyBelongTo) {
  for (const char* type : {"e4m3", "e5m2", "int8", "fp16"}) {
    for (const char* scale : {"tensor", "head", "token", "inline"}) {
      for (const char* layout : {"bthd", "paged:16:hnd"}) {
        for (const char* lse : {"none", "natural"}) {
          const std::string words = fmt::format(
              "q=fp16 kv={} heads=4/2 dim=128 kv_layout={} lse={} "
              "align=4",
              type, layout, lse);
          expect_right(words + " kv_scale=" + scale, "partition=fixed splits=3", {100, 0, 17});
        }
      }
    }
  }
}

TEST(Scales, ChangeTheResultByThemselves) {
  for (const char* type : {"e4m3", "e5m2"}) {
    const std::string text =
        fmt::format("q=fp16 kv={} kv_scale=tensor heads=2/1 dim=64 lse=natural", type);
    const Problem problem = problem_of(text);
    tool::Inputs inputs = tool::generate_inputs(problem, {100}, 1);
    inputs.k_scale = {1};
    inputs.v_scale = {1};
    // Elements of order 1, so that a scale of 1 is a sane run.
    for (auto* tensor : {&inputs.k, &inputs.v}) {
      for (int64_t i = 0; i < 100 * 64; ++i) {
        set_element(*tensor, problem.k_dtype, i, float(std::sin(double(i) * 0.7)));
      }
    }
    const Judged plain = expect_right_on(text, kSchedules[1], inputs);
    inputs.k_scale = {0.25f};
    inputs.v_scale = {0.5f};
    const Judged scaled = expect_right_on(text, kSchedules[1], inputs);
    EXPECT_NE(plain.execution.out, scaled.execution.out);
    EXPECT_NE(plain.execution.lse, scaled.execution.lse);
  }
}

TEST(Latent, AttentionReadsVFromKAndQFromTwoTensors) {
  for (const char* words : {"", "q_rope=64", "kv_scale=token kv=e4m3", "kv_scale=inline kv=e4m3",
                            "query_len=2", "kv_layout=paged:64:nhd"}) {
    const std::string kv = std::string(words).find("kv=") == std::string::npos ? "kv=bf16 " : "";
    expect_right(
        fmt::format("q=bf16 {}heads=16/1 dim=576/512 v_in_k=on scale=0.0721 lse=natural {}", kv,
                    words),
        "partition=fixed splits=3", {130, 0, 33});
  }
}

TEST(Numbers, OfVeryLargeInputsStayRight) {
  const std::string text = "q=bf16 heads=1 dim=64 lse=natural";
  const Problem problem = problem_of(text);
  for (const int keys : {1, 2}) {
    tool::Inputs inputs = tool::generate_inputs(problem, {keys}, 1);
    for (int64_t i = 0; i < 64; ++i) set_element(inputs.q, DType::bf16, i, 133120);
    for (int64_t i = 0; i < 64 * keys; ++i) set_element(inputs.k, DType::bf16, i, 133120);
    for (const char* schedule : schedules()) {
      const Judged judged = expect_right_on(text, schedule, inputs);
      for (const float value : judged.execution.out) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Cache, OfInterleavedKAndVAndListsWithoutGaps) {
  for (const char* layout : {"bhtd", "bthd", "paged:16:nhd", "paged:3:hnd"}) {
    for (const bool separate : {false, true}) {
      if (separate && std::string(layout).front() != 'p') continue;
      tool::StepForm form;
      form.interleaved = true;
      form.page_offsets = true;
      expect_right(fmt::format("q=bf16 heads=4/2 dim=64 kv_layout={} page_tables={} lse=natural",
                               layout, separate ? "separate" : "shared"),
                   "partition=fixed splits=3", {100, 0, 17, 16}, 2, form);
    }
  }
}

}  // namespace
}  // namespace splitkv
