// The public merge on the CPU: n partials of one form and base, in place, strided, with empties.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codegen/merge_source.hpp"
#include "runtime/cpu/cpu_module.hpp"
#include "runtime/cpu/host.hpp"

namespace splitkv::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const CpuModule& merger(Merge form, LseOutput base) {
  static CpuModule modules[2][2];
  CpuModule& module = modules[form == Merge::mlo][base == LseOutput::base2];
  if (module.merge() == nullptr) {
    const Target target = *resolve_cpu_target("cpu", 1);
    Result<CpuModule> compiled = compile_cpu(emit_merge(form, base, target), target);
    if (!compiled) throw std::runtime_error(compiled.error().message);
    module = std::move(*compiled);
  }
  return module;
}

// Parts with padded rows; padding, and o of empties, is NaN.
struct Parts {
  int parts, rows, dim;
  std::vector<float> o, exponent, l;
  int64_t row_stride() const { return dim + 3; }

  Parts(int n, int r, int d) : parts(n), rows(r), dim(d) {
    o.assign(size_t(n) * r * row_stride(), kNan);
    exponent.assign(size_t(n) * r, -kInfinity);
    l.assign(size_t(n) * r, 0);
  }
  float* row(int part, int r) { return &o[(int64_t(part) * rows + r) * row_stride()]; }
  void fill(int part, int r, float s, float sum, std::mt19937& random) {
    for (int d = 0; d < dim; ++d) {
      row(part, r)[d] = std::uniform_real_distribution<float>(-1, 1)(random);
    }
    row(part, r)[0] = -0.0f;
    exponent[part * rows + r] = s;
    l[part * rows + r] = sum;
  }
};

struct Merged {
  std::vector<float> o, exponent, l;
  ErrorRecord errors;
};

Merged merge(Parts& parts, Merge form, LseOutput base, bool in_place) {
  Merged merged;
  merged.o.assign(size_t(parts.rows) * parts.row_stride(), kNan);
  merged.exponent.assign(parts.rows, kNan);
  merged.l.assign(parts.rows, kNan);
  MergeArgs args;
  args.o = parts.o.data();
  args.s_or_m = parts.exponent.data();
  args.l = form == Merge::mlo ? parts.l.data() : nullptr;
  args.out = in_place ? parts.o.data() : merged.o.data();
  args.out_s_or_m = in_place ? parts.exponent.data() : merged.exponent.data();
  if (form == Merge::mlo) args.out_l = in_place ? parts.l.data() : merged.l.data();
  args.o_stride_part = parts.rows * parts.row_stride();
  args.o_stride_row = args.out_stride_row = parts.row_stride();
  args.statistics_stride_part = parts.rows;
  args.statistics_stride_row = args.out_statistics_stride_row = 1;
  args.parts = parts.parts;
  args.rows = parts.rows;
  args.dim = parts.dim;
  args.errors = &merged.errors;
  const int half = parts.rows / 2;  // rows may be dealt out in any way
  merger(form, base).merge()(&args, half, parts.rows);
  merger(form, base).merge()(&args, 0, half);
  if (in_place) {
    merged.o.assign(parts.o.begin(), parts.o.begin() + parts.rows * parts.row_stride());
    merged.exponent.assign(parts.exponent.begin(), parts.exponent.begin() + parts.rows);
    merged.l.assign(parts.l.begin(), parts.l.begin() + parts.rows);
  }
  for (int row = 0; row < parts.rows; ++row) {
    for (int pad = parts.dim; pad < parts.row_stride(); ++pad) {
      EXPECT_TRUE(std::isnan(merged.o[row * parts.row_stride() + pad])) << "padding was written";
    }
  }
  return merged;
}

template <class Body>
void for_all_forms(const Body& body) {
  for (Merge form : {Merge::mlo, Merge::lse}) {
    for (LseOutput base : {LseOutput::natural, LseOutput::base2}) {
      for (bool in_place : {false, true}) body(form, base, in_place);
    }
  }
}

TEST(CpuMerge, IsTheWeightedMean) {
  for_all_forms([](Merge form, LseOutput base, bool in_place) {
    for (int dim : {1, 7, 64, 512, 515}) {
      for (int count : {1, 2, 3, 17}) {
        std::mt19937 random(dim + count);
        Parts parts(count, 5, dim);
        for (int part = 0; part < count; ++part) {
          for (int row = 0; row < 5; ++row) {
            if (random() % 4 == 0) continue;
            const float s = std::uniform_real_distribution<float>(-4, 4)(random);
            parts.fill(part, row, s, std::uniform_real_distribution<float>(1, 9)(random), random);
          }
        }
        Parts before = parts;
        const Merged merged = merge(parts, form, base, in_place);
        const double unit = base == LseOutput::base2 ? std::log(2.0) : 1.0;
        for (int row = 0; row < 5; ++row) {
          double total = 0;
          std::vector<double> o(dim, 0.0);
          for (int part = 0; part < count; ++part) {
            const int at = part * 5 + row;
            if (before.exponent[at] == -kInfinity) continue;
            const double weight =
                std::exp(unit * before.exponent[at]) * (form == Merge::mlo ? before.l[at] : 1);
            total += weight;
            for (int d = 0; d < dim; ++d) o[d] += weight * before.row(part, row)[d];
          }
          const float* actual = &merged.o[row * before.row_stride()];
          for (int d = 0; d < dim; ++d) {
            ASSERT_NEAR(actual[d], total == 0 ? 0 : o[d] / total, 2e-6);
          }
          double sum = merged.exponent[row];
          if (form == Merge::mlo) sum += std::log(merged.l[row]) / unit;
          if (total == 0) {
            EXPECT_EQ(sum, -kInfinity);
          } else {
            EXPECT_NEAR(sum, std::log(total) / unit, 4e-6);
          }
        }
      }
    }
  });
}

