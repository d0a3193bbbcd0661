// The schedules that are weighed when nothing was tuned: codes (family, rows, warps, stages) times
// launches (partition, splits or blocks, reduce). A few hundred at most, all but a few of them
// legal.
#pragma once

#include <optional>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "compiler/workload.hpp"

namespace splitkv {

// Codes of the tensor-core family with four or eight warps and two to four stages (up to sixteen
// warps where several divide a group's rows), where none of those fits with fewer warps; where the
// family does not take the problem, or `family` says so, one code of simt. Those of wgmma, two to
// four stages, where `family` says so and they take the problem: nothing was measured yet. Each
// verifies on the target, a CUDA one.
std::vector<Schedule> code_candidates(const Problem& problem, const Target& target,
                                      std::optional<Family> family);

// Launches of one code that are worth weighing: fixed partitions whose grid runs at once or in two
// waves, with every reduce that the target has; for several batch rows, unless the problem is
// deterministic, flat ones too. Programmatic launches wherever they help.
std::vector<Schedule> launch_candidates(const Problem& problem, const Workload& workload,
                                        const Schedule& code, const Target& target);

// The same with every partition that the problem may have.
std::vector<Schedule> all_launches(const Problem& problem, const Workload& workload,
                                   const Schedule& code, const Target& target);

// Rows so that the group's query rows are in as few, equally full, row blocks of at most `most`
// rows as can be.
int balanced_rows(const Problem& problem, int most);

}  // namespace splitkv
