// What a decode step costs on a CUDA target, predicted from problem, lengths, schedule and the
// target's facts. A pure function, fast enough to weigh hundreds of schedules when a kernel is
// prepared. It is for comparing schedules of one problem: times of shapes like those it was fitted
// to are within some 15 %.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/cost_constants.hpp"
#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "compiler/workload.hpp"

namespace splitkv {

// Batch rows of one length, in tokens.
struct RowGroup {
  int64_t rows = 1;
  int64_t kv_len = 0;

  bool operator==(const RowGroup&) const = default;
};

// What most of the time goes to, and what would have to change for a shorter one.
enum class Bound {
  memory,     // blocks draw what device memory (or L2, where row blocks read again) gives
  warps,      // the warps in flight are too few to draw that
  imbalance,  // the longest block runs on while others have ended
  overheads,  // launch, start, joins and exchange
};
const char* name(Bound bound);

// The parts of a predicted time, one after the other, in microseconds.
struct Cost {
  double launch_us = 0;         // from the grid before to the first instruction
  double start_us = 0;          // to the first tile; flat: with finding it, and further sequences
  double read_us = 0;           // K and V, with the waves in which blocks that do not fit start
  double join_us = 0;           // the warps of a block
  double exchange_us = 0;       // partials among blocks
  double second_launch_us = 0;  // of a reduce kernel
  Bound bound = Bound::memory;

  // What reading would take at the rate of device memory, and on how many blocks at once.
  double floor_us = 0;
  int64_t blocks = 0;        // of the grid
  int64_t resident = 0;      // of those at once
  int64_t waves = 1;         // until all have run
  int64_t partials = 0;      // of a sequence, where they are exchanged, at most
  double block_bytes = 0;    // of K and V that the longest block reads
  double partial_bytes = 0;  // of partials that all blocks write, and that are read once

  double total_us() const {
    return launch_us + start_us + read_us + join_us + exchange_us + second_launch_us;
  }
};

// Problem and schedule must verify on the target, which is a CUDA one. At least one row; lengths
// count as far as a window or a chunk lets queries see them.
Cost predict(const Problem& problem, std::span<const RowGroup> rows, const Schedule& schedule,
             const Target& target, const CostConstants& constants = {});

// All rows of the longest length.
Cost predict(const Problem& problem, const Workload& workload, const Schedule& schedule,
             const Target& target);

// Tiles of a row of this length that its queries see; 1 at least, as each row has a block.
int64_t visible_tiles(const Problem& problem, const Schedule& schedule, int64_t kv_len);

// Bytes of K and V that one block has asked for and not yet taken, at most.
int64_t block_bytes_in_flight(const Problem& problem, const Schedule& schedule);

// Blocks of a grid that run at once: by resources, and as many clusters as find their SMs side by
// side. `fitting` is how many blocks fit one SM.
int64_t resident_blocks(const Schedule& schedule, int64_t fitting, const Target& target);

}  // namespace splitkv
