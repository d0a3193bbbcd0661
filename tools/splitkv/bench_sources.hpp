// The CUDA C++ of the benchmark's own kernels: plain reads, inputs, and attention once more,
// simply. They share nothing with the library's templates, so that a fault of those cannot hide
// here.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"

namespace splitkv::tool {

// Entries, each (const void* data, u64 bytes, u32* sink), bytes a multiple of 16:
//   read_plain_4, read_plain_8     blocks of 512 threads
//   read_bulk_16, read_bulk_8      blocks of 256 threads and kBulkStages x 16 or 8 KB of dynamic
//                                  shared memory; from sm_90 on
// and fill (void* data, u64 elements, u64 seed, i32 type, float factor): blocks of 256 threads;
// type is a DType's number, values are about normal with a deviation of `factor`.
std::string floor_source();
inline constexpr int kPlainThreads = 512;
inline constexpr int kBulkThreads = 256;
inline constexpr int kBulkStages = 12;
inline constexpr int kFillThreads = 256;

// What attend is given; the same layout on host and device.
struct AttendArgs {
  const void* q;  // dense
  const void* k;
  const void* v;          // k where v_in_k
  const int32_t* kv_len;  // [batch]
  const int32_t* page_table;
  int64_t page_table_stride;
  int64_t k_stride_block, k_stride_head, k_stride_token;
  int64_t v_stride_block, v_stride_head, v_stride_token;
  const float* k_scale;
  const float* v_scale;
  double* scores;         // [blocks of the grid, scores_stride]
  int64_t scores_stride;  // at least the longest row
  float* expected;        // [batch, query_len, q_heads, dim_v]
  int64_t batch;
};

// Entries of the problem's own attention, in two passes over the scores, in fp64:
//   attend   (AttendArgs): any grid of kAttendThreads; a block takes one (batch row, query, head)
//            after another
//   compare  (const void* out, const float* expected, i64 rows, Compared*): kCompareThreads, a
//            warp a row
// The problem must have passed check_attend.
std::string attend_source(const Problem& problem);
inline constexpr int kAttendThreads = 1024;
inline constexpr int kCompareThreads = 256;

// What compare adds to; the same layout on host and device.
struct Compared {
  uint32_t worst = 0;  // bits of the greatest relative L2 error of a row as fp32; infinity for
                       // anything that is no number
  uint32_t rows = 0;   // that were compared
};

// The first word of the problem that attend does not know, as a refusal that names it.
Outcome check_attend(const Problem& problem);

}  // namespace splitkv::tool
