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
  int registers_per_thread = 0;  // values that a thread must hold in its loop: an estimate
  int compiled_registers = 0;    // what a compiler is expected to take for the split kernel: the
                                 // loop, the walk and the joins; no more than so many threads leave
  int64_t smem_bytes = 0;        // dynamic shared memory of the split kernel, exact
  int blocks_per_sm = 0;         // that fit at once, by threads, compiled_registers and smem_bytes

  bool operator==(const Resources&) const = default;
};

// How a lane group of the simt family covers a head: `lanes` lanes (a power of two up to 32), each
// holding `slice_qk` and `slice_v` elements in vectors of `vector_*` elements.
struct LaneShape {
  int lanes = 0;
  int vector_k = 0;  // elements one load of K brings: a power of two up to 8 that align allows and
                     // that divides dim_qk
  int vector_v = 0;
  int slice_qk = 0;  // elements of dim_qk a lane holds, a multiple of vector_k
  int slice_v = 0;

  bool operator==(const LaneShape&) const = default;
};
LaneShape lane_shape(const Problem& problem);

// Memory of the mma family. A warp takes 16 keys a step and stages `stages` steps; K and V rows lie
// in shared memory at these pitches, each step followed by the keys' scales: 16 floats of K, 16 of
// V. All sizes are in bytes.
struct MmaShape {
  int panels = 0;           // panels_of_a_warp()
  int copy_k = 0;           // one copy of K brings: 2 to 16
  int copy_v = 0;           // one copy of V
  int64_t pitch_q = 0;      // q rows, in 16-bit elements padded to a multiple of 16
  int64_t pitch_k = 0;      // staged rows of K: 16-bit padded likewise, 8-bit as in memory
  int64_t pitch_v = 0;      // staged rows of V; 0: they are K's
  int64_t work_pitch = 0;   // rows of 8-bit types after conversion; 0: there are none
  int64_t scale_bytes = 0;  // of a step; 0 unless the keys carry scales
  int64_t step_bytes = 0;   // one staged step of a stream
  int64_t work_bytes = 0;   // converted rows of a stream
  int column_k = 0;         // loads=tensor: bytes of the columns that rows of K are cut into
  int column_v = 0;
  int64_t barrier_bytes = 0;  // loads=tensor: a barrier of every stage of every stream
  int64_t q_bytes = 0;        // q rows of the block
  int64_t loop_bytes = 0;     // of a block while it walks its keys: q, then the streams' parts

  bool operator==(const MmaShape&) const = default;
};
MmaShape mma_shape(const Problem& problem, const Schedule& schedule);

// Memory of the wgmma family. Query rows, K and V lie in columns of 64 elements, a column of all
// rows in one place; so do the weights, 64 x 64 of them, where K has done its part. All sizes are
// in bytes.
struct WgmmaShape {
  int columns_k = 0;          // of a row of K
  int columns_v = 0;          // of a row of V; 0: they are K's
  int half_v = 0;             // columns of V that one of the two warp groups multiplies
  int64_t q_bytes = 0;        // query rows of the block, padded to 64
  int64_t stage_bytes = 0;    // a tile of K and V, and room for weights where K leaves none
  int64_t loop_bytes = 0;     // of a block while it walks its keys
  int64_t barrier_bytes = 0;  // barriers of the stages, and statistics that warp groups exchange

  bool operator==(const WgmmaShape&) const = default;
};
WgmmaShape wgmma_shape(const Problem& problem, const Schedule& schedule);

inline constexpr int kMaxRegistersPerThread = 255;
inline constexpr int kMmaStep = 16;        // keys a warp takes at once
inline constexpr int kMaxClusters = 32;    // of a sequence: a lane of a warp each
inline constexpr int kTensorRowUnit = 64;  // loads=tensor: bytes that divide a row
inline constexpr int kMaxMmaRows = 64;     // query rows of a warp
inline constexpr int kWgmmaTile = 64;      // keys and query rows of a product
inline constexpr int kWgmmaColumn = 64;    // elements of a column
inline constexpr int kWgmmaWarps = 8;      // two groups of 4
inline constexpr int kMaxWgmmaDimV = 512;
inline constexpr int kMmaAccumulatorColumns = 512;  // panels * dim_v that a warp's registers hold

// Panels of 8 query rows that a warp of the mma family holds.
int panels_of_a_warp(const Schedule& schedule);

// Columns that one copy by tensor map brings of a row of so many, of the wgmma family: up to 4, so
// that the first products begin before a tile has come whole.
int columns_of_a_copy(int columns);

// Query rows that a warp of the mma family can hold; 0 where dim_v is too large for one panel.
int most_mma_rows(const Problem& problem);

Resources resources_of(const Problem& problem, const Schedule& schedule, const Target& target);

// Dynamic shared memory of the split kernel, which is the same on every target; 0 on the CPU.
int64_t split_smem_bytes(const Problem& problem, const Schedule& schedule);

// reduce=cluster: shared memory of a block beyond what it needs alone, into which the blocks of its
// cluster write: of each its slice of the rows' outputs and m and l of every row. Else 0.
int64_t cluster_join_bytes(const Problem& problem, const Schedule& schedule);

// Bytes of one partial row: dim_v elements of the schedule's partial_dtype, and 2 floats as mlo or
// 1 as lse; with clusters as many for each of their blocks.
int64_t partial_row_bytes(const Problem& problem, const Schedule& schedule);

// Bytes of K and V that a decode step over rows of these total tokens must read at least.
int64_t kv_bytes(const Problem& problem, int64_t total_tokens);

}  // namespace splitkv
