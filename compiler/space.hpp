// The schedule space of a problem on a target: every combination that the verifier accepts.
#pragma once

#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// All legal schedules over the code-changing fields, with `splits` and `blocks` drawn from the
// given launch values.
std::vector<Schedule> schedule_space(const Problem& problem, const Target& target,
                                     const std::vector<int>& splits,
                                     const std::vector<int>& blocks);

}  // namespace splitkv
