// The public n-ary merge: joins n partials of each query row, in their order, for partials that
// come from other kernels, devices or machines. One warp a row.
#pragma once

#include "args.cuh"
#include "merge.cuh"
#include "types.cuh"

namespace splitkv {

// The kernel's only parameter; the host holds the same struct. Strides in floats.
struct MergeArgs {
  const float* o;       // [parts][rows][dim], normalised
  const float* s_or_m;  // [parts][rows]
  const float* l;       // mlo only
  float* out;           // may be o of part 0
  float* out_s_or_m;
  float* out_l;

  i64 o_stride_part;
  i64 o_stride_row;
  i64 statistics_stride_part;
  i64 statistics_stride_row;
  i64 out_stride_row;
  i64 out_statistics_stride_row;
  i64 parts;
  i64 rows;
  i64 dim;
  ErrorRecord* errors;  // where a statistic that no partial has is recorded; may be null
};

// Code of a record: part `slot` of row `row` holds an S or m, or an l, whose bits are `value`.
constexpr i32 kBadStatistic = 4;

// Statistics of one part in log2 units differ from those in memory by this factor.
template <LseOutput Base>
__device__ inline float log2_unit() {
  return Base == LseOutput::base2 ? 1.0f : 1.44269504088896340736f;
}

// A part's weight before division by the sum of all: 0 for an empty one, by selection.
template <LseOutput Base>
__device__ inline float part_weight(const Statistics& part, float top) {
  const float weight = exp2((part.m - top) * log2_unit<Base>()) * part.l;
  return part.m == negative_infinity() ? 0.0f : weight;
}

template <Merge Form>
__device__ inline Statistics load_part(const MergeArgs& args, i64 part, i64 row) {
  const i64 index = part * args.statistics_stride_part + row * args.statistics_stride_row;
  const float m = args.s_or_m[index];
  if constexpr (Form == Merge::mlo) return {m, args.l[index]};
  return {m, m == negative_infinity() ? 0.0f : 1.0f};
}

// A partial's m is below +inf, and where it is above -inf its l is finite and not negative. NaN is
// neither.
__device__ inline bool has_finite_m(const Statistics& part) {
  return part.m < -negative_infinity();
}
__device__ inline bool is_partial(const Statistics& part) {
  if (part.m == negative_infinity()) return true;
  return has_finite_m(part) && part.l >= 0.0f && part.l < -negative_infinity();
}

// The first record is kept. `code` is written last, past a fence, so that whoever sees it sees all.
__device__ inline void report_statistic(ErrorRecord* errors, i64 row, i64 part,
                                        const Statistics& statistics) {
  if (errors == nullptr || atomicCAS_system(&errors->claimed, 0, 1) != 0) return;
  volatile ErrorRecord* record = errors;
  record->row = i32(row);
  record->slot = i32(part);
  record->value = __float_as_uint(has_finite_m(statistics) ? statistics.l : statistics.m);
  __threadfence_system();
  record->code = kBadStatistic;
}

// m in the base of the parts, l the sum of their weights; both NaN where a part is no partial.
template <Merge Form, LseOutput Base>
__device__ inline Statistics join_parts(const MergeArgs& args, i64 row, int lane) {
  float top = negative_infinity();
  bool all_partials = true;
  for (i64 part = lane; part < args.parts; part += 32) {
    const Statistics statistics = load_part<Form>(args, part, row);
    top = fmaxf(top, statistics.m);
    if (is_partial(statistics)) continue;
    all_partials = false;
    report_statistic(args.errors, row, part, statistics);
  }
  if (!__all_sync(all_lanes, all_partials))
    return {__int_as_float(0x7fc00000), __int_as_float(0x7fc00000)};
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, offset));
  }
  float sum = 0.0f;
  for (i64 part = lane; part < args.parts; part += 32) {
    sum += part_weight<Base>(load_part<Form>(args, part, row), top);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(all_lanes, sum, offset);
  return {top, sum};
}

// By one warp. Statistics of NaN make weights, and so o, NaN. Every element is read from all parts
// before it is written, and the statistics are written last, so that the result may lie where part
// 0 lies.
template <Merge Form, LseOutput Base>
__device__ inline void merge_row(const MergeArgs& args, i64 row, int lane) {
  const Statistics all = join_parts<Form, Base>(args, row, lane);
  // -0 is neutral in addition: a single part that is not empty keeps its bits.
  const float start = all.l == 0.0f ? 0.0f : -0.0f;
  for (i64 dim = lane; dim < args.dim; dim += 32) {
    float sum = start;
    for (i64 part = 0; part < args.parts; ++part) {
      const float weight = part_weight<Base>(load_part<Form>(args, part, row), all.m);
      if (weight == 0.0f) continue;
      const float o = args.o[part * args.o_stride_part + row * args.o_stride_row + dim];
      sum = fmaf(weight / all.l, o, sum);
    }
    args.out[row * args.out_stride_row + dim] = sum;
  }
  __syncwarp();
  if (lane != 0) return;
  const i64 index = row * args.out_statistics_stride_row;
  if constexpr (Form == Merge::mlo) {
    args.out_s_or_m[index] = all.m;
    args.out_l[index] = all.l;
  } else {
    args.out_s_or_m[index] =
        all.l == 0.0f ? negative_infinity() : all.m + log2_of(all.l) / log2_unit<Base>();
  }
}

// Entry: grid.x = ceil(rows / warps), `warps` warps a block.
template <Merge Form, LseOutput Base>
__device__ inline void merge_parts(const MergeArgs& args, int warps) {
  const i64 row = i64(blockIdx.x) * warps + threadIdx.x / 32;
  if (row < args.rows) merge_row<Form, Base>(args, row, threadIdx.x % 32);
}

}  // namespace splitkv
