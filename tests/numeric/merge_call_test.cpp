// The public merge: partials of both forms and bases against the algebra in double precision, and
// partials that kernels put out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "runtime/splitkv.hpp"
#include "tests/numeric/contract.hpp"
#include "tools/reference/accuracy.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv {
namespace {

using testing_support::expect_right;
using testing_support::Judged;
using testing_support::problem_of;
using testing_support::test_device;
using tool::Buffer;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Partials [parts, rows, dim] and their statistics [parts, rows]; l empty: the form lse.
struct Partials {
  int64_t parts = 0, rows = 0, dim = 0;
  std::vector<float> o, s_or_m, l;
};

struct Merged {
  std::vector<float> out, s_or_m, l;
  std::string refused;  // by the call itself: the CPU's
  std::string polled;   // the fault found afterwards
};

struct Placement {
  int64_t gap = 0;        // floats between rows
  bool in_place = false;  // the output is part 0
};

// Dense values with a gap behind each row of `row`.
std::vector<float> with_gaps(const std::vector<float>& dense, int64_t row, int64_t gap) {
  std::vector<float> spread(dense.size() / size_t(row) * size_t(row + gap), -77.0f);
  for (size_t r = 0; r < dense.size() / size_t(row); ++r) {
    std::copy_n(dense.begin() + int64_t(r) * row, row, spread.begin() + int64_t(r) * (row + gap));
  }
  return spread;
}

class MergeCall {
 public:
  MergeCall() : memory_(std::move(*tool::open_device_memory(test_device()))) {}

  Merged run(const Partials& p, const std::string& base, const Placement& placement = {}) {
    const bool mlo = !p.l.empty();
    const Merger merger = runtime_.prepare_merge(test_device(), mlo ? "mlo" : "lse", base);
    const int64_t row = p.dim + placement.gap, statistic = 1 + placement.gap;
    const Buffer o = place(with_gaps(p.o, p.dim, placement.gap));
    const Buffer s = place(with_gaps(p.s_or_m, 1, placement.gap));
    const Buffer l = place(with_gaps(p.l, 1, placement.gap));
    const Buffer out = reserve(size_t(p.rows * row)), out_s = reserve(size_t(p.rows * statistic)),
                 out_l = reserve(size_t(p.rows * statistic));
    auto args = sized<splitkv_merge_args>();
    args.parts = p.parts;
    args.rows = p.rows;
    args.dim = p.dim;
    args.o = floats(o);
    args.s_or_m = floats(s);
    args.l = mlo ? floats(l) : nullptr;
    args.o_stride_part = p.rows * row;
    args.o_stride_row = row;
    args.statistics_stride_part = p.rows * statistic;
    args.statistics_stride_row = statistic;
    args.out = floats(placement.in_place ? o : out);
    args.out_s_or_m = floats(placement.in_place ? s : out_s);
    args.out_l = !mlo ? nullptr : floats(placement.in_place ? l : out_l);
    args.out_stride_row = row;
    args.out_statistics_stride_row = statistic;
    Merged merged;
    merged.refused = failure_of([&] { merger.merge(args); });
    merged.out = bring(args.out, p.rows, p.dim, row);  // waits for the run
    merged.s_or_m = bring(args.out_s_or_m, p.rows, 1, statistic);
    if (mlo) merged.l = bring(args.out_l, p.rows, 1, statistic);
    merged.polled = failure_of([&] { merger.poll_fault(); });
    EXPECT_EQ(failure_of([&] { merger.poll_fault(); }), "") << "a fault is told once";
    return merged;
  }

 private:
  template <class Body>
  static std::string failure_of(const Body& body) {
    try {
      body();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), SPLITKV_DEVICE_ERROR);
      return failure.what();
    }
    return "";
  }
  static float* floats(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }
  Buffer reserve(size_t count) { return std::move(*memory_->allocate(count * sizeof(float))); }
  Buffer place(const std::vector<float>& values) {
    Buffer buffer = reserve(values.size());
    EXPECT_TRUE(memory_->copy_in(buffer, values.data(), values.size() * sizeof(float)).ok());
    return buffer;
  }
  // The rows without their gaps.
  std::vector<float> bring(float* data, int64_t rows, int64_t row, int64_t stride) {
    std::vector<float> all(static_cast<size_t>(rows * stride)), dense;
    const Buffer view(nullptr, data, all.size() * sizeof(float));
    EXPECT_TRUE(memory_->copy_out(all.data(), view, view.bytes()).ok());
    for (int64_t r = 0; r < rows; ++r) {
      dense.insert(dense.end(), all.begin() + r * stride, all.begin() + r * stride + row);
    }
    return dense;
  }

  Runtime runtime_;
  std::unique_ptr<tool::DeviceMemory> memory_;
};

