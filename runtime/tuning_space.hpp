// Which schedules are worth compiling and measuring for a problem.
#pragma once

#include <vector>

#include "codegen/launch_shape.hpp"
#include "runtime/tuning_bench.hpp"

namespace splitkv {

// The library's own choice for the point first; then, at most `most` in all. CUDA: of every legal
// code (rows, tile, warps, stages) with every launch that fits the point, the least predicted of
// each kind of partition and reduce, and the least predicted of all, in turn. CPU, of which there
// is no cost model: the choice with every other value of one word, and of two.
std::vector<Schedule> tuning_candidates(const Problem& problem, const TuningPoint& point,
                                        const Target& target, int most);

// A schedule with the other value of merge and pdl each, where it is legal and matters. Partials in
// bf16 are never tried: they round once more than the accuracy contract allows unasked.
std::vector<Schedule> neighbours(const Schedule& schedule, const Problem& problem,
                                 const Target& target);

// Bytes of scratch and state that are enough, for every batch up to max_batch, for all candidates
// of workloads in the buckets of these, with their neighbours, and for the library's own choices
// there. No workloads: for those of all workloads, which takes far more, as one long row is cut
// finely. partial_o_offset is 0.
BufferSizes adoptable_sizes(const Problem& problem, const Target& target,
                            const std::vector<Workload>& workloads, int64_t max_batch);

}  // namespace splitkv
