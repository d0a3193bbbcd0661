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

TensorBox box_of(DType type, int dim, int column_bytes, int heads) {
  const int bytes = size_bytes(type);
  const int columns = dim * bytes / column_bytes;
  return {.element_bytes = bytes,
          .column = column_bytes / bytes,
          .columns = columns,
          .heads = heads,
          .copied_keys = kMmaStep,
          .copied_columns = columns};
}

// Of rows that are read as wgmma reads them.
TensorBox box_of_tile(DType type, int dim, int heads) {
  TensorBox box = box_of(type, dim, kWgmmaColumn * size_bytes(type), heads);
  box.copied_keys = kWgmmaTile;
  box.copied_columns = columns_of_a_copy(box.columns);
  return box;
}

void add_boxes(const Problem& problem, const Schedule& schedule, LaunchShape& shape) {
  if (schedule.family == Family::wgmma) {
    shape.k_box = box_of_tile(problem.k_dtype, problem.dim_qk, problem.kv_heads);
    if (!problem.v_in_k)
      shape.v_box = box_of_tile(problem.v_dtype, problem.dim_v, problem.kv_heads);
    return;
  }
  const MmaShape rows = mma_shape(problem, schedule);
  shape.k_box = box_of(problem.k_dtype, problem.dim_qk, rows.column_k, problem.kv_heads);
  if (problem.v_in_k) return;
  shape.v_box = box_of(problem.v_dtype, problem.dim_v, rows.column_v, problem.kv_heads);
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
  shape.split_smem_bytes = split_smem_bytes(problem, schedule);
  shape.cluster = schedule.cluster;
  shape.pdl = schedule.pdl;
  if (schedule.loads == Loads::tensor) add_boxes(problem, schedule, shape);
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