Partials random_partials(int64_t parts, int64_t rows, int64_t dim, bool mlo, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  Partials p{parts, rows, dim, {}, {}, {}};
  for (int64_t i = 0; i < parts * rows; ++i) {
    const bool empty = engine() % 4 == 0;
    for (int64_t d = 0; d < dim; ++d) p.o.push_back(empty ? 0 : normal(engine));
    p.s_or_m.push_back(empty ? -kInfinity : 3 * normal(engine));
    if (mlo) p.l.push_back(empty ? 0 : 1 + std::abs(normal(engine)));
  }
  return p;
}

// The join by its definition, in double precision.
void expect_joined(const Partials& p, const Merged& merged, bool base2) {
  ASSERT_EQ(merged.out.size(), size_t(p.rows * p.dim));
  EXPECT_EQ(merged.refused + merged.polled, "");
  const auto power = [&](double x) { return base2 ? std::exp2(x) : std::exp(x); };
  for (int64_t row = 0; row < p.rows; ++row) {
    double greatest = -kInfinity, sum = 0;
    for (int64_t part = 0; part < p.parts; ++part) {
      greatest = std::max(greatest, double(p.s_or_m[size_t(part * p.rows + row)]));
    }
    std::vector<double> o(size_t(p.dim), 0.0);
    for (int64_t part = 0; part < p.parts && greatest > -kInfinity; ++part) {
      const size_t at = size_t(part * p.rows + row);
      if (p.s_or_m[at] == -kInfinity) continue;
      const double weight = power(p.s_or_m[at] - greatest) * (p.l.empty() ? 1 : p.l[at]);
      sum += weight;
      for (int64_t d = 0; d < p.dim; ++d) {
        o[size_t(d)] += weight * p.o[at * size_t(p.dim) + size_t(d)];
      }
    }
    const double logarithm = base2 ? std::log2(sum) : std::log(sum);
    if (sum == 0) {
      EXPECT_EQ(merged.s_or_m[size_t(row)], -kInfinity);
      if (!p.l.empty()) {
        EXPECT_EQ(merged.l[size_t(row)], 0);
      }
    } else if (p.l.empty()) {
      EXPECT_NEAR(merged.s_or_m[size_t(row)], greatest + logarithm,
                  2e-6 * (1 + std::abs(greatest)));
    } else {
      EXPECT_EQ(merged.s_or_m[size_t(row)], float(greatest));
      EXPECT_NEAR(merged.l[size_t(row)], sum, 1e-5 * sum);
    }
    for (int64_t d = 0; d < p.dim; ++d) {
      const double expected = sum == 0 ? 0 : o[size_t(d)] / sum;
      ASSERT_NEAR(merged.out[size_t(row * p.dim + d)], expected, 1e-5) << row << " " << d;
    }
  }
}

TEST(MergeCall, JoinsEveryFormBaseAndPlacement) {
  MergeCall call;
  for (const bool mlo : {false, true}) {
    for (const char* base : {"natural", "base2"}) {
      for (const int64_t parts : {1, 2, 3, 17}) {
        for (const int64_t dim : {1, 64, 77, 512}) {
          for (const bool in_place : {false, true}) {
            for (const int64_t gap : {0, 3}) {
              SCOPED_TRACE(fmt::format("{} {} {} parts of dim {} in place {} gap {}",
                                       mlo ? "mlo" : "lse", base, parts, dim, in_place, gap));
              const Partials p = random_partials(parts, 33, dim, mlo, uint64_t(parts * dim));
              expect_joined(p, call.run(p, base, {gap, in_place}), std::strcmp(base, "base2") == 0);
            }
          }
        }
      }
    }
  }
}

TEST(MergeCall, TakesManyHeadsOf512) {
  MergeCall call;
  const Partials p = random_partials(4, 128, 512, false, 3);
  expect_joined(p, call.run(p, "natural"), false);
  const Partials wide = random_partials(2, 5, 4096, true, 3);
  expect_joined(wide, call.run(wide, "natural"), false);
}

