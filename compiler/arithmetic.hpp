// Whole-number arithmetic of sizes and counts: nothing negative, units above 0.
#pragma once

namespace splitkv {

template <class Count, class Unit>
constexpr auto ceil_div(Count count, Unit unit) {
  return (count + unit - 1) / unit;
}

// The least multiple of `unit` that holds `count`.
template <class Count, class Unit>
constexpr auto round_up(Count count, Unit unit) {
  return ceil_div(count, unit) * unit;
}

}  // namespace splitkv
