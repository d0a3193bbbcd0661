// Rows in vectors, and the partials that blocks exchange: statistics in the form that the schedule
// names, outputs normalised. The outputs of an empty partial are -0: its share of a union is 0, and
// their product, -0, leaves every sum as it was, so that joining empties changes no bit.
#pragma once

#include "args.cuh"
#include "convert.cuh"
#include "merge.cuh"

namespace splitkv {

// A vector of one of a block's rows: four elements, or two where dim_v is no multiple of 4.
template <const Config& C>
struct RowVector {
  static constexpr int width = C.dim_v % 4 == 0 ? 4 : 2;
  static constexpr int a_row = C.dim_v / width;
  static constexpr int count = C.rows * a_row;

  int row;
  int dim;

  __device__ explicit RowVector(int index) : row(index / a_row), dim(index % a_row * width) {}
};

// A lane's vector of those with which a warp is busy.
struct LaneVector {
  int row;
  int dim;
  int index;     // of the vector among those of all rows
  bool is_used;  // else the lane only takes part in what its row's lanes do together
};

// By a whole block: calls use(LaneVector) for vectors [begin, end) of its rows. Neighbouring lanes,
// Lanes of them, hold vectors of one row, so that they can share what they know of it; a warp
// enters every call as one.
template <const Config& C, int Lanes, class Use>
__device__ inline void for_each_vector(int begin, int end, const Use& use) {
  using Vector = RowVector<C>;
  constexpr int a_row = ceil_div(Vector::a_row, Lanes);  // turns
  constexpr int at_once = 32 / Lanes;
  const int first_row = begin / Vector::a_row;
  const int rows = (end - 1) / Vector::a_row - first_row + 1;
#pragma unroll 1
  for (int turn = threadIdx.x / 32; turn < ceil_div(rows, at_once) * a_row; turn += C.warps) {
    const int row = first_row + turn / a_row * at_once + threadIdx.x % 32 / Lanes;
    const int vector = turn % a_row * Lanes + threadIdx.x % Lanes;
    const int index = row * Vector::a_row + vector;
    const bool is_used = vector < Vector::a_row && index >= begin && index < end;
    use(LaneVector{smaller(row, C.rows - 1), is_used ? vector * Vector::width : 0, index, is_used});
  }
}

template <const Config& C>
__device__ inline float4 load_vector(const float* from) {
  if constexpr (RowVector<C>::width == 4) return *reinterpret_cast<const float4*>(from);
  const float2 two = *reinterpret_cast<const float2*>(from);
  return {two.x, two.y, 0.0f, 0.0f};
}

template <const Config& C>
__device__ inline void store_vector(float* to, const float4& value) {
  if constexpr (RowVector<C>::width == 4) {
    *reinterpret_cast<float4*>(to) = value;
  } else {
    *reinterpret_cast<float2*>(to) = {value.x, value.y};
  }
}

// sum += weight * value, the first `width` elements.
template <const Config& C>
__device__ inline void add_vector(float4& sum, float weight, const float4& value) {
  sum.x = fmaf(weight, value.x, sum.x);
  sum.y = fmaf(weight, value.y, sum.y);
  if constexpr (RowVector<C>::width == 4) {
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
  }
}

// What normalises a partial's accumulators, which are 0 where it is empty.
__device__ inline float partial_unit(const Statistics& s) {
  return s.l == 0.0f ? -0.0f : reciprocal(s.l);
}

// What normalises those of a whole row, whose outputs are 0 where it is empty.
__device__ inline float row_unit(const Statistics& s) {
  return s.l == 0.0f ? 0.0f : reciprocal(s.l);
}

// Where sums of shares begin: -0 is neutral, and the outputs of an empty row are 0.
__device__ inline float initial_sum(const Statistics& all) { return all.l == 0.0f ? 0.0f : -0.0f; }

// The share of a partial in the union of all, `unit` = row_unit(all). Of a union of one it is
// exactly 1.
__device__ inline float share_of(const Statistics& own, const Statistics& all, float unit) {
  if (own.l == 0.0f) return 0.0f;
  const bool alone = own.m == all.m && own.l == all.l;
  return alone ? 1.0f : weight_of(own.m, all.m) * own.l * unit;
}

// ---- in scratch
// ---------------------------------------------------------------------------------

template <const Config& C>
__device__ inline Statistics load_statistics(const LaunchArgs& args, i64 index) {
  if constexpr (C.merge == Merge::mlo) {
    return {load_shared_global(args.partials + 2 * index),
            load_shared_global(args.partials + 2 * index + 1)};
  } else {
    const float s = load_shared_global(args.partials + index);
    return {s, s == negative_infinity() ? 0.0f : 1.0f};
  }
}

// A vector at element `index` of the outputs.
template <const Config& C>
__device__ inline void store_partial(const LaunchArgs& args, i64 index, const float4& value) {
  float* outputs = args.partials + args.partial_o_offset;
  if constexpr (C.partial_dtype == DType::fp32) {
    store_vector<C>(outputs + index, value);
  } else {
    store_four<C.partial_dtype, RowVector<C>::width>(outputs, index, value);
  }
}

template <const Config& C>
__device__ inline float4 load_partial_at(const float* outputs, i64 index) {
  constexpr int width = RowVector<C>::width;
  if constexpr (C.partial_dtype == DType::fp32) {
    return load_shared_global_four<width>(outputs + index);
  } else {
    const Raw<2 * width> raw =
        load_shared_global_raw<2 * width>(reinterpret_cast<const u16*>(outputs) + index);
    float4 value = {element<C.partial_dtype>(raw, 0), element<C.partial_dtype>(raw, 1), 0.0f, 0.0f};
    if constexpr (width == 4) {
      value.z = element<C.partial_dtype>(raw, 2);
      value.w = element<C.partial_dtype>(raw, 3);
    }
    return value;
  }
}

template <const Config& C>
__device__ inline float4 load_partial(const LaunchArgs& args, i64 index) {
  return load_partial_at<C>(args.partials + args.partial_o_offset, index);
}

// From shared memory, or from what other blocks wrote to global memory: past L1.
__device__ inline float load_generic(const float* from) {
  float value;
  asm volatile("ld.relaxed.gpu.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

template <const Config& C>
__device__ inline float4 load_generic_vector(const float* from) {
  float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
  if constexpr (RowVector<C>::width == 4) {
    asm volatile("ld.relaxed.gpu.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(from)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.v2.f32 {%0, %1}, [%2];"
                 : "=f"(value.x), "=f"(value.y)
                 : "l"(from)
                 : "memory");
  }
  return value;
}

}  // namespace splitkv
