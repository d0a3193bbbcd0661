// Places from lengths, offsets and page tables, and attention over what was appended.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/text.hpp"
#include "tests/numeric/append_case.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv {
namespace {

using testing_support::AppendCase;
using testing_support::AppendForm;
using testing_support::test_device;
using testing_support::TokenPlace;
using testing_support::TokenPlaces;

bool on_cpu() { return test_device().rfind("cpu", 0) == 0; }

// A step's rows: lengths after it, and how many tokens each brings.
struct Step {
  std::vector<int32_t> kv_len, tokens;
};

struct Tables {
  std::vector<std::vector<int32_t>> pages, v_pages;  // of each row
};

TokenPlaces places_of(const AppendCase& c, const Step& step,
                      const std::vector<std::vector<int32_t>>& pages) {
  const int64_t page_size = c.problem().kv_layout.page_size;
  TokenPlaces places;
  for (size_t row = 0; row < step.kv_len.size(); ++row) {
    for (int32_t i = 0; i < step.tokens[row]; ++i) {
      const int64_t position = int64_t(step.kv_len[row]) - step.tokens[row] + i;
      if (position < 0) {
        places.push_back({});
      } else if (page_size == 0) {
        places.push_back({int64_t(row), position});
      } else {
        const int32_t page = pages[row][size_t(position / page_size)];
        places.push_back(page < 0 ? TokenPlace{} : TokenPlace{page, position % page_size});
      }
    }
  }
  return places;
}

std::vector<int32_t> offsets_of(const Step& step) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t tokens : step.tokens) offsets.push_back(offsets.back() + tokens);
  return offsets;
}

// A padded table, or lists found through offsets in reverse order.
void set_pages(AppendCase& c, const std::vector<std::vector<int32_t>>& pages, bool of_v,
               bool by_offset) {
  std::vector<int32_t> table;
  std::vector<int64_t> offset(pages.size());
  const size_t stride = 7;
  if (by_offset) {
    for (size_t row = pages.size(); row-- > 0;) {
      offset[row] = int64_t(table.size());
      table.insert(table.end(), pages[row].begin(), pages[row].end());
    }
  } else {
    table.assign(pages.size() * stride, 0x7fffffff);
    for (size_t row = 0; row < pages.size(); ++row) {
      std::copy(pages[row].begin(), pages[row].end(), table.begin() + int64_t(row * stride));
    }
  }
  (of_v ? c.args.v_page_table : c.args.page_table) = c.place(table);
  if (by_offset) (of_v ? c.args.v_page_offset : c.args.page_offset) = c.place(offset);
  if (!by_offset) (of_v ? c.args.v_page_table_stride : c.args.page_table_stride) = int64_t(stride);
}

AppendForm form_of(const std::string& words, int64_t tokens) {
  AppendForm form;
  form.problem = "q=bf16 heads=4/2 dim=64 align=4 " + words;
  form.places = "rows";
  form.tokens = tokens;
  form.blocks = 24;
  form.capacity = 40;
  return form;
}

const Step kRagged = {{17, 0, 5, 33, 40, 1, 16}, {2, 0, 5, 20, 1, 1, 17}};  // the last one at -1
const Tables kTables = {
    {{3, 9}, {}, {5}, {0, 7, 1}, {2, 4, 6}, {8}, {20}},
    {{13, 19}, {}, {15}, {10, 17, 11}, {12, 14, 16}, {18}, {21}},
};

TEST(AppendRows, RaggedRowsEndAtTheirLengths) {
  for (const char* words : {"kv=bf16 kv_layout=bhtd", "kv=e4m3 kv_scale=token kv_layout=bthd",
                            "kv=int8 kv_scale=inline kv_layout=paged:16:nhd",
                            "kv=e5m2 kv_scale=head "
                            "kv_layout=paged:16:hnd page_tables=separate"}) {
    for (const bool wide : {false, true}) {
      const AppendForm form = form_of(words, 46 + 3);  // three tokens are of no row
      SCOPED_TRACE(fmt::format("{} wide={}", form.problem, wide));
      AppendCase c(form);
      c.args.batch = int64_t(kRagged.kv_len.size());
      c.args.q_offset = c.place(offsets_of(kRagged));
      if (wide) {
        c.args.kv_len = c.place(std::vector<int64_t>(kRagged.kv_len.begin(), kRagged.kv_len.end()));
        c.args.kv_len_is_int64 = 1;
      } else {
        c.args.kv_len = c.place(kRagged.kv_len);
      }
      if (is_paged(c.problem())) set_pages(c, kTables.pages, false, wide);
      const bool own = c.problem().separate_tables;
      if (own) set_pages(c, kTables.v_pages, true, !wide);
      ASSERT_EQ(c.run(), "");
      const TokenPlaces k = places_of(c, kRagged, kTables.pages);
      c.expect_written(k, own ? places_of(c, kRagged, kTables.v_pages) : k);
    }
  }
}

