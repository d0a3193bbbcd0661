// How many partials a run exchanges, counted from the true lengths by the rules of
// codegen/launch_shape.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "tools/splitkv/key_range.hpp"

namespace splitkv::tool {

struct PartialCount {
  int64_t sequences = 0;  // (batch row, kv head, row block)
  int64_t divided = 0;    // sequences whose work lies in more than one piece
  int64_t partials = 0;   // pieces of divided sequences
  int64_t bytes = 0;      // that these partials fill: statistics and o of their real rows

  bool operator==(const PartialCount&) const = default;
};

PartialCount count_partials(const Problem& problem, const Schedule& schedule, const Rows& rows);

// Of rows that have query_len queries and all their keys.
PartialCount count_partials(const Problem& problem, const Schedule& schedule,
                            const std::vector<int32_t>& kv_len);

}  // namespace splitkv::tool
