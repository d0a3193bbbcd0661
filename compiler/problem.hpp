// Problem: the mathematics and the memory form of one attention call, fixed before code exists.
// One compiled kernel serves every batch size, KV length and stride of its problem.
#pragma once

#include <cmath>
#include <optional>

#include "compiler/dtype.hpp"

namespace splitkv {

// How K and V lie in memory. The innermost dimension (dim) is contiguous in every layout; all other
// strides are run-time values.
enum class KvLayoutKind {
  bhtd,   // [batch, kv_heads, kv_len, dim]
  bthd,   // [batch, kv_len, kv_heads, dim]
  paged,  // pages of `page_size` tokens, found through a page table
};

// Inside a page: nhd is [page_size, kv_heads, dim], hnd is [kv_heads, page_size, dim].
enum class PageOrder { nhd, hnd };

struct KvLayout {
  KvLayoutKind kind = KvLayoutKind::bhtd;
  int page_size = 0;  // tokens a page; 0 unless paged
  PageOrder page_order = PageOrder::nhd;

  bool operator==(const KvLayout&) const = default;
};

// Whether the log-sum-exp of each row is an output, and its base. base2 is log2 of the sum of
// exp(score) of natural-unit scores, that is natural * log2(e).
enum class LseOutput { none, natural, base2 };

// The form of exchanged partials: (m, l, o) or (S, o). `automatic` leaves the choice to the
// schedule.
enum class Merge { automatic, mlo, lse };

struct Problem {
  DType q_dtype = DType::bf16;
  DType k_dtype = DType::bf16;
  DType v_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  int q_heads = 1;
  int kv_heads = 1;
  int dim_qk = 128;
  int dim_v = 128;
  int query_len = 1;  // query tokens a batch row
  KvLayout kv_layout;
  std::optional<double> scale;  // nothing: 1/sqrt(dim_qk)
  double softcap = 0;           // 0: none; else softcap * tanh(scale * q.k / softcap)
  int window = 0;               // 0: none; else each query sees exactly this many newest keys
  LseOutput lse = LseOutput::none;
  Merge merge = Merge::automatic;
  bool deterministic = false;  // a row's bits do not depend on the other rows of the batch
  int align = 16;  // bytes: every pointer and every stride (of the KV cache) is a multiple of this

  bool operator==(const Problem&) const = default;
};

// q_heads per kv head: these query heads share one read of K and V.
constexpr int group_size(const Problem& problem) {
  return problem.kv_heads > 0 ? problem.q_heads / problem.kv_heads : 0;
}

inline double scale_of(const Problem& problem) {
  return problem.scale ? *problem.scale : 1.0 / std::sqrt(double(problem.dim_qk));
}

constexpr bool is_paged(const Problem& problem) {
  return problem.kv_layout.kind == KvLayoutKind::paged;
}

}  // namespace splitkv
