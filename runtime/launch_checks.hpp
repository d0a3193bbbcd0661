// The checks of splitkv_args against a problem, all that can be made without looking at device
// memory. Each refusal names the field, its value and what would fit.
#pragma once

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// The form of the partial that out=partial gives: mlo where the problem says so, else lse.
inline Merge partial_form(const Problem& problem) {
  return problem.merge == Merge::mlo ? Merge::mlo : Merge::lse;
}

// Whether a run writes args.lse: the log-sum-exp, or S or m of a partial.
inline bool writes_lse(const Problem& problem) {
  return problem.lse != LseOutput::none || problem.out_partial;
}

// Pointers and values of everything but the work buffers.
Outcome check_args(const Problem& problem, const splitkv_args& args);

}  // namespace splitkv
