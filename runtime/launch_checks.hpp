// The checks of splitkv_args against a problem, all that can be made without looking at device
// memory. Each refusal names the field, its value and what would fit.
#pragma once

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// Pointers and values of everything but the work buffers.
Outcome check_args(const Problem& problem, const splitkv_args& args);

}  // namespace splitkv
