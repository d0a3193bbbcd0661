// Candidates that misbehave for real: code that does wrong lies in a disk cache under the key of a
// schedule's kernel, where whoever prepares it finds it. CPU.
#pragma once

#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv::tuning_test {

enum class Misdeed {
  other_numbers,  // attention with another scale
  writes_nothing,
  crashes,
  hangs,
};

// Keeps it in `folder`, for every schedule that shares the kernel.
void plant(const std::string& folder, const Problem& problem, const Schedule& schedule,
           const Target& target, Misdeed misdeed);

// Digest of the schedule's kernel.
std::string kernel_digest(const Problem& problem, const Schedule& schedule, const Target& target);

}  // namespace splitkv::tuning_test
