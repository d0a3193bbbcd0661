#include "tools/splitkv/kv_image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/dtype.hpp"
#include "compiler/text.hpp"

namespace splitkv::tool {
namespace {

struct Case {
  Problem problem;
  Inputs inputs;
  KvImage image;
};

Case make_case(const std::string& layout, const std::vector<int32_t>& kv_len) {
  const auto problem = parse_problem(
      "attention q=fp32 k=fp16 v=fp32 heads=6/3 dim=16/8 window=20 kv_layout=" + layout);
  EXPECT_TRUE(problem.ok());
  Inputs inputs = generate_inputs(*problem, kv_len, 5);
  KvImage image = lay_out(*problem, inputs, 5);
  return {*problem, std::move(inputs), std::move(image)};
}

// Every visible element of k and v is where `place(row, head, token)`, in tokens, says.
template <class Place>
void expect_tokens_at(const Case& c, const Place& place) {
  for (int64_t row = 0; row < c.inputs.batch; ++row) {
    const int32_t length = c.inputs.kv_len[row];
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t token = first_visible(c.problem, length); token < length; ++token) {
        const int64_t from = (row * 3 + head) * c.inputs.capacity + token;
        const int64_t to = place(row, head, token);
        for (int64_t d = 0; d < 16; ++d) {
          ASSERT_EQ(load_element(DType::fp16, c.image.k.data(), to * 16 + d),
                    load_element(DType::fp16, c.inputs.k.data(), from * 16 + d));
        }
        for (int64_t d = 0; d < 8; ++d) {
          ASSERT_EQ(load_element(DType::fp32, c.image.v.data(), to * 8 + d),
                    load_element(DType::fp32, c.inputs.v.data(), from * 8 + d));
        }
      }
    }
  }
}

const std::vector<int32_t> kLengths = {33, 0, 1, 19, 48};

TEST(KvImage, OfContiguousLayoutsPutsEveryTokenInItsPlace) {
  expect_tokens_at(make_case("bhtd", kLengths), [](int64_t row, int64_t head, int64_t token) {
    return (row * 3 + head) * 48 + token;
  });
  expect_tokens_at(make_case("bthd", kLengths), [](int64_t row, int64_t head, int64_t token) {
    return (row * 48 + token) * 3 + head;
  });
}

TEST(KvImage, OfPagesPutsEveryTokenWhereTheTableSays) {
  for (const int page : {1, 3, 16}) {
    const Case nhd = make_case("paged:" + std::to_string(page) + ":nhd", kLengths);
    const Case hnd = make_case("paged:" + std::to_string(page) + ":hnd", kLengths);
    const auto id = [&](const Case& c, int64_t row, int64_t token) -> int64_t {
      return c.image.page_table[row * c.image.page_table_stride + token / page];
    };
    expect_tokens_at(nhd, [&](int64_t row, int64_t head, int64_t token) {
      return (id(nhd, row, token) * page + token % page) * 3 + head;
    });
    expect_tokens_at(hnd, [&](int64_t row, int64_t head, int64_t token) {
      return (id(hnd, row, token) * 3 + head) * page + token % page;
    });
  }
}

TEST(KvImage, OfPagesPoisonsUnusedSlotsAndUnusedPages) {
  const Case c = make_case("paged:4:nhd", kLengths);
  std::set<int32_t> used;
  for (int64_t row = 0; row < c.inputs.batch; ++row) {
    const int32_t length = c.inputs.kv_len[row];
    for (int64_t slot = 0; slot < c.image.page_table_stride; ++slot) {
      const int32_t id = c.image.page_table[row * c.image.page_table_stride + slot];
      const bool seen = slot * 4 < length && (slot + 1) * 4 > first_visible(c.problem, length);
      EXPECT_EQ(id == kPoisonPage, !seen) << row << " " << slot;
      if (!seen) continue;
      EXPECT_TRUE(used.insert(id).second) << "page " << id << " is in use twice";
    }
    EXPECT_EQ(c.image.page_table[(row + 1) * c.image.page_table_stride - 1], kPoisonPage);
  }
  const int64_t pages = int64_t(c.image.v.size()) / (4 * 3 * 8 * 4);
  EXPECT_GT(pages, int64_t(used.size()));
  for (int64_t page = 0; page < pages; ++page) {
    if (used.count(int32_t(page))) continue;
    for (int64_t i = 0; i < 4 * 3 * 8; ++i) {
      EXPECT_TRUE(std::isnan(load_element(DType::fp32, c.image.v.data(), page * 96 + i)));
    }
  }
}

