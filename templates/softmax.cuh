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

  // Before keys whose largest score is `top` are added: moves (l, acc) to the new maximum. Returns
  // what to subtract from the scores: the maximum, or 0 while no key has been seen, so that
  // masked scores of -inf give weight 0 and never NaN.
  __device__ float raise_to(float top) {
    const float m = fmaxf(s.m, top);
    if (m != s.m) {
      const float factor = weight_of(s.m, m);
      s.l *= factor;
#pragma unroll
      for (float& a : acc) a *= factor;
      s.m = m;
    }
    return m == negative_infinity() ? 0.0f : m;
  }
};

}  // namespace splitkv
