// The schedule that is used when nothing was tuned. CUDA: the least predicted
// (compiler/cost_model.hpp) of some hundred candidates. CPU: as many pieces as keep the threads
// busy.
#pragma once

#include <optional>
#include <string>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "compiler/workload.hpp"

namespace splitkv {

// Who had the last word on a schedule.
enum class Decider {
  cost_model,
  record_exact,         // a tuning record of the problem, workload and machine
  record_near,          // one of a workload at most two steps away
  record_other_device,  // one of another device of the architecture
  argument,             // words of the caller
  environment,          // words of SPLITKV_SCHEDULE
  decision,             // made in another process
};
const char* name(Decider decider);  // "cost model", "record exact", ...

struct ScheduleChoice {
  Schedule schedule;
  std::string why;  // one line: what was weighed and what decided
  Decider decider = Decider::cost_model;
};

// What deterministic=on is weighed on: nothing that the caller says, so that each row is cut alike
// everywhere.
inline constexpr Workload kOneLongRow = {1, 16384};

// The problem must verify on the target; the result verifies too. With deterministic=on the result
// depends on problem and target alone. A family that is named is the one chosen, where it takes the
// problem; where it does not, the library's own choice stands (and the caller's verify refuses).
ScheduleChoice default_schedule(const Problem& problem, const Workload& workload,
                                const Target& target, std::optional<Family> family = std::nullopt);

}  // namespace splitkv
