// How far a joined result is from that of one process, and how far it may be.
#pragma once

#include <vector>

#include "attention.hpp"

namespace context_parallel {

// o [rows, dim] and the natural log-sum-exp [rows].
struct Result {
  std::vector<float> o, lse;
};

// A result out of partials: of lse its S, of mlo m + log l.
Result result_of(const Partials& partials, const std::vector<float>& floats);

// The worst over all rows; a share is the error over what is allowed in that row, so that up to 1
// is right. Infinity for a NaN, and for anything but zeros in a row without keys.
struct Distance {
  double o_relative_l2 = 0, o_share = 0;
  double lse_absolute = 0, lse_share = 0;
};

// Held against the accuracy contract of docs/design.md: relative L2 of a row 1e-5 (fp32) or 4e-3
// (bf16), for lse partials at least 4 ulp of the row's log-sum-exp; the log-sum-exp within 1e-5
// (fp32) or 1e-3, or 4 ulp.
Distance distance(const Options& options, Merge form, const Result& got, const Result& expected);

}  // namespace context_parallel
