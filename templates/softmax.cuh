// The running, unnormalised softmax of one query row: (m, l, acc) over the keys seen so far, with
// acc = sum of exp2(score - m) v. Nothing is divided until the row's keys are done.
#pragma once

#include "merge.cuh"

namespace splitkv {

template <int Slice>
struct RunningRow {
  Statistics s;
  float acc[Slice];

  __device__ void clear() {
    s = empty_statistics();
#pragma unroll
    for (float& a : acc) a = 0.0f;
  }

  // Moves (l, acc) to the maximum `top`, at least m.
  __device__ void raise_to(float top) {
    const float factor = weight_of(s.m, top);
    s.m = top;
    s.l *= factor;
#pragma unroll
    for (float& a : acc) a *= factor;
  }

  // What to subtract from scores: masked ones of -inf give weight 0, never NaN.
  __device__ float origin() const { return finite_top(s.m); }
};

}  // namespace splitkv
