// Functions of score expressions, in fp32 or fp64: scores are fp64 where everything stored is fp32,
// since an fp32 score of several hundred is already off by more than the accuracy asked for.
#pragma once

#include "config.cuh"

namespace splitkv {

template <bool Fp64>
struct RealOf {
  using type = float;
};
template <>
struct RealOf<true> {
  using type = double;
};

template <const Config& C>
using ScoreReal = typename RealOf<C.q_dtype == DType::fp32 && C.k_dtype == DType::fp32 &&
                                  C.v_dtype == DType::fp32 && C.out_dtype == DType::fp32>::type;

__device__ inline float abs_of(float x) { return fabsf(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline float min_of(float x, float y) { return fminf(x, y); }
__device__ inline float max_of(float x, float y) { return fmaxf(x, y); }
__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float quotient_of(float x, float y) { return floorf(x / y); }
__device__ inline float remainder_of(float x, float y) { return x - y * floorf(x / y); }

__device__ inline double abs_of(double x) { return fabs(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline double min_of(double x, double y) { return fmin(x, y); }
__device__ inline double max_of(double x, double y) { return fmax(x, y); }
__device__ inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }
__device__ inline double quotient_of(double x, double y) { return floor(x / y); }
__device__ inline double remainder_of(double x, double y) { return x - y * floor(x / y); }

// Beyond 2^20 an fp64 score is rounded to fp32, so that the maximum, which is kept in fp32, is one
// of the scores: no weight overflows and none is lost, however large the scores. Below, the
// rounding of the maximum moves weights by less than 2^0.04.
__device__ inline float settled(float score) { return score; }
__device__ inline double settled(double score) {
  return fabs(score) < 1048576.0 ? score : double(float(score));
}

}  // namespace splitkv