TEST(CpuMerge, EmptiesAloneAreOneEmpty) {
  for_all_forms([](Merge form, LseOutput base, bool in_place) {
    for (int count : {2, 3, 17}) {
      Parts parts(count, 2, 64);
      const Merged merged = merge(parts, form, base, in_place);
      for (int row = 0; row < 2; ++row) {
        for (int d = 0; d < 64; ++d) {
          const float o = merged.o[row * parts.row_stride() + d];
          EXPECT_TRUE(o == 0 && !std::signbit(o));
        }
        EXPECT_EQ(merged.exponent[row], -kInfinity);
        EXPECT_TRUE(form == Merge::lse || merged.l[row] == 0);
      }
    }
  });
}

TEST(CpuMerge, OnePartAmongEmptiesComesBackBitForBit) {
  for_all_forms([](Merge form, LseOutput base, bool in_place) {
    for (int count : {2, 3, 17}) {
      for (int filled : {0, count / 2, count - 1}) {
        for (float s : {476.3f, -21560.7f, -0.0f}) {
          std::mt19937 random(count);
          Parts parts(count, 1, 67);
          parts.fill(filled, 0, s, 1.7f, random);
          Parts before = parts;
          const Merged merged = merge(parts, form, base, in_place);
          EXPECT_EQ(std::memcmp(merged.o.data(), before.row(filled, 0), 67 * sizeof(float)), 0);
          EXPECT_EQ(std::memcmp(merged.exponent.data(), &s, sizeof s), 0);
          EXPECT_TRUE(form == Merge::lse || merged.l[0] == 1.7f);
        }
      }
    }
  });
}

TEST(CpuMerge, AStatisticThatNoPartialHasIsRecordedAndSpoilsItsRowAlone) {
  struct Wrong {
    float s, l;
    bool mlo_only;
  };
  const Wrong wrongs[] = {{kInfinity, 1, false}, {kNan, 1, false}, {kInfinity, 0, false},
                          {2, kInfinity, true},  {2, -0.5f, true}, {2, kNan, true}};
  for_all_forms([&](Merge form, LseOutput base, bool in_place) {
    for (const Wrong& wrong : wrongs) {
      if (wrong.mlo_only && form != Merge::mlo) continue;
      for (const int bad : {0, 4}) {
        std::mt19937 random(3);
        Parts parts(5, 3, 19), right(5, 3, 19);
        for (int at = 0; at < 15; ++at) parts.fill(at / 3, at % 3, 1, 2, random);
        right = parts;
        parts.exponent[bad * 3 + 1] = wrong.s;
        parts.l[bad * 3 + 1] = wrong.l;
        const Merged merged = merge(parts, form, base, in_place);
        const Merged expected = merge(right, form, base, in_place);
        EXPECT_EQ(expected.errors.code, kNoFault);
        EXPECT_EQ(merged.errors.code, kBadStatistic);
        EXPECT_EQ(merged.errors.row, 1);
        EXPECT_EQ(merged.errors.slot, bad);
        const float value = wrong.mlo_only ? wrong.l : wrong.s;
        EXPECT_EQ(merged.errors.value, int64_t(std::bit_cast<uint32_t>(value)));
        for (int row = 0; row < 3; ++row) {
          for (int d = 0; d < 19; ++d) {
            const float o = merged.o[row * parts.row_stride() + d];
            EXPECT_TRUE(row == 1 ? std::isnan(o) : o == expected.o[row * parts.row_stride() + d]);
          }
          EXPECT_EQ(std::isnan(merged.exponent[row]), row == 1);
          EXPECT_TRUE(form == Merge::lse || std::isnan(merged.l[row]) == (row == 1));
        }
      }
    }
  });
}

TEST(CpuMerge, TheLOfAnEmptyPartIsNotLookedAt) {
  std::mt19937 random(3);
  Parts parts(2, 1, 8);
  parts.fill(0, 0, 1, 2, random);
  parts.l[1] = kNan;
  const Merged merged = merge(parts, Merge::mlo, LseOutput::natural, false);
  EXPECT_EQ(merged.errors.code, kNoFault);
  EXPECT_EQ(merged.l[0], 2);
}

TEST(CpuMerge, LargeSumsKeepTheirWeights) {
  for_all_forms([](Merge form, LseOutput base, bool in_place) {
    for (float shift : {-20000.0f, 20000.0f}) {
      std::mt19937 random(1);
      Parts parts(2, 1, 16);
      parts.fill(0, 0, shift, 1, random);
      parts.fill(1, 0, shift, 1, random);
      parts.row(0, 0)[3] = 1;
      parts.row(1, 0)[3] = 3;
      const Merged merged = merge(parts, form, base, in_place);
      EXPECT_NEAR(merged.o[3], 2, 1e-6);
    }
  });
}

}  // namespace
}  // namespace splitkv::test
