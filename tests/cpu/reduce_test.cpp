// The reduce kernel fed with hand-made partials, in both variants.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kDim = 24, kHeads = 3, kRows = 4;  // the fourth row of the block is no row

struct Partial {
  float exponent = -kInfinity;  // m or S, log2 units
  float l = 0;                  // mlo
  float o = 0;                  // the same in every dim, plus the dim's number
};

struct Joined {
  std::vector<float> out, lse;
};

// Joins `partials` for every head. Empties carry NaN in o and l: nothing of theirs may be looked
// at.
Joined join(const std::string& merge, const std::vector<Partial>& partials) {
  const int splits = int(partials.size());
  const KernelCase test{"attention q=fp32 kv=fp32 heads=3/1 dim=24 lse=base2 merge=" + merge,
                        "schedule family=vector tile=8 rows=4 warps=1 partition=fixed splits=" +
                            std::to_string(splits)};
  const CompiledCase compiled = compile_case(test);
  const BufferSizes sizes = buffer_sizes(compiled.problem, compiled.schedule, 1);
  std::vector<float> scratch(size_t(sizes.scratch_bytes) / sizeof(float), kNan);
  const int statistics = merge == "mlo" ? 2 : 1;
  for (int slot = 0; slot < splits; ++slot) {
    const Partial& partial = partials[slot];
    for (int row = 0; row < kHeads; ++row) {
      const int64_t number = int64_t(slot) * kRows + row;
      scratch[number * statistics] = partial.exponent;
      const bool empty = partial.exponent == -kInfinity;
      if (statistics == 2) scratch[number * 2 + 1] = empty ? kNan : partial.l;
      for (int d = 0; d < kDim && !empty; ++d) {
        scratch[sizes.partial_o_offset + number * kDim + d] = d == 0 ? -0.0f : partial.o + float(d);
      }
    }
  }
  const int32_t kv_len = 8 * splits;
  Joined joined{std::vector<float>(kHeads * kDim, kNan), std::vector<float>(kHeads, kNan)};
  LaunchArgs args;
  args.out = joined.out.data();
  args.lse = joined.lse.data();
  args.kv_len = &kv_len;
  args.partials = scratch.data();
  args.out_stride_head = kDim;
  args.lse_stride_head = 1;
  args.partial_o_offset = sizes.partial_o_offset;
  args.batch = 1;
  args.splits = splits;
  compiled.module->reduce()(&args, 0);
  return joined;
}

TEST(CpuReduce, OfEmptiesAloneIsZeroAndMinusInfinity) {
  for (const char* merge : {"mlo", "lse"}) {
    for (size_t count : {2, 3, 17}) {
      const Joined joined = join(merge, std::vector<Partial>(count));
      for (float value : joined.out) EXPECT_TRUE(value == 0 && !std::signbit(value)) << value;
      for (float value : joined.lse) EXPECT_EQ(value, -kInfinity);
    }
  }
}

TEST(CpuReduce, GivesOnePartialAmongEmptiesBackBitForBit) {
  for (const char* merge : {"mlo", "lse"}) {
    for (size_t count : {2, 3, 17}) {
      for (size_t filled : {size_t(0), count / 2, count - 1}) {
        std::vector<Partial> partials(count);
        partials[filled] = {476.3f, 1.7f, 0.1f};
        const Joined joined = join(merge, partials);
        for (int head = 0; head < kHeads; ++head) {
          for (int d = 0; d < kDim; ++d) {
            const float expected = d == 0 ? -0.0f : 0.1f + float(d);
            EXPECT_EQ(std::memcmp(&joined.out[head * kDim + d], &expected, sizeof(float)), 0);
          }
          if (std::string(merge) == "lse") {
            EXPECT_EQ(joined.lse[head], 476.3f);
          }
        }
      }
    }
  }
}

TEST(CpuReduce, WeighsPartialsByTheirSums) {
  // Sums of 2^s: 2^3 * 1.5 = 12 and 2^5 * 1 = 32; the third is far below and the fourth is empty.
  const std::vector<Partial> as_mlo = {{3, 1.5f, 1}, {5, 1, 2}, {-400, 1, 100}, {}};
  std::vector<Partial> as_lse = as_mlo;
  as_lse[0].exponent = std::log2(12.0f);
  for (const char* merge : {"mlo", "lse"}) {
    const Joined joined = join(merge, std::string(merge) == "mlo" ? as_mlo : as_lse);
    for (int head = 0; head < kHeads; ++head) {
      for (int d = 1; d < kDim; ++d) {
        const double expected = (12.0 * (1 + d) + 32.0 * (2 + d)) / 44.0;
        EXPECT_NEAR(joined.out[head * kDim + d], expected, 1e-6 * expected);
      }
      EXPECT_NEAR(joined.lse[head], std::log2(44.0), 1e-6);
    }
  }
}

TEST(CpuReduce, KeepsItsWeightsWhereSumsAreFarFromOne) {
  for (const char* merge : {"mlo", "lse"}) {
    for (float shift : {-20000.0f, 20000.0f}) {
      const Joined joined = join(merge, {{shift, 1, 1}, {shift, 1, 3}});
      EXPECT_NEAR(joined.out[1], 3.0f, 1e-6);
      EXPECT_EQ(joined.lse[0], shift + 1);
    }
  }
}

}  // namespace
}  // namespace splitkv::test
