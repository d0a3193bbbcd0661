// Rows in vectors, and the partials that blocks exchange through scratch: statistics in the form
// that the schedule names, outputs normalised.
#pragma once

#include "args.cuh"
#include "convert.cuh"
#include "merge.cuh"

namespace splitkv {

// A vector of one of a block's rows: four elements, or two where dim_v is no multiple of 4.
template <Config C>
struct RowVector {
  static constexpr int width = C.dim_v % 4 == 0 ? 4 : 2;
  static constexpr int a_row = C.dim_v / width;
  static constexpr int count = C.rows * a_row;

  int row;
  int dim;

  __device__ explicit RowVector(int index) : row(index / a_row), dim(index % a_row * width) {}
};

template <Config C>
__device__ inline float4 load_vector(const float* from) {
  if constexpr (RowVector<C>::width == 4) return *reinterpret_cast<const float4*>(from);
  const float2 two = *reinterpret_cast<const float2*>(from);
  return {two.x, two.y, 0.0f, 0.0f};
}

template <Config C>
__device__ inline void store_vector(float* to, const float4& value) {
  if constexpr (RowVector<C>::width == 4) {
    *reinterpret_cast<float4*>(to) = value;
  } else {
    *reinterpret_cast<float2*>(to) = {value.x, value.y};
  }
}

// sum += weight * value, the first `width` elements.
template <Config C>
__device__ inline void add_vector(float4& sum, float weight, const float4& value) {
  sum.x = fmaf(weight, value.x, sum.x);
  sum.y = fmaf(weight, value.y, sum.y);
  if constexpr (RowVector<C>::width == 4) {
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
  }
}

// Adds weight * value. Where the weight is 0 the value's bits become those of -0, whose product
// with 0 is -0 and leaves every sum as it was: an empty partial is passed over by selection.
struct Passing {
  float weight;
  u32 keep;
  u32 fill;

  __device__ explicit Passing(float w)
      : weight(w), keep(w != 0.0f ? all_lanes : 0u), fill(w != 0.0f ? 0u : 0x80000000u) {}

  __device__ float passed(float value) const {
    return __uint_as_float((__float_as_uint(value) & keep) | fill);
  }

  template <Config C>
  __device__ void add_vector(float4& sum, const float4& value) const {
    splitkv::add_vector<C>(sum, weight,
                           {passed(value.x), passed(value.y), passed(value.z), passed(value.w)});
  }
};

// The share of a partial in the union of all, `unit` = 1 / all.l. Of a union of one it is exactly
// 1, so that joining empties changes no bit.
__device__ inline float share_of(const Statistics& own, const Statistics& all, float unit) {
  if (own.l == 0.0f) return 0.0f;
  const bool alone = own.m == all.m && own.l == all.l;
  return alone ? 1.0f : weight_of(own.m, all.m) * own.l * unit;
}

// ---- in scratch
// ---------------------------------------------------------------------------------

// Statistics as a reader of the partial gets them.
template <Merge M>
__device__ inline Statistics exchanged(const Statistics& s) {
  if constexpr (M == Merge::mlo) return s;
  return {log2_sum(s), s.l == 0.0f ? 0.0f : 1.0f};
}

template <Config C>
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
template <Config C>
__device__ inline void store_partial(const LaunchArgs& args, i64 index, const float4& value) {
  float* outputs = args.partials + args.partial_o_offset;
  if constexpr (C.partial_dtype == DType::fp32) {
    store_vector<C>(outputs + index, value);
  } else {
    store_four<C.partial_dtype, RowVector<C>::width>(outputs, index, value);
  }
}

template <Config C>
__device__ inline float4 load_partial(const LaunchArgs& args, i64 index) {
  constexpr int width = RowVector<C>::width;
  const float* outputs = args.partials + args.partial_o_offset;
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

}  // namespace splitkv
