// The public n-ary merge: source of a kernel that joins n partials of one form and base, row by
// row, in their order, for any number of parts, rows and dims and any strides.
#pragma once

#include <cstdint>

#include "codegen/kernel_source.hpp"
#include "codegen/launch_args.hpp"
#include "compiler/problem.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// The one argument of the merge kernel: by value on CUDA, by pointer on the CPU. Strides in floats.
// templates/merge_parts.cuh declares the same struct.
struct MergeArgs {
  const float* o = nullptr;       // [parts][rows][dim]
  const float* s_or_m = nullptr;  // [parts][rows]
  const float* l = nullptr;       // mlo only
  float* out = nullptr;           // may be o of part 0
  float* out_s_or_m = nullptr;
  float* out_l = nullptr;

  int64_t o_stride_part = 0;
  int64_t o_stride_row = 0;
  int64_t statistics_stride_part = 0;
  int64_t statistics_stride_row = 0;
  int64_t out_stride_row = 0;
  int64_t out_statistics_stride_row = 0;
  int64_t parts = 0;
  int64_t rows = 0;
  int64_t dim = 0;
  // Where a part whose statistics are no partial's is recorded (kBadStatistic); may be null.
  ErrorRecord* errors = nullptr;
};

static_assert(sizeof(MergeArgs) == 16 * 8);

inline constexpr int kMaxMergeDim = 4096;

// form: mlo or lse. base: natural or base2 (the unit of m and S). The kernel's name is
// source.split_name; reduce_name is empty. CUDA: one warp a row, kMergeWarps warps a block, grid.x
// = ceil(rows / kMergeWarps). CPU: void(const MergeArgs*, int64_t first_row, int64_t end_row).
// A row of which a part has an S or m of +inf or NaN, or beside an m above -inf an l that is
// negative, +inf or NaN, becomes NaN, o and statistics, and is recorded.
inline constexpr int kMergeWarps = 4;
KernelSource emit_merge(Merge form, LseOutput base, const Target& target);

}  // namespace splitkv
