// The fewest kernels for many buckets.
#include "runtime/kernel_cover.hpp"

#include <gtest/gtest.h>

#include <limits>

using splitkv::fewest_kernels;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
using Indices = std::vector<int>;

TEST(KernelCover, OneIsEnoughWhereItIsNearTheBestEverywhere) {
  EXPECT_EQ(fewest_kernels({{1.00, 1.015}, {1.30, 1.2}, {1.5, 1.1}}, 4, 0.02), Indices{1});
}

TEST(KernelCover, AsManyAsTheSlackNeeds) {
  EXPECT_EQ(fewest_kernels({{1.0, 1.05, 2}, {2, 1.0, 1.1}, {1.0, 1.5, 1.2}}, 4, 0.02),
            (Indices{0, 1}));
}

TEST(KernelCover, WhereFourDoNotReachTheLeastWorstLossCounts) {
  std::vector<std::vector<double>> ratios(6, std::vector<double>(6, 1.5));
  for (size_t i = 0; i < 6; ++i) ratios[i][i] = 1.0;
  ratios[4][0] = 1.10;  // the buckets 4 and 5 lose little with other kernels
  ratios[5][1] = 1.08;
  EXPECT_EQ(fewest_kernels(ratios, 4, 0.02), (Indices{0, 1, 2, 3}));
}

TEST(KernelCover, KernelsThatCannotServeABucketAreNotCountedOnThere) {
  EXPECT_EQ(fewest_kernels({{kNever, 1.2}, {1.0, kNever}}, 4, 0.02), (Indices{0, 1}));
  EXPECT_EQ(fewest_kernels({{kNever, kNever}, {1.0, 1.5}}, 4, 0.02), Indices{0});
  EXPECT_TRUE(fewest_kernels({{kNever}}, 4, 0.02).empty());
  EXPECT_TRUE(fewest_kernels({}, 4, 0.02).empty());
}

TEST(KernelCover, ManyKernelsAreStillSearched) {
  std::vector<std::vector<double>> ratios(12, std::vector<double>(60, 1.4));
  for (size_t b = 0; b < 12; ++b) ratios[b][b * 5] = 1.0;
  for (size_t b = 0; b < 12; ++b) ratios[b][57 + b % 3] = 1.01;  // three that serve all
  EXPECT_EQ(fewest_kernels(ratios, 4, 0.02), (Indices{57, 58, 59}));
}

}  // namespace
