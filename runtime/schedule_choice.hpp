// Which schedule a prepare uses, and why: the caller's words, else those of SPLITKV_SCHEDULE, over
// the library's own choice. That is what was tuned (tuned_schedules.hpp), else what the cost model
// chooses.
#pragma once

#include <string>

#include "compiler/default_schedule.hpp"
#include "runtime/tuned_schedules.hpp"

namespace splitkv {

// `argument` may be null. Words that the text leaves out are the library's choice. What follows
// from a named word:
//  - splits=N alone on a flat choice means partition=fixed;
//  - a partition named without its count keeps about the grid of the library's choice: fixed and
//    strided get splits = blocks / sequences of the workload, flat gets blocks = splits *
//    sequences;
//  - splits that are no whole clusters of the library's choice, where the words name neither reduce
//    nor cluster, are joined by the last arriving block;
//  - clusters of more than 2 blocks are not launched early unless pdl=on is named.
// invalid_argument when the words do not parse, unsupported when a rule refuses the schedule; the
// message says whether the argument or the variable held it. Words that name another family than
// what was tuned, and whole schedules, are not read over that. tuned: null for none.
Result<ScheduleChoice> choose_schedule(const Problem& problem, const Workload& workload,
                                       const Target& target, const char* argument,
                                       const std::string& variable,
                                       TunedSchedules* tuned = nullptr);

}  // namespace splitkv
