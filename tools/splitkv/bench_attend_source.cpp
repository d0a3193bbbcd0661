#include <fmt/format.h>

#include <utility>

#include "compiler/text.hpp"
#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {
namespace {

// The problem as constants.
std::string constants_of(const Problem& problem) {
  std::string text =
      "constexpr double softmax_scale = " + fmt::format("{:a};\n", scale_of(problem));
  text += fmt::format("constexpr double softcap = {:a};\n", problem.softcap);
  const std::pair<const char*, int> numbers[] = {
      {"q_heads", problem.q_heads},
      {"group_size", group_size(problem)},
      {"dim_qk", problem.dim_qk},
      {"dim_v", problem.dim_v},
      {"query_len", problem.query_len},
      {"page_size", problem.kv_layout.page_size},
      {"causal", problem.mask == Mask::causal ? 1 : 0},
      {"window", problem.window},
      {"q_type", int(problem.q_dtype)},
      {"k_type", int(problem.k_dtype)},
      {"v_type", int(problem.v_in_k ? problem.k_dtype : problem.v_dtype)},
      {"out_type", int(problem.out_dtype)},
      {"k_scale_each", problem.k_scale == KvScale::head ? 1 : 0},
      {"v_scale_each", problem.v_scale == KvScale::head ? 1 : 0}};
  for (const auto& [name, value] : numbers) {
    text += fmt::format("constexpr int {} = {};\n", name, value);
  }
  return text;
}

constexpr const char* kAttend = R"cuda(
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

constexpr int warps = 32;
constexpr int page_tokens = page_size > 0 ? page_size : 1;
constexpr double cap = softcap > 0 ? softcap : 1;

struct AttendArgs {
  const void* q;
  const void* k;
  const void* v;
  const int* kv_len;
  const int* page_table;
  i64 page_table_stride;
  i64 k_stride_block, k_stride_head, k_stride_token;
  i64 v_stride_block, v_stride_head, v_stride_token;
  const float* k_scale;
  const float* v_scale;
  double* scores;
  i64 scores_stride;
  float* expected;
  i64 batch;
};

struct Compared {
  u32 worst, rows;
};

__device__ float value_of_fp16(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Types: fp32, fp16, bf16, e4m3, e5m2, int8 from 0 on.
template <int Type>
__device__ float element(const void* data, i64 at) {
  if constexpr (Type == 0) return static_cast<const float*>(data)[at];
  if constexpr (Type == 1) return value_of_fp16(static_cast<const u16*>(data)[at]);
  if constexpr (Type == 2) return __uint_as_float(u32(static_cast<const u16*>(data)[at]) << 16);
  const u32 bits = static_cast<const u8*>(data)[at];
  if constexpr (Type == 3) {
    const float value = value_of_fp16(u16((bits & 0x7f) << 7)) * 256.0f;
    return bits & 0x80 ? -value : value;
  }
  if constexpr (Type == 4) return value_of_fp16(u16(bits << 8));
  if constexpr (Type == 5) return float(static_cast<signed char>(bits));
}

__device__ i64 place(const AttendArgs& a, int row, int key, i64 block_stride, i64 token_stride) {
  if constexpr (page_size > 0) {
    const int page = a.page_table[row * a.page_table_stride + key / page_tokens];
    return page * block_stride + (key % page_tokens) * token_stride;
  }
  return row * block_stride + key * token_stride;
}

__device__ double sum_of_warp(double value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  return value;
}

// The sum, or the greatest, of what each warp gives; all threads of the block get it.
template <bool Greatest>
__device__ double of_block(double value, double* shared) {
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  double result = shared[0];
  for (int i = 1; i < warps; ++i) result = Greatest ? fmax(result, shared[i]) : result + shared[i];
  return result;
}

struct Row {
  int row, head, first, end;  // batch row; q head; keys that the query sees
};

// scores[i] of key first + i; returns the greatest.
__device__ double score_keys(const AttendArgs& a, const Row& r, const float* q, double* scores,
                             double* shared) {
  const int lane = threadIdx.x % 32, kv_head = r.head / group_size;
  const double k_scale = a.k_scale != nullptr ? a.k_scale[kv_head * k_scale_each] : 1.0;
  double greatest = -__longlong_as_double(0x7ff0000000000000ll);
  for (int key = r.first + int(threadIdx.x / 32); key < r.end; key += warps) {
    const i64 at = place(a, r.row, key, a.k_stride_block, a.k_stride_token) +
                   kv_head * a.k_stride_head;
    double dot = 0;
#pragma unroll 8
    for (int i = lane; i < dim_qk; i += 32) dot += double(q[i]) * double(element<k_type>(a.k, at + i));
    double score = sum_of_warp(dot) * k_scale * softmax_scale;
    if constexpr (softcap > 0) score = cap * tanh(score / cap);
    greatest = fmax(greatest, score);
    if (lane == 0) scores[key - r.first] = score;
  }
  return of_block<true>(greatest, shared);
}

__device__ void attend_row(const AttendArgs& a, const Row& r, const float* q, double* scores,
                           double* shared, double (*columns)[33], float* expected) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv_head = r.head / group_size;
  const double greatest = score_keys(a, r, q, scores, shared);
  double sum = 0;
  for (int i = threadIdx.x; i < r.end - r.first; i += blockDim.x) {
    scores[i] = exp(scores[i] - greatest);
    sum += scores[i];
  }
  const double total = of_block<false>(sum_of_warp(sum), shared);
  const double v_scale = a.v_scale != nullptr ? a.v_scale[kv_head * v_scale_each] : 1.0;
  for (int column = 0; column < dim_v; column += 32) {
    const int at = min(column + lane, dim_v - 1);
    double value = 0;
#pragma unroll 8
    for (int key = r.first + warp; key < r.end; key += warps) {
      const i64 from = place(a, r.row, key, a.v_stride_block, a.v_stride_token) +
                       kv_head * a.v_stride_head;
      value += scores[key - r.first] * double(element<v_type>(a.v, from + at));
    }
    columns[warp][lane] = value;
    __syncthreads();
    if (warp == 0 && column + lane < dim_v) {
      double joined = 0;
      for (int i = 0; i < warps; ++i) joined += columns[i][lane];
      expected[at] = r.end > r.first ? float(joined * v_scale / total) : 0.0f;
    }
    __syncthreads();
  }
}

extern "C" {

__global__ void __launch_bounds__(1024) attend(AttendArgs a) {
  __shared__ float q[dim_qk];
  __shared__ double shared[warps];
  __shared__ double columns[warps][33];
  const i64 items = a.batch * query_len * q_heads;
  for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
    for (int i = threadIdx.x; i < dim_qk; i += blockDim.x) {
      q[i] = element<q_type>(a.q, item * dim_qk + i);
    }
    __syncthreads();
    const int row = int(item / (query_len * q_heads));
    const int length = max(a.kv_len[row], 0);
    const int position = length - query_len + int(item / q_heads % query_len);
    const int end = causal ? min(length, position + 1) : length;
    const int first = window > 0 ? max(0, position - window + 1) : 0;
    const Row r{row, int(item % q_heads), min(first, max(end, 0)), max(end, 0)};
    attend_row(a, r, q, a.scores + blockIdx.x * a.scores_stride, shared, columns,
               a.expected + item * dim_v);
  }
}

__global__ void __launch_bounds__(256)
    compare(const void* out, const float* expected, i64 rows, Compared* found) {
  const i64 row = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  double apart = 0, length = 0;
  for (int i = threadIdx.x % 32; i < dim_v; i += 32) {
    const double wanted = expected[row * dim_v + i];
    const double given = element<out_type>(out, row * dim_v + i);
    apart += (given - wanted) * (given - wanted);
    length += wanted * wanted;
  }
  apart = sum_of_warp(apart);
  length = sum_of_warp(length);
  if (threadIdx.x % 32 != 0) return;
  float error = length > 0 ? float(sqrt(apart / length)) : 0.0f;
  if (!(error < 3e38f) || (length == 0 && apart != 0)) error = __uint_as_float(0x7f800000);
  atomicMax(&found->worst, __float_as_uint(error));
  atomicAdd(&found->rows, 1);
}

}  // extern "C"
)cuda";

}  // namespace

