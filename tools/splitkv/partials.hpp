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
  int64_t divided = 0;    // sequences that have partials in scratch
  int64_t partials = 0;   // of them: one of each piece, or with clusters of each cluster of pieces
  int64_t bytes = 0;      // of these partials' real rows: statistics, with clusters a set for each
                          // block of one, and o
  int64_t pieces = 0;     // of sequences that have several, whether they are joined in scratch or
                          // in the shared memory of one cluster

  bool operator==(const PartialCount&) const = default;
};

PartialCount count_partials(const Problem& problem, const Schedule& schedule, const Rows& rows);

// Of rows that have query_len queries and all their keys.
PartialCount count_partials(const Problem& problem, const Schedule& schedule,
                            const std::vector<int32_t>& kv_len);

}  // namespace splitkv::tool