TEST(KvImage, ShufflesPagesBySeed) {
  const Case c = make_case("paged:1:nhd", {40});
  std::vector<int32_t> ids(c.image.page_table.begin() + 20, c.image.page_table.begin() + 40);
  EXPECT_FALSE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(lay_out(c.problem, c.inputs, 5).page_table, c.image.page_table);
  EXPECT_NE(lay_out(c.problem, c.inputs, 6).page_table, c.image.page_table);
}

TEST(KvImage, InterleavesKAndVInOneAllocation) {
  const auto problem =
      parse_problem("attention q=fp32 kv=fp16 heads=6/3 dim=16 kv_layout=paged:4:nhd");
  ASSERT_TRUE(problem.ok());
  StepForm form;
  form.interleaved = true;
  const Inputs inputs = generate_inputs(*problem, {9, 5}, 5, form);
  const KvImage image = lay_out(*problem, inputs, 5);
  EXPECT_TRUE(image.v.empty());
  EXPECT_EQ(image.k_strides, (TokenStrides{2 * 4 * 3 * 16, 16, 3 * 16}));
  EXPECT_EQ(image.v_strides, image.k_strides);
  EXPECT_EQ(image.v_at, size_t(4 * 3 * 16 * 2));
  const int64_t page = image.page_table[size_t(image.page_table_stride + 1)];
  const int64_t at = page * image.k_strides.block + 2 * 16;  // row 1, token 4, head 2
  const int64_t from = ((1 * 3 + 2) * inputs.capacity + 4) * 16;
  for (int64_t d = 0; d < 16; ++d) {
    EXPECT_EQ(load_element(DType::fp16, image.k.data(), at + d),
              load_element(DType::fp16, inputs.k.data(), from + d));
    EXPECT_EQ(load_element(DType::fp16, image.k.data() + image.v_at, at + d),
              load_element(DType::fp16, inputs.v.data(), from + d));
  }
}

TEST(KvImage, PutsInlineScalesBehindTheElementsOfTheirRow) {
  const auto problem =
      parse_problem("attention q=fp16 kv=e4m3 heads=2/2 dim=128 kv_scale=inline align=4");
  ASSERT_TRUE(problem.ok());
  const Inputs inputs = generate_inputs(*problem, {3}, 5);
  const KvImage image = lay_out(*problem, inputs, 5);
  EXPECT_EQ(image.k_strides, (TokenStrides{2 * 3 * 132, 3 * 132, 132}));
  EXPECT_TRUE(image.k_scale.empty());
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t token = 0; token < 3; ++token) {
      const std::byte* row = image.k.data() + head * image.k_strides.head + token * 132;
      EXPECT_EQ(load_element(DType::fp32, row + 128, 0), inputs.k_scale[size_t(head * 3 + token)]);
      EXPECT_EQ(row[5], inputs.k[size_t((head * 3 + token) * 128 + 5)]);
    }
  }
}

TEST(KvImage, GivesVItsOwnPagesAndListsWithoutGaps) {
  const auto problem = parse_problem(
      "attention q=fp16 kv=fp16 heads=1 dim=8 kv_layout=paged:4:nhd page_tables=separate "
      "kv_scale=token");
  ASSERT_TRUE(problem.ok());
  StepForm form;
  form.page_offsets = true;
  const Inputs inputs = generate_inputs(*problem, {9, 0, 5}, 5, form);
  const KvImage image = lay_out(*problem, inputs, 5);
  EXPECT_EQ(image.page_offset, (std::vector<int64_t>{2, 2, 0}));
  EXPECT_EQ(image.page_table.size(), 5u);
  EXPECT_NE(image.page_table, image.v_pages.table);
  EXPECT_EQ(image.k_scale_strides, (TokenStrides{4, 1, 1}));
  const int64_t page = image.v_pages.at(2, 1);
  EXPECT_EQ(image.v_scale[size_t(page * 4)], inputs.v_scale[size_t(2 * inputs.capacity + 4)]);
}

}  // namespace
}  // namespace splitkv::tool
