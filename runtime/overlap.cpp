#include "runtime/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace splitkv {
namespace {

// |stride|; that of the most negative one is the largest there is.
int64_t size_of(int64_t stride) {
  if (stride == std::numeric_limits<int64_t>::min()) return std::numeric_limits<int64_t>::max();
  return std::abs(stride);
}

// [first, last) byte addresses that the rows reach, in fp64, which holds any product.
struct Range {
  double first, last;
};

Range range_of(const Footprint& a) {
  Range range{double(reinterpret_cast<uintptr_t>(a.data)), 0};
  range.last = range.first + double(a.row_bytes);
  for (const auto& [stride, count] : a.extents) {
    const double reach = double(stride) * double(count - 1);
    (reach < 0 ? range.first : range.last) += reach;
  }
  return range;
}

// The rows with all dimensions of strides below `least` taken into one longer row.
struct Collapsed {
  uint64_t start;
  double bytes;
  int64_t common;  // divides every stride that is left; 0: none is
};

Collapsed collapse(const Footprint& a, int64_t least) {
  Collapsed result{reinterpret_cast<uintptr_t>(a.data), double(a.row_bytes), 0};
  for (const auto& [stride, count] : a.extents) {
    if (count <= 1) continue;
    if (size_of(stride) >= least) {
      result.common = std::gcd(result.common, size_of(stride));
      continue;
    }
    if (stride < 0) result.start += uint64_t(stride) * uint64_t(count - 1);
    result.bytes += double(size_of(stride)) * double(count - 1);
  }
  return result;
}

bool apart_at(const Footprint& a, const Footprint& b, int64_t least) {
  const Collapsed x = collapse(a, least), y = collapse(b, least);
  const int64_t common = std::gcd(x.common, y.common);
  if (common == 0) return false;
  const auto modulus = uint64_t(common);
  // Of y's rows after x's, counted around the circle of `common` bytes.
  const double distance =
      double(y.start >= x.start ? (y.start - x.start) % modulus
                                : (modulus - (x.start - y.start) % modulus) % modulus);
  return distance >= x.bytes && distance + y.bytes <= double(common);
}

}  // namespace

Outcome check_rows_apart(const char* owner, int64_t row, std::vector<Extent> extents) {
  std::erase_if(extents, [](const Extent& extent) { return extent.count <= 1; });
  std::stable_sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return size_of(a.stride) < size_of(b.stride);
  });
  double reach = double(row);
  const Extent* inner = nullptr;
  for (const Extent& extent : extents) {
    if (double(size_of(extent.stride)) < reach) {
      return invalid_argument(fmt::format(
          "{}.{}={}{} makes rows of {} elements overlap; {} or more would fit", owner, extent.name,
          extent.stride,
          inner != nullptr ? fmt::format(" beside {}={}", inner->name, inner->stride) : "", row,
          int64_t(std::min(reach, 9e18))));
    }
    reach += double(size_of(extent.stride)) * double(extent.count - 1);
    inner = &extent;
  }
  return Unit{};
}

bool may_overlap(const Footprint& a, const Footprint& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  for (const Footprint* each : {&a, &b}) {
    if (each->row_bytes == 0) return false;
    for (const auto& [stride, count] : each->extents) {
      if (count <= 0) return false;
    }
  }
  const Range x = range_of(a), y = range_of(b);
  if (x.last <= y.first || y.last <= x.first) return false;
  std::vector<int64_t> thresholds = {1};
  for (const Footprint* each : {&a, &b}) {
    for (const auto& [stride, count] : each->extents) thresholds.push_back(size_of(stride));
  }
  return std::none_of(thresholds.begin(), thresholds.end(),
                      [&](int64_t least) { return apart_at(a, b, least); });
}

}  // namespace splitkv
