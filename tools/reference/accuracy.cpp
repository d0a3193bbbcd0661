#include "tools/reference/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace splitkv::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative_l2(std::span<const double> got, std::span<const double> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (std::isnan(difference) || std::isnan(norm)) return kInfinity;
  if (norm == 0) return difference == 0 ? 0 : kInfinity;
  return std::sqrt(difference / norm);
}

double absolute_error(double got, double expected) {
  if (got == expected) return 0;  // equal infinities among them
  const double error = std::abs(got - expected);
  return std::isnan(error) ? kInfinity : error;
}

}  // namespace

Tolerance tolerance_for(std::span<const Element> types) {
  Tolerance tolerance{.out_relative_l2 = 1e-5, .lse_absolute = 1e-5, .lse_ulp = 4};
  bool has_8_bits = false;
  for (const Element type : types) {
    if (type == Element::e4m3 || type == Element::e5m2 || type == Element::int8) {
      has_8_bits = true;
      continue;
    }
    const double of_type = type == Element::bf16 ? 4e-3 : type == Element::fp16 ? 1e-3 : 1e-5;
    tolerance.out_relative_l2 = std::max(tolerance.out_relative_l2, of_type);
    if (of_type > 1e-5) tolerance.lse_absolute = 1e-3;
  }
  if (has_8_bits && tolerance.out_relative_l2 > 1e-5) tolerance.out_relative_l2 = 4e-3;
  return tolerance;
}

Tolerance widened_for_lse_partials(Tolerance tolerance) {
  tolerance.out_lse_ulp = 4;
  return tolerance;
}

double ulp_fp32(double value) {
  const float magnitude = std::abs(float(value));
  if (!std::isfinite(magnitude)) return 0;
  return double(std::nextafter(magnitude, std::numeric_limits<float>::infinity())) - magnitude;
}

Accuracy compare(const Comparison& comparison, const Tolerance& tolerance) {
  Accuracy accuracy;
  accuracy.out_limit = tolerance.out_relative_l2;
  double worst_out_share = -1;
  const int64_t rows = int64_t(comparison.out.size()) / comparison.dim;
  for (int64_t row = 0; row < rows; ++row) {
    double limit = tolerance.out_relative_l2;
    if (!comparison.lse_natural.empty()) {
      const double lse = comparison.lse_natural[size_t(row)];
      if (std::isfinite(lse)) limit = std::max(limit, tolerance.out_lse_ulp * ulp_fp32(lse));
    }
    double squares = 0;
    for (int64_t i = 0; i < comparison.dim; ++i) {
      const double expected = comparison.expected_out[size_t(row * comparison.dim + i)];
      squares += expected * expected;
    }
    if (squares > 0) {
      const double rounding = tolerance.out_absolute * std::sqrt(double(comparison.dim) / squares);
      limit = std::max(limit, rounding);
    }
    const double error =
        relative_l2(comparison.out.subspan(row * comparison.dim, comparison.dim),
                    comparison.expected_out.subspan(row * comparison.dim, comparison.dim));
    if (error / limit <= worst_out_share) continue;
    worst_out_share = error / limit;
    accuracy.out_relative_l2 = error;
    accuracy.out_worst_row = row;
    accuracy.out_limit = limit;
  }
  accuracy.out_ok = worst_out_share <= 1;

  double worst_share = -1;
  for (size_t row = 0; row < comparison.lse.size(); ++row) {
    const double expected = comparison.expected_lse[row];
    const double limit = std::max(tolerance.lse_absolute, tolerance.lse_ulp * ulp_fp32(expected));
    const double error = absolute_error(comparison.lse[row], expected);
    if (error / limit <= worst_share) continue;
    worst_share = error / limit;
    accuracy.lse_error = error;
    accuracy.lse_worst_row = int64_t(row);
    accuracy.lse_limit = limit;
  }
  accuracy.lse_ok = worst_share <= 1;
  return accuracy;
}

}  // namespace splitkv::reference