TEST(MergeCall, EmptiesAreNeutralBitForBit) {
  MergeCall call;
  for (const bool mlo : {false, true}) {
    for (const char* base : {"natural", "base2"}) {
      for (const int64_t parts : {2, 3, 17}) {
        for (const bool in_place : {false, true}) {
          Partials p = random_partials(parts, 2, 64, mlo, 9);
          std::fill(p.s_or_m.begin(), p.s_or_m.end(), -kInfinity);
          std::fill(p.o.begin(), p.o.end(), 0.0f);
          std::fill(p.l.begin(), p.l.end(), 0.0f);
          // Row 1: one finite partial, the last.
          const size_t at = size_t((parts - 1) * 2 + 1);
          p.s_or_m[at] = 0.1f;
          if (mlo) p.l[at] = 1.7f;
          for (size_t d = 0; d < 64; ++d) p.o[at * 64 + d] = 0.3f * float(d) - 5;
          const Merged merged = call.run(p, base, {0, in_place});
          EXPECT_EQ(merged.s_or_m[0], -kInfinity);
          EXPECT_EQ(merged.s_or_m[1], 0.1f);
          if (mlo) {
            EXPECT_EQ(merged.l[0], 0);
            EXPECT_EQ(merged.l[1], 1.7f);
          }
          for (size_t d = 0; d < 64; ++d) {
            EXPECT_EQ(merged.out[d], 0);
            EXPECT_EQ(merged.out[64 + d], p.o[at * 64 + d]);
          }
        }
      }
    }
  }
}

TEST(MergeCall, AnInfiniteOrMissingSumIsReportedWithRowAndPart) {
  MergeCall call;
  const bool on_cpu = std::string(test_device()).starts_with("cpu");
  for (const bool mlo : {false, true}) {
    for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const int64_t part : {0, 33, 39}) {
        const Partials right = random_partials(40, 6, 64, mlo, 4);
        Partials p = right;
        p.s_or_m[size_t(part * 6 + 4)] = bad;
        if (mlo) p.l[size_t(part * 6 + 4)] = 1;
        const Merged merged = call.run(p, "natural"), wanted = call.run(right, "natural");
        EXPECT_EQ(wanted.refused + wanted.polled, "");
        EXPECT_NE(merged.polled.find(fmt::format("part={} of row=4", part)), std::string::npos)
            << merged.polled;
        EXPECT_EQ(merged.refused, on_cpu ? merged.polled : "");
        for (size_t row = 0; row < 6; ++row) {
          for (size_t d = 0; d < 64; ++d) {
            const float o = merged.out[row * 64 + d];
            EXPECT_TRUE(row == 4 ? std::isnan(o) : o == wanted.out[row * 64 + d]) << row;
          }
          EXPECT_EQ(std::isnan(merged.s_or_m[row]), row == 4);
          if (mlo) {
            EXPECT_EQ(std::isnan(merged.l[row]), row == 4);
          }
        }
      }
    }
  }
}

// Runs the shards as out=partial, merges what they give, and compares with the whole.
class Shards {
 public:
  Shards(const std::string& words, bool mlo, const std::string& base,
         const std::string& schedule = "splits=3 tile=16 partition=fixed")
      : words_(words), mlo_(mlo), base_(base), schedule_(schedule) {}

  // `whole`: the problem and inputs of all keys.
  void expect_merged_right(const std::vector<tool::Inputs>& shards, const tool::Inputs& whole) {
    const std::string text =
        fmt::format("{} out=partial merge={} lse={}", words_, mlo_ ? "mlo" : "lse", base_);
    Partials p;
    p.parts = int64_t(shards.size());
    for (const tool::Inputs& shard : shards) {
      const Judged judged = testing_support::expect_right_on(text, schedule_, shard);
      const tool::Execution& e = judged.execution;
      p.o.insert(p.o.end(), e.out.begin(), e.out.end());
      const std::vector<float>& s = mlo_ ? e.partial_m : e.lse;
      p.s_or_m.insert(p.s_or_m.end(), s.begin(), s.end());
      p.l.insert(p.l.end(), e.partial_l.begin(), e.partial_l.end());
    }
    p.rows = int64_t(p.s_or_m.size()) / p.parts;
    Problem problem = problem_of(words_ + " lse=" + base_);
    p.dim = problem.dim_v;
    const Merged merged = MergeCall().run(p, base_);
    problem.strided_positions = false;
    const tool::Expected expected = tool::expect_from_reference(problem, whole);
    tool::Execution execution;
    execution.out = merged.out;
    execution.lse = merged.s_or_m;
    if (mlo_) {
      for (size_t i = 0; i < merged.l.size(); ++i) {
        if (merged.l[i] == 0) continue;
        execution.lse[i] += base_ == "base2" ? std::log2(merged.l[i]) : std::log(merged.l[i]);
      }
    }
    const auto accuracy =
        tool::judge(problem, execution, expected, tool::tolerance_of(problem, !mlo_));
    EXPECT_TRUE(accuracy.ok()) << accuracy.out_relative_l2 << " lse " << accuracy.lse_error;
  }

