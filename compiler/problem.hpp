// Problem: the mathematics and the memory form of one attention call, fixed before code exists.
// One compiled kernel serves every batch size, KV length and stride of its problem.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "compiler/dtype.hpp"
#include "compiler/expr.hpp"

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

// Which keys a query may see, before windows, chunks and the user's predicate.
enum class Mask {
  causal,  // keys up to its own position; the last query stands at the last key (bottom-right)
  none,    // all keys of the row
  tree,    // all keys before the row's queries, and those of the queries' own keys whose bit is set
};

// What multiplies the stored elements of K or V: fp32 device data, one value per ...
enum class KvScale {
  none,
  tensor,  // [1]
  head,    // [kv_heads]
  token,   // token and kv head: [block, token, kv_heads] by strides
  inl,     // token and kv head, in the row itself: 4 bytes after its dim elements
};

// Whether kernels guard against bad page ids and lengths and record them.
enum class Checked { automatic, off, on };  // automatic: on in debug builds of the library

struct Problem {
  DType q_dtype = DType::bf16;  // fp32, fp16 or bf16
  DType k_dtype = DType::bf16;
  DType v_dtype = DType::bf16;
  DType out_dtype = DType::bf16;  // fp32, fp16 or bf16; fp32 where out_partial
  bool out_partial = false;  // the result is one partial a query row and head, in the form `merge`
                             // says: o normalised, and lse = S (lse) or m and l (mlo), base `lse`
  int q_heads = 1;
  int kv_heads = 1;
  int dim_qk = 128;
  int dim_v = 128;
  int dim_rope = 0;     // the last dim_rope elements of q lie in a tensor of their own; 0: q is one
  bool v_in_k = false;  // V is the first dim_v elements of each row of K
  int query_len = 1;    // most query tokens a batch row has
  bool ragged = false;  // rows have their own numbers of query tokens, given by offsets
  KvLayout kv_layout;
  bool separate_tables = false;     // paged: K and V have page tables of their own
  KvScale k_scale = KvScale::none;  // multiplies q.k
  KvScale v_scale = KvScale::none;
  std::optional<double> scale;  // nothing: 1/sqrt(dim_qk)
  double softcap = 0;           // 0: none; else softcap * tanh(scale * q.k / softcap)
  bool alibi = false;         // adds slope[q_head] * (key_pos - query_pos), slopes from the device
  std::optional<DType> bias;  // additive tensor (fp32 or fp16), -inf masks
  std::vector<Param> params;  // names that score_mod and predicate may use
  ScoreExpr score_mod;        // the user's expression of `score`; no nodes: none
  Mask mask = Mask::causal;
  int window = 0;                  // 0: none; else each query sees this many newest keys at most
  int chunk = 0;                   // 0: none; else a query sees keys of its own chunk of this size
  ScoreExpr predicate;             // the user's: a key takes part where it is not 0; no nodes: none
  bool strided_positions = false;  // key i of a row stands at pos0 + i * pos_step (run-time values)
  bool sink = false;               // one more logit a query head, from the device, without a value
  LseOutput lse = LseOutput::none;
  Merge merge = Merge::automatic;
  bool deterministic = false;  // a row's bits do not depend on the other rows of the batch
  int align = 16;  // bytes: every pointer and every stride (of the KV cache) is a multiple of this
  Checked checked = Checked::automatic;

  bool operator==(const Problem&) const = default;
};

// q_heads per kv head: these query heads share one read of K and V.
constexpr int group_size(const Problem& problem) {
  return problem.kv_heads > 0 ? problem.q_heads / problem.kv_heads : 0;
}

// Query rows of one kv head: heads of its group times the most query tokens of a batch row.
constexpr int query_rows(const Problem& problem) { return group_size(problem) * problem.query_len; }

inline double scale_of(const Problem& problem) {
  return problem.scale ? *problem.scale : 1.0 / std::sqrt(double(problem.dim_qk));
}

// Base of the statistics that a run writes beside out: the log-sum-exp, or S or m of a partial,
// which is natural where the problem names no lse. none: it writes none.
constexpr LseOutput written_lse(const Problem& problem) {
  const bool unnamed = problem.out_partial && problem.lse == LseOutput::none;
  return unnamed ? LseOutput::natural : problem.lse;
}

// The form of the partial that out=partial gives: mlo where the problem says so, else lse.
constexpr Merge partial_form(const Problem& problem) {
  return problem.merge == Merge::mlo ? Merge::mlo : Merge::lse;
}

// Whether a run writes l beside m.
constexpr bool writes_partial_l(const Problem& problem) {
  return problem.out_partial && partial_form(problem) == Merge::mlo;
}

// Whether each key has a scale of its own.
constexpr bool is_scale_of_key(KvScale scale) {
  return scale == KvScale::token || scale == KvScale::inl;
}

// Scores and their sums are fp64 on CUDA then.
constexpr bool all_fp32(const Problem& problem) {
  return problem.q_dtype == DType::fp32 && problem.k_dtype == DType::fp32 &&
         problem.v_dtype == DType::fp32 && problem.out_dtype == DType::fp32;
}

constexpr bool is_paged(const Problem& problem) {
  return problem.kv_layout.kind == KvLayoutKind::paged;
}

}  // namespace splitkv
