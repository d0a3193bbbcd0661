#include "accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace context_parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ulp(float value) {
  const float size = std::fabs(value);
  if (!std::isfinite(size)) return 0;
  return double(std::nextafter(size, std::numeric_limits<float>::infinity())) - size;
}

double relative_l2(const float* got, const float* expected, int64_t dim) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < dim; ++i) {
    difference += std::pow(double(got[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  if (std::isnan(difference) || std::isnan(norm)) return kInfinity;
  if (norm == 0) return difference == 0 ? 0 : kInfinity;
  return std::sqrt(difference / norm);
}

double absolute(float got, float expected) {
  if (got == expected) return 0;  // both -inf, of a row without keys
  const double error = std::fabs(double(got) - expected);
  return std::isnan(error) ? kInfinity : error;
}

}  // namespace

Result result_of(const Partials& partials, const std::vector<float>& floats) {
  Result result;
  const size_t rows = size_t(partials.rows), o = rows * size_t(partials.dim);
  result.o.assign(floats.begin(), floats.begin() + ptrdiff_t(o));
  for (size_t row = 0; row < rows; ++row) {
    const float statistic = floats[o + row];
    const bool has_sum = partials.form == Merge::mlo && !std::isinf(statistic);
    result.lse.push_back(has_sum ? statistic + std::log(floats[o + rows + row]) : statistic);
  }
  return result;
}

Distance distance(const Options& options, Merge form, const Result& got, const Result& expected) {
  const bool fp32 = options.dtype == Dtype::fp32;
  Distance worst;
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    const double rounding = 4 * ulp(expected.lse[row]);
    const double o_limit = std::max(fp32 ? 1e-5 : 4e-3, form == Merge::lse ? rounding : 0.0);
    const double lse_limit = std::max(fp32 ? 1e-5 : 1e-3, rounding);
    const size_t first = row * size_t(options.dim);
    const double o = relative_l2(&got.o[first], &expected.o[first], options.dim);
    const double lse = absolute(got.lse[row], expected.lse[row]);
    worst.o_relative_l2 = std::max(worst.o_relative_l2, o);
    worst.o_share = std::max(worst.o_share, o / o_limit);
    worst.lse_absolute = std::max(worst.lse_absolute, lse);
    worst.lse_share = std::max(worst.lse_share, lse / lse_limit);
  }
  return worst;
}

}  // namespace context_parallel
