// What a (problem, schedule) pair costs on a target, computed before any code exists. The emitted
// kernel asserts the shared-memory figure; tests compare it with what the compiler reports.
#pragma once

#include <cstdint>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv {

struct Resources {
  int threads_per_block = 0;
  int registers_per_thread = 0;  // an estimate, of the split kernel
  int64_t smem_bytes = 0;        // dynamic shared memory of the split kernel, exact
  int blocks_per_sm = 0;         // that fit at once, by threads, registers and shared memory

  bool operator==(const Resources&) const = default;
};

// How a lane group of the simt family covers a head: `lanes` lanes (a power of two up to 32), each
// holding `slice_qk` and `slice_v` elements in vectors of `vector_*` elements.
struct LaneShape {
  int lanes = 0;
  int vector_k = 0;  // elements one load of K brings: align / sizeof(k)
  int vector_v = 0;
  int slice_qk = 0;  // elements of dim_qk a lane holds, a multiple of vector_k
  int slice_v = 0;

  bool operator==(const LaneShape&) const = default;
};
LaneShape lane_shape(const Problem& problem);

Resources resources_of(const Problem& problem, const Schedule& schedule, const Target& target);

// Bytes of one partial row: (dim_v + 2) floats as mlo, (dim_v + 1) as lse.
int64_t partial_row_bytes(const Problem& problem, const Schedule& schedule);

// Bytes of K and V that a decode step over rows of these total tokens must read at least.
int64_t kv_bytes(const Problem& problem, int64_t total_tokens);

}  // namespace splitkv
