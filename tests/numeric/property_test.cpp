// Random legal (problem, schedule, lengths) triples against the fp64 reference. A case is named by
// its number: SPLITKV_PROPERTY_FIRST and SPLITKV_PROPERTY_CASES choose which are drawn.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <span>

#include "compiler/merge.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/numeric/test_device.hpp"
#include "tools/reference/attention.hpp"
#include "tools/splitkv/partials.hpp"

namespace splitkv {
namespace {

using testing_support::test_device;
using testing_support::test_target;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, int(choices.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr auto types = {DType::fp32, DType::fp16, DType::bf16};

KvLayout draw_layout(Draw& draw) {
  KvLayout layout;
  layout.kind = draw.of({KvLayoutKind::bhtd, KvLayoutKind::bthd, KvLayoutKind::paged});
  if (layout.kind == KvLayoutKind::paged) {
    layout.page_size = draw.of({1, 2, 3, 16, 19, 48, 64, 96, 256, 784});
    layout.page_order = draw.of({PageOrder::nhd, PageOrder::hnd});
  }
  return layout;
}

Problem draw_problem(Draw& draw) {
  Problem problem;
  problem.q_dtype = draw.of(types);
  problem.k_dtype = draw.one_in(3) ? draw.of(types) : problem.q_dtype;
  problem.v_dtype = draw.one_in(4) ? draw.of(types) : problem.k_dtype;
  problem.out_dtype = draw.one_in(4) ? draw.of(types) : problem.q_dtype;
  problem.kv_heads = draw.between(1, 3);
  problem.q_heads = problem.kv_heads * draw.of({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 71});
  problem.dim_qk = 8 * draw.between(1, draw.one_in(4) ? 32 : 16);
  problem.dim_v = draw.one_in(3) ? 8 * draw.between(1, 32) : problem.dim_qk;
  problem.kv_layout = draw_layout(draw);
  if (draw.one_in(3)) problem.scale = draw.of({0.05, 0.25, 1.0, -0.125});
  if (draw.one_in(3)) problem.softcap = draw.of({1.0, 30.0, 50.0});
  if (draw.one_in(3)) problem.window = draw.of({1, 2, 17, 64, 128, 1000});
  problem.lse = draw.of({LseOutput::none, LseOutput::natural, LseOutput::base2});
  problem.merge = draw.of({Merge::automatic, Merge::mlo, Merge::lse});
  problem.deterministic = draw.one_in(5);
  problem.align = draw.one_in(3) ? draw.of({4, 8}) : 16;
  return problem;
}

Schedule draw_schedule(Draw& draw, const Target& target) {
  Schedule schedule;
  const bool cuda = target.kind == TargetKind::cuda;
  schedule.family = cuda ? Family::simt : Family::vector;
  schedule.tile_kv = draw.of({8, 16, 24, 32, 64, 128});
  schedule.rows = draw.between(1, 8);
  schedule.warps = cuda ? draw.of({1, 2, 3, 4, 8}) : 1;
  schedule.unroll = draw.of({1, 2, 4, 8});
  schedule.partition = draw.of({Partition::fixed, Partition::flat, Partition::strided});
  if (schedule.partition == Partition::flat) {
    schedule.blocks = draw.between(1, 40);
  } else {
    schedule.splits = draw.between(1, 17);
  }
  schedule.reduce = draw.of({Reduce::kernel, Reduce::last_block});
  schedule.merge = draw.of({Merge::automatic, Merge::mlo, Merge::lse});
  return schedule;
}

std::vector<int32_t> draw_lengths(Draw& draw) {
  std::vector<int32_t> lengths(size_t(draw.between(1, draw.one_in(6) ? 40 : 5)));
  for (int32_t& length : lengths) {
    length = draw.one_in(6) ? draw.of({0, 1, 15, 16, 17, 127, 128, 129}) : draw.between(0, 700);
  }
  return lengths;
}

struct Case {
  Problem problem;
  Schedule schedule;
  std::vector<int32_t> kv_len;
};

// The first legal triple of this seed's stream.
Case draw_case(uint64_t seed, const Target& target) {
  Draw draw(seed);
  while (true) {
    Case c{draw_problem(draw), draw_schedule(draw, target), draw_lengths(draw)};
    if (!verify(c.problem, target) && !verify(c.problem, c.schedule, target)) return c;
  }
}

// How often each word of the text forms was drawn.
void count_words(std::map<std::string, int>& words, const std::string& text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const std::string key = word.substr(0, word.find('='));
    for (const char* listed :
         {"q", "kv", "kv_layout", "lse", "merge", "partition", "reduce", "rows", "tile", "warps",
          "unroll", "softcap", "window", "align", "deterministic"}) {
      if (key == listed) words[word] += 1;
    }
    begin = end + 1;
  }
}

TEST(Property, RandomLegalTriplesMeetTheAccuracyContract) {
  const int first = setting("SPLITKV_PROPERTY_FIRST", 0);
  const int cases = setting("SPLITKV_PROPERTY_CASES", 500);
  const Target target = test_target();
  std::map<std::string, int> words;
  int several_partials = 0;
  double worst = 0;
  for (int i = first; i < first + cases; ++i) {
    const Case c = draw_case(uint64_t(i), target);
    const std::string schedule = print(c.schedule);
    SCOPED_TRACE(
        fmt::format("case {}: {} | {} | kv_len {}", i, print(c.problem), schedule, c.kv_len));
    const auto judged =
        testing_support::run_and_judge(test_device(), c.problem, schedule, c.kv_len, uint64_t(i));
    ASSERT_EQ(judged.failure, "");
    const reference::Accuracy& accuracy = judged.accuracy;
    EXPECT_TRUE(accuracy.out_ok) << accuracy.out_relative_l2 << " above " << accuracy.out_limit
                                 << " in row " << accuracy.out_worst_row;
    EXPECT_TRUE(accuracy.lse_ok) << accuracy.lse_error << " above " << accuracy.lse_limit
                                 << " in row " << accuracy.lse_worst_row;
    EXPECT_TRUE(judged.execution.repeatable);
    worst = std::max(worst, accuracy.out_relative_l2 / accuracy.out_limit);
    several_partials += tool::count_partials(c.problem, c.schedule, c.kv_len).partials >= 2;
    count_words(words, print(c.problem) + " " + schedule);
  }
  std::printf(
      "%d cases on %s, %d with two or more non-empty partials, worst error %.2f of its limit\n",
      cases, test_device().c_str(), several_partials, worst);
  for (const auto& [word, count] : words) std::printf("  %s: %d\n", word.c_str(), count);
  if (cases >= 100) {
    EXPECT_GE(2 * several_partials, cases);
  }
}

// ---- any tree over any division of the keys
// ----------------------------------------------------------

MergeTree draw_tree(Draw& draw, int leaves) {
  MergeTree tree;
  std::vector<int> open;
  for (int i = 0; i < leaves; ++i) open.push_back(i);
  while (open.size() > 1) {
    int nodes[2];
    for (int& node : nodes) {
      const int at = draw.between(0, int(open.size()) - 1);
      node = open[size_t(at)];
      open.erase(open.begin() + at);
    }
    open.push_back(leaves + int(tree.joins.size()));
    tree.joins.push_back({nodes[0], nodes[1]});
  }
  return tree;
}

template <class Partial>
double worst_difference(const Partial& a, const std::vector<double>& o) {
  double worst = 0;
  for (size_t i = 0; i < o.size(); ++i) worst = std::max(worst, std::abs(a.o[i] - o[i]));
  return worst;
}

TEST(Property, AnyTreeOverAnyDivisionOfTheKeysIsTheTwoPassReference) {
  constexpr int dim = 16;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const int keys = draw.between(1, 200);
    const int parts = draw.between(1, 20);
    reference::Attention attention;
    attention.dim_qk = attention.dim_v = dim;
    attention.scale = draw.of({0.25, 1.0, 20.0});
    std::normal_distribution<double> normal;
    std::mt19937_64 engine(seed);
    std::vector<double> q(dim), k(size_t(keys) * dim), v(size_t(keys) * dim);
    for (auto* values : {&q, &k, &v}) {
      for (double& value : *values) value = normal(engine);
    }
    attention.q = reference::dense(reference::Element::fp64, q.data(), 1, 1, dim);
    attention.k = reference::dense(reference::Element::fp64, k.data(), 1, keys, dim);
    attention.v = reference::dense(reference::Element::fp64, v.data(), 1, keys, dim);
    attention.kv_len = {keys};
    const reference::Answer answer = reference::attend(attention, 1);

    std::vector<std::vector<double>> scores(static_cast<size_t>(parts)), rows(scores.size());
    for (int key = 0; key < keys; ++key) {
      const size_t part = size_t(draw.between(0, parts - 1));  // some parts stay empty
      double dot = 0;
      for (int d = 0; d < dim; ++d) dot += q[size_t(d)] * k[size_t(key * dim + d)];
      scores[part].push_back(attention.scale * dot);
      rows[part].insert(rows[part].end(), v.begin() + key * dim, v.begin() + (key + 1) * dim);
    }
    using Mlo = PartialMlo<double, LogBase::natural>;
    using Lse = PartialLse<double, LogBase::natural>;
    std::vector<Mlo> mlo;
    std::vector<Lse> lse;
    for (size_t part = 0; part < scores.size(); ++part) {
      mlo.push_back(
          tile_partial<double, LogBase::natural>(KeySet<double>{scores[part], rows[part], dim}));
      lse.push_back(to_lse(mlo.back()));
    }
    const MergeTree tree = draw_tree(draw, parts);
    const Mlo by_mlo = merge(std::span<const Mlo>(mlo), tree);
    const Lse by_lse = merge(std::span<const Lse>(lse), tree);
    EXPECT_LT(worst_difference(by_mlo, answer.out), 1e-12);
    EXPECT_LT(worst_difference(by_lse, answer.out), 1e-11);  // S of several hundred costs a digit
    EXPECT_NEAR(by_mlo.m + std::log(by_mlo.l), answer.lse[0],
                1e-12 * std::abs(answer.lse[0]) + 1e-12);
    EXPECT_NEAR(by_lse.s, answer.lse[0], 1e-12 * std::abs(answer.lse[0]) + 1e-12);
  }
}

}  // namespace
}  // namespace splitkv