 private:
  std::string words_;
  bool mlo_;
  std::string base_;
  std::string schedule_;
};

TEST(Partials, OfAPrefixAndASuffixMergeToTheWholeInEitherBase) {
  for (const bool mlo : {false, true}) {
    for (const char* base : {"natural", "base2"}) {
      SCOPED_TRACE(fmt::format("{} {}", mlo, base));
      const std::string words = "q=bf16 heads=4/2 dim=192/128";
      tool::Inputs whole = tool::generate_inputs(problem_of(words), {4096, 16}, 1);
      tool::Inputs prefix = whole, suffix = whole;
      prefix.kv_len = {4080, 16};
      suffix.form.kv_begin = {4080, 16};  // of row 1 nothing is left
      Shards(words, mlo, base).expect_merged_right({prefix, suffix}, whole);
    }
  }
}

// Blocks of a cluster without keys give empty partials, in either form, whoever joins them.
TEST(Partials, OfClustersMergeToTheWhole) {
  if (!testing_support::has_clusters(testing_support::test_target())) {
    GTEST_SKIP() << testing_support::test_device() << " has no clusters";
  }
  for (const bool mlo : {false, true}) {
    for (const char* schedule : {"partition=fixed splits=4 reduce=cluster cluster=4",
                                 "partition=strided splits=12 reduce=cluster cluster=4 pdl=on"}) {
      SCOPED_TRACE(fmt::format("{} {}", mlo, schedule));
      const std::string words = "q=bf16 heads=4/2 dim=192/128";
      tool::Inputs whole = tool::generate_inputs(problem_of(words), {2000, 16}, 1);
      tool::Inputs prefix = whole, suffix = whole;
      prefix.kv_len = {100, 16};
      suffix.form.kv_begin = {100, 16};
      Shards(words, mlo, "natural", schedule).expect_merged_right({prefix, suffix}, whole);
    }
  }
}

// Key c of rank r stands at c * 4 + r; a rank may have no keys.
TEST(Partials, OfStripedShardsMergeToTheWhole) {
  for (const int queries : {1, 3}) {
    for (const bool mlo : {false, true}) {
      SCOPED_TRACE(fmt::format("{} queries, mlo {}", queries, mlo));
      const std::string words = fmt::format("q=fp32 heads=12/4 dim=16 query_len={}", queries);
      const Problem problem = problem_of(words);
      const std::vector<int32_t> lengths = {1, 3, 4, 1000};
      const tool::Inputs whole = tool::generate_inputs(problem, lengths, 1);
      std::vector<tool::Inputs> shards;
      for (int rank = 0; rank < 4; ++rank) {
        tool::Inputs shard = whole;
        shard.total_len = lengths;
        shard.form.pos0 = rank;
        shard.form.pos_step = 4;
        for (int32_t& length : shard.kv_len) length = (length - rank + 3) / 4;
        const int64_t token = 16 * 4, tokens = whole.capacity;
        for (int64_t list = 0; list < whole.batch * 4; ++list) {
          for (int64_t key = 0; key * 4 + rank < tokens; ++key) {
            for (auto [to, from] : {std::pair{&shard.k, &whole.k}, {&shard.v, &whole.v}}) {
              std::memcpy(&(*to)[size_t((list * tokens + key) * token)],
                          &(*from)[size_t((list * tokens + key * 4 + rank) * token)],
                          size_t(token));
            }
          }
        }
        shards.push_back(std::move(shard));
      }
      Shards(words + " positions=strided", mlo, "natural").expect_merged_right(shards, whole);
    }
  }
}

}  // namespace
}  // namespace splitkv
