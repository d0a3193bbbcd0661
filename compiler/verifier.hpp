// The verifier: every limit of SplitKV is one function named as the fact it guarantees, listed in
// one table. An option is honoured or refused here; nothing downstream ignores one.
#pragma once

#include <optional>
#include <span>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// A rule returns its refusal, or nothing when the fact holds.
struct ProblemRule {
  const char* name;
  std::optional<Refusal> (*check)(const Problem&, const Target&);
};
struct ScheduleRule {
  const char* name;
  std::optional<Refusal> (*check)(const Problem&, const Schedule&, const Target&);
};

std::span<const ProblemRule> problem_rules();
std::span<const ScheduleRule> schedule_rules();

// The first refusal in table order, or nothing. Microseconds; no device is asked. With a schedule,
// the problem's own rules come first. A rule may rely on the facts of those before it in the table.
std::optional<Refusal> verify(const Problem& problem, const Target& target);
std::optional<Refusal> verify(const Problem& problem, const Schedule& schedule,
                              const Target& target);

}  // namespace splitkv
