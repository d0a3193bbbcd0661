// How far a result is from the reference, and how far it may be. The figures are those of the
// accuracy contract: relative L2 per (batch row, head) of out, absolute error of the log-sum-exp.
#pragma once

#include <cstdint>
#include <span>

#include "tools/reference/elements.hpp"

namespace splitkv::reference {

struct Tolerance {
  double out_relative_l2 = 0;
  double lse_absolute =
      0;  // each row's limit is max(lse_absolute, lse_ulp ulp of its |lse| in fp32)
  double lse_ulp = 0;
  double out_lse_ulp = 0;   // each row's out limit is max(out_relative_l2, out_lse_ulp ulp of its
                            // natural |lse| in fp32)
  double out_absolute = 0;  // what rounding may do to every element of out, however small: half
                            // the smallest fp16 number where out is fp16

  bool operator==(const Tolerance&) const = default;
};

// By the coarsest type that takes part, out included: fp32 1e-5, fp16 1e-3, bf16 4e-3; the lse 1e-5
// where all are fp32, else 1e-3, and 4 ulp in either case. 8-bit K and V are exact after
// dequantisation; beside fp32 they widen nothing, beside 16-bit types they count as bf16, since
// weights times V's scales may be rounded to bf16, whose range holds any scale.
Tolerance tolerance_for(std::span<const Element> types);

// Partials exchanged as (S, o) carry the rounding of S into every weight: a row's out limit becomes
// at least 4 ulp of its own |lse|.
Tolerance widened_for_lse_partials(Tolerance tolerance);

// The distance from |value|, as a float, to the next float above it.
double ulp_fp32(double value);

struct Accuracy {
  double out_relative_l2 = 0;  // of the row worst against its limit; infinity for a NaN, or for
                               // anything but 0 where the expected row is 0
  int64_t out_worst_row = 0;   // (batch row * heads + head)
  double lse_error = 0;        // absolute, of the row worst against its limit; infinity for a NaN
                               // or a wrong infinity
  int64_t lse_worst_row = 0;
  double out_limit = 0;  // what was allowed in that row
  double lse_limit = 0;  // what was allowed in that row
  bool out_ok = true;
  bool lse_ok = true;  // also true when no lse was compared

  bool ok() const { return out_ok && lse_ok; }
  bool operator==(const Accuracy&) const = default;
};

// out and expected_out: [rows, dim]. lse and expected_lse: [rows], in one base; both empty when
// there is none to compare.
struct Comparison {
  std::span<const double> out;
  std::span<const double> expected_out;
  std::span<const double> lse;
  std::span<const double> expected_lse;
  int64_t dim = 1;
  // [rows], natural: for limits that widen with |lse|. Empty: they do not.
  std::span<const double> lse_natural = {};
};

Accuracy compare(const Comparison& comparison, const Tolerance& tolerance);

}  // namespace splitkv::reference