TEST(AppendRows, WithoutOffsetsEveryRowBringsAsMany) {
  for (const int32_t each : {1, 3}) {
    for (const bool host : {false, true}) {
      const AppendForm form = form_of("kv=bf16 kv_layout=paged:16:nhd", 4 * each);
      AppendCase c(form);
      const Step step = {host ? std::vector<int32_t>(4, 18) : std::vector<int32_t>{18, 2, 31, 16},
                         std::vector<int32_t>(4, each)};
      const std::vector<std::vector<int32_t>> pages = {{3, 9}, {0, 5}, {8, 7}, {1, 2}};
      c.args.batch = 4;
      if (host) c.args.kv_len_host = 18;
      if (!host) c.args.kv_len = c.place(step.kv_len);
      set_pages(c, pages, false, false);
      ASSERT_EQ(c.run(), "");
      c.expect_written(places_of(c, step, pages));
    }
  }
}

// Offsets as captured graphs leave them: rows that are not there have -1.
TEST(AppendRows, OffsetsOfMinusOneBringNothing) {
  const AppendForm form = form_of("kv=bf16 kv_layout=bhtd", 6);
  AppendCase c(form);
  c.args.batch = 4;
  c.args.q_offset = c.place(std::vector<int32_t>{0, 2, 3, -1, -1});
  c.args.kv_len = c.place(std::vector<int32_t>{9, 1, 7, 30});
  ASSERT_EQ(c.run(), "");
  c.expect_written({{0, 7}, {0, 8}, {1, 0}, {}, {}, {}});
}

TEST(AppendRows, APageBelowZeroIsNone) {
  const AppendForm form = form_of("kv=bf16 kv_layout=paged:16:nhd", 3);
  AppendCase c(form);
  const Step step = {{17, 3}, {2, 1}};
  const std::vector<std::vector<int32_t>> pages = {{4, -1}, {6}};
  c.args.batch = 2;
  c.args.q_offset = c.place(offsets_of(step));
  c.args.kv_len = c.place(step.kv_len);
  set_pages(c, pages, false, false);
  ASSERT_EQ(c.run(), "");
  c.expect_written(places_of(c, step, pages));
}

TEST(AppendRows, ManyRowsAreFoundWhereverTheyAre) {
  Step step;
  std::vector<std::vector<int32_t>> pages;
  for (int row = 0; row < 150; ++row) {
    step.tokens.push_back(row % 3 == 0 ? 0 : row % 7 == 0 ? 9 : 1);
    step.kv_len.push_back(step.tokens.back() + row % 5);
    pages.push_back({row});
  }
  AppendForm form = form_of("kv=bf16 kv_layout=paged:16:nhd", offsets_of(step).back());
  form.blocks = 150;
  AppendCase c(form);
  c.args.batch = 150;
  c.args.q_offset = c.place(offsets_of(step));
  c.args.kv_len = c.place(step.kv_len);
  set_pages(c, pages, false, true);
  ASSERT_EQ(c.run(), "");
  c.expect_written(places_of(c, step, pages));
}

TEST(AppendRows, BadPagesAndLengthsAreToldAndNotWritten) {
  for (const bool page : {true, false}) {
    const AppendForm form = form_of("kv=e4m3 kv_scale=token kv_layout=paged:16:nhd checked=on", 5);
    AppendCase c(form);
    const Step step = {{17, 35}, {2, 3}};
    c.args.batch = 2;
    c.args.q_offset = c.place(offsets_of(step));
    c.args.kv_len = c.place(step.kv_len);
    set_pages(c, {{4, page ? 700 : 9}, {6, 1, 2}}, false, false);
    c.args.page_count = 24;
    if (!page) c.args.kv_capacity = 33;
    const std::string failure = c.run();
    if (page) {
      c.expect_written({{4, 15}, {}, {2, 0}, {2, 1}, {2, 2}});
    } else {
      c.expect_written({{4, 15}, {9, 0}, {2, 0}, {}, {}});
    }
    const std::string polled = c.poll();
    const char* wanted = page ? "row=0 slot=1 of a page table holds id 700" : "kv_len[1]=35";
    EXPECT_NE(polled.find(wanted), std::string::npos) << polled;
    EXPECT_EQ(failure, on_cpu() ? polled : "");
  }
}

// ---- attention over it --------------------------------------------------------------------------

