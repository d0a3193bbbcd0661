// The merge algebra, as it is used at every level. Inside a block partial results are kept
// unnormalised, (m, l, acc) with acc = sum of exp2(score - m) v; exchanged partials are normalised
// and written as (m, l, o) or (S, o). Scores, m and S are in log2 units.
//
// An empty partial has m = -inf, l = 0 (S = -inf): its weight is 2^-inf = 0, never computed from
// inf - inf, and its o is -0, which changes no sum (partials.cuh).
#pragma once

#include "config.cuh"
#include "types.cuh"

namespace splitkv {

// 2^x to 2 ulp; results below 2^-126 become 0, and so does 2^-inf.
__device__ inline float exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x to 1 ulp.
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// log2 x to 2^-22 absolute, which is below an ulp of any S that matters.
__device__ inline float log2_of(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// What weights are taken against: `top`, the largest m of a join, or where all of it is empty the
// least finite number, so that -inf - -inf never arises.
__device__ inline float finite_top(float top) { return fmaxf(top, -largest_float); }

// exp2(m - top), exactly 0 for an empty partial.
__device__ inline float weight_of(float m, float top) { return exp2(m - finite_top(top)); }

// What is known of a partial besides o: its maximum, and its sum of weights relative to it.
// (S, o) is the partial with m = S and l = 1.
struct Statistics {
  float m;
  float l;
};

__device__ inline Statistics empty_statistics() { return {negative_infinity(), 0.0f}; }

__device__ inline float log2_sum(const Statistics& s) {
  return s.l == 0.0f ? negative_infinity() : s.m + log2_of(s.l);
}

// Statistics of slot-row `index` (slot * rows + row) in a partials buffer.
template <Merge M>
__device__ inline void store_statistics(float* partials, i64 index, const Statistics& s) {
  if constexpr (M == Merge::mlo) {
    partials[2 * index] = s.m;
    partials[2 * index + 1] = s.l;
  } else {
    partials[index] = log2_sum(s);
  }
}

// Statistics of the union of disjoint sets of keys, joined over groups of `Lanes` neighbouring
// lanes: every lane brings one and all of a group get the same result.
template <int Lanes = 32>
__device__ inline Statistics join_over_lanes(Statistics s) {
  float top = s.m;
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, offset));
  }
  float sum = weight_of(s.m, top) * s.l;
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(all_lanes, sum, offset);
  }
  return {top, sum};
}

// Joins a further one; both orders of arguments give the same bits.
__device__ inline Statistics join(const Statistics& a, const Statistics& b) {
  const float top = fmaxf(a.m, b.m);
  return {top, weight_of(a.m, top) * a.l + weight_of(b.m, top) * b.l};
}

}  // namespace splitkv