std::string attend_source(const Problem& problem) { return constants_of(problem) + kAttend; }

Outcome check_attend(const Problem& problem) {
  const auto by_key = [](KvScale scale) {
    return scale == KvScale::token || scale == KvScale::inl;
  };
  const std::pair<bool, const char*> unknown[] = {
      {problem.out_partial, "out=partial"},
      {problem.dim_rope > 0, "q_rope"},
      {problem.ragged, "ragged"},
      {problem.separate_tables, "page_tables=separate"},
      {by_key(problem.k_scale) || by_key(problem.v_scale), "kv_scale=token and kv_scale=inline"},
      {problem.alibi, "alibi"},
      {problem.bias.has_value(), "bias"},
      {!problem.params.empty(), "params"},
      {!problem.score_mod.nodes.empty(), "score"},
      {problem.mask == Mask::tree, "mask=tree"},
      {problem.chunk > 0, "chunk"},
      {!problem.predicate.nodes.empty(), "where"},
      {problem.strided_positions, "positions=strided"},
      {problem.sink, "sink"},
      {problem.lse != LseOutput::none, "lse"}};
  for (const auto& [is_there, word] : unknown) {
    if (!is_there) continue;
    return invalid_argument(fmt::format(
        "problem: {} is not known to the benchmark's own attention, which checks what it times; "
        "without that word it would work (`splitkv run --check` takes every problem)",
        word));
  }
  return Unit{};
}

}  // namespace splitkv::tool