// One decode step's out by its definition, in double precision, over keys and values `read`.
template <class Read>
std::vector<double> attention(const Problem& problem, const std::vector<float>& q, int64_t keys,
                              const Read& read) {
  std::vector<double> out;
  for (int64_t head = 0; head < problem.q_heads; ++head) {
    const int64_t kv_head = head / group_size(problem);
    std::vector<double> weights;
    double most = -INFINITY, sum = 0;
    for (int64_t key = 0; key < keys; ++key) {
      double score = 0;
      for (int64_t i = 0; i < problem.dim_qk; ++i) {
        score += q[size_t(head * problem.dim_qk + i)] * read(false, key, kv_head, i);
      }
      weights.push_back(score * scale_of(problem));
      most = std::max(most, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (int64_t i = 0; i < problem.dim_v; ++i) {
      double value = 0;
      for (int64_t key = 0; key < keys; ++key) {
        value += weights[size_t(key)] / sum * read(true, key, kv_head, i);
      }
      out.push_back(value);
    }
  }
  return out;
}

// Runs a kernel of the case's problem over its cache: one row, all pages in one list.
std::vector<float> attend(AppendCase& c, const std::vector<float>& q, int32_t keys,
                          const int32_t* pages) {
  const Kernel kernel = c.runtime().prepare(test_device(), print(c.problem()), {1, keys});
  const Problem& problem = c.problem();
  const auto reserve = [&](size_t bytes) { return std::move(*c.memory().allocate(bytes)); };
  const auto sizes = kernel.sizes(1);
  const tool::Buffer out = reserve(size_t(problem.q_heads * problem.dim_v) * 4);
  const tool::Buffer scratch = reserve(sizes.scratch_bytes), state = reserve(sizes.state_bytes);
  kernel.state_init(state.data(), sizes.state_bytes);
  auto args = sized<splitkv_args>();
  args.batch = 1;
  args.q = c.place(q);
  args.out = out.data();
  args.kv_len_host = keys;
  args.page_table = pages;
  args.scratch = scratch.data();
  args.scratch_bytes = sizes.scratch_bytes;
  args.state = state.data();
  args.state_bytes = sizes.state_bytes;
  kernel.run(kernel.bind(c.tensors()), args);
  std::vector<float> values(size_t(problem.q_heads * problem.dim_v));
  EXPECT_TRUE(c.memory().copy_out(values.data(), out, out.bytes()).ok());
  return values;
}

double relative_error(const std::vector<float>& out, const std::vector<double>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (out[i] - wanted[i]) * (out[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

TEST(AppendRows, AttentionReadsWhatWasAppended) {
  struct Stored {
    const char* words;
    double of_given;  // error against attention over the numbers as they were given
  };
  for (const Stored& stored : {Stored{"kv=fp32", 1e-5},
                               {"kv=bf16", 1e-2},
                               {"kv=e4m3 kv_scale=token", 0.15},
                               {"kv=e5m2 kv_scale=inline", 0.3},
                               {"kv=int8 kv_scale=token", 2e-2},
                               {"kv=int8 kv_scale=inline", 2e-2},
                               {"kv=e4m3 kv_scale=head", 0.15}}) {
    constexpr int32_t kKeys = 41;
    AppendForm form;
    form.problem =
        fmt::format("q=fp32 heads=4/2 dim=64 align=4 kv_layout=paged:16:nhd {}", stored.words);
    form.type = "fp32";
    form.places = "rows";
    form.tokens = kKeys;
    SCOPED_TRACE(form.problem);
    AppendCase c(form);
    for (size_t i = 0; i < c.k_new.size(); ++i) {
      c.k_new[i] = std::sin(float(i) * 0.37f) * 1.5f;
      c.v_new[i] = std::cos(float(i) * 0.73f);
    }
    const std::vector<int32_t> pages = {2, 0, 3};
    c.args.batch = 1;
    c.args.kv_len_host = kKeys;
    c.args.page_table = c.place(pages);
    c.args.page_table_stride = 3;
    ASSERT_EQ(c.run(), "");
    c.expect_written(places_of(c, {{kKeys}, {kKeys}}, {pages}));

    std::vector<float> q;
    for (int i = 0; i < 4 * 64; ++i) q.push_back(std::sin(float(i) * 1.7f));
    const std::vector<float> out = attend(c, q, kKeys, c.args.page_table);
    const auto stored_values = [&](bool of_v, int64_t key, int64_t head, int64_t i) {
      return c.read(of_v, {pages[size_t(key / 16)], key % 16}, head, i);
    };
    const auto given_values = [&](bool of_v, int64_t key, int64_t head, int64_t i) {
      return double((of_v ? c.v_new : c.k_new)[size_t((key * 2 + head) * 64 + i)]);
    };
    const Problem& problem = c.problem();
    EXPECT_LE(relative_error(out, attention(problem, q, kKeys, stored_values)), 1e-4);
    EXPECT_LE(relative_error(out, attention(problem, q, kKeys, given_values)), stored.of_given);
  }
}

}  // namespace
}  // namespace splitkv
