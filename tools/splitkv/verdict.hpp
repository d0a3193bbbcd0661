// Whether a result is right: against the fp64 reference, or against expected values from files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "tools/reference/accuracy.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/partials.hpp"

namespace splitkv::tool {

// What out and lse ought to be.
struct Expected {
  std::string origin;               // "fp64 reference", or the names of files
  std::vector<double> out;          // [token rows, q_heads, dim_v]; empty: not compared
  std::vector<double> lse;          // [token rows, q_heads] in the problem's base; likewise
  std::vector<double> lse_natural;  // likewise: for the tolerance of lse partials
};

// Shape of out (row: dim_v) and lse (row: 0) in files: [batch, query_len, q_heads, row], without
// query_len where it is 1.
std::vector<int64_t> output_shape(const Problem& problem, int64_t batch, int64_t row);

// The reference's answer on the rounded inputs.
Expected expect_from_reference(const Problem& problem, const Inputs& inputs);

// Either path may be empty. Refuses shapes other than output_shape.
Result<Expected> expect_from_files(const Problem& problem, int64_t batch,
                                   const std::string& out_path, const std::string& lse_path);

// The contract's tolerance for the problem's types, widened where partials were exchanged as (S,
// o).
reference::Tolerance tolerance_of(const Problem& problem, bool exchanged_lse_partials);

// The same of a run whose pieces were those of `partials`; three times as wide where outputs were
// exchanged in bf16: each was rounded once more, and what cancels between pieces does not shrink
// with the sum.
reference::Tolerance tolerance_of(const Problem& problem, const Schedule& schedule,
                                  const PartialCount& partials);

reference::Accuracy judge(const Problem& problem, const Execution& execution,
                          const Expected& expected, const reference::Tolerance& tolerance);

}  // namespace splitkv::tool
