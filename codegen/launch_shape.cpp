#include "codegen/launch_shape.hpp"

#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"

namespace splitkv {
namespace {

int64_t sequences_of(const Problem& problem, const Schedule& schedule, int64_t batch) {
  return batch * problem.kv_heads * row_blocks(problem, schedule);
}

bool on_cpu(const Schedule& schedule) { return schedule.family == Family::vector; }

// A flat block has at most two sequences that it does not own whole: the one it starts in and the
// one it stops in.
int64_t partial_slots(const Schedule& schedule, int64_t sequences) {
  if (!exchanges_partials(schedule)) return 0;
  if (schedule.partition == Partition::flat) return int64_t(2) * schedule.blocks;
  return sequences * partials_of_sequence(schedule);
}

// Arrival counters of a sequence: one, or with clusters one for each slice of its rows.
int64_t counters_of_sequence(const Schedule& schedule) {
  if (schedule.reduce == Reduce::kernel) return 0;
  return schedule.reduce == Reduce::cluster ? schedule.cluster : 1;
}

}  // namespace

LaunchShape launch_shape(const Problem& problem, const Schedule& schedule, int64_t batch) {
  LaunchShape shape;
  shape.sequences = sequences_of(problem, schedule, batch);
  const bool flat = schedule.partition == Partition::flat;
  shape.split_blocks = flat ? schedule.blocks : shape.sequences * schedule.splits;
  shape.split_threads = on_cpu(schedule) ? 1 : 32 * schedule.warps;
  if (schedule.reduce == Reduce::kernel && exchanges_partials(schedule)) {
    const int warps = std::min(4, schedule.rows);  // each joins one row
    shape.reduce_blocks =
        on_cpu(schedule) ? shape.sequences : shape.sequences * ceil_div(schedule.rows, warps);
    shape.reduce_threads = on_cpu(schedule) ? 1 : 32 * warps;
  }
  shape.split_smem_bytes = resources_of(problem, schedule, Target{}).smem_bytes;
  shape.cluster = schedule.cluster;
  shape.pdl = schedule.pdl;
  return shape;
}

BufferSizes buffer_sizes(const Problem& problem, const Schedule& schedule, int64_t batch) {
  BufferSizes sizes;
  const int64_t sequences = sequences_of(problem, schedule, batch);
  const int64_t slot_rows = partial_slots(schedule, sequences) * schedule.rows;
  if (slot_rows == 0) return sizes;
  const int64_t statistics = exchanged_merge(problem, schedule) == Merge::lse ? 1 : 2;
  sizes.partial_o_offset = round_up(slot_rows * schedule.cluster * statistics, 4);
  sizes.scratch_bytes =
      4 * sizes.partial_o_offset + slot_rows * problem.dim_v * size_bytes(schedule.partial_dtype);
  sizes.state_bytes = 4 * sequences * counters_of_sequence(schedule);
  return sizes;
}

}  // namespace splitkv
