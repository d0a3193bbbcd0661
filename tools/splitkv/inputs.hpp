// The tensors of one decode step on the host, generated or read from files, rounded to the
// problem's types and in logical order; kv_image.hpp lays K and V out as the problem says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "tools/splitkv/key_range.hpp"

namespace splitkv::tool {

// How a caller hands a step over, where the API leaves a choice.
enum class LengthForm { int32, int64, host };  // host: one scalar; all rows have the same length

struct StepForm {
  LengthForm lengths = LengthForm::int32;
  // Queries of each row, at most query_len: tokens lie densely and are found by q_offset. Empty:
  // every row has query_len of them.
  std::vector<int32_t> queries;
  int32_t spare_rows = 0;         // with `queries`: token rows of out beyond the last query
  bool minus_one_tail = false;    // with `queries`: offsets behind the last row with queries are -1
  std::vector<int32_t> kv_begin;  // [batch] or empty
  // positions=strided: the shard's first position and the number of shards. A step of 0: 1 of 4.
  int64_t pos0 = 0, pos_step = 0;
  bool bias_for_all_heads = false;    // one bias for all heads, by a stride of 0
  bool bias_for_all_queries = false;  // likewise
  bool padded_rows = false;           // q, out and lse with gaps between their rows
  bool interleaved = false;           // K and V in one allocation, where their rows are alike
  bool infinite_poison = false;       // what no query reaches is +Inf in memory, not NaN
  bool page_offsets = false;          // page lists without gaps, found by page_offset

  bool operator==(const StepForm&) const = default;
};

struct Inputs {
  int64_t batch = 0;
  int64_t capacity = 0;         // tokens a row of k and v holds; at least 1
  std::vector<int32_t> kv_len;  // [batch], each in [0, capacity]
  // [batch, query_len, q_heads, dim_qk] of q_dtype; with q_offset [query_rows, q_heads, dim_qk].
  // The rotary part of a problem with q_rope is the end of each row here.
  std::vector<std::byte> q;
  std::vector<std::byte> k;  // [batch, kv_heads, capacity, dim_qk] of k_dtype
  std::vector<std::byte> v;  // [batch, kv_heads, capacity, dim_v] of v_dtype; empty: v_in_k

  std::vector<int32_t> q_offset;   // [batch + 1] or empty
  int64_t query_rows = 0;          // token rows of q and out
  std::vector<int32_t> total_len;  // positions=strided: [batch]
  // tensor: 1; head: [kv_heads]; token and inline: [batch, kv_heads, capacity]
  std::vector<float> k_scale, v_scale;
  std::vector<float> alibi_slopes, sink;   // [q_heads] or empty
  std::vector<std::vector<float>> params;  // in the problem's order
  std::vector<std::byte> bias;  // [batch, bias_heads, bias_queries, capacity] of its type, or empty
  int64_t bias_heads = 0, bias_queries = 0;  // 1 where they share one
  std::vector<std::byte> tree;               // [batch, query_len, tree_row_bytes], or empty
  StepForm form;

  bool operator==(const Inputs&) const = default;
};

// Bytes of a query's packed bits.
int64_t tree_row_bytes(const Problem& problem);

Rows rows_of(const Problem& problem, const Inputs& inputs);

// Mean tokens of a row, rounded up; lengths of none have 0.
template <class Length>
int64_t mean_of(const std::vector<Length>& lengths) {
  int64_t sum = 0;
  for (const Length length : lengths) sum += length;
  const int64_t rows = int64_t(lengths.size());
  return rows == 0 ? 0 : (sum + rows - 1) / rows;
}

// Of batch row `row`: [first, end) of the tokens that its queries can reach.
KeyRange key_range(const Problem& problem, const Inputs& inputs, int64_t row);

// Token row of q, out and lse of query `query` of a batch row.
int64_t token_row(const Problem& problem, const Inputs& inputs, int64_t row, int64_t query);

// Element `index` of the stream `key`: close to a standard normal (the sum of eight uniforms of 16
// bits, scaled), from integer arithmetic and one multiplication, so that every machine makes the
// same.
float generated_value(uint64_t key, uint64_t index);

// Streams are keyed by seed, tensor, row and head, and indexed by token and dim: a token's values
// do not depend on batch size or lengths. Tokens that no query reaches are NaN (all bits one where
// the type has no NaN), in K, V, scales and bias.
Inputs generate_inputs(const Problem& problem, const std::vector<int32_t>& kv_len, uint64_t seed,
                       const StepForm& form = {});

// Everything but q, k and v, for inputs that have those.
void generate_rest(const Problem& problem, uint64_t seed, Inputs& inputs);

struct InputFiles {
  std::string q;        // [batch, q_heads, dim_qk]; [batch, query_len, q_heads, dim_qk]
  std::string k;        // [batch, kv_heads, capacity, dim_qk]
  std::string v;        // [batch, kv_heads, capacity, dim_v]; none where v_in_k=on
  std::string kv_lens;  // [batch], or empty
};

// Lengths come from files.kv_lens, else from `kv_len` (one for all rows or one a row), else every
// row is full. Refuses shapes that do not agree with the problem or with each other. What files do
// not hold (scales, slopes, ...) is generated from `seed`.
Result<Inputs> load_inputs(const Problem& problem, const InputFiles& files,
                           const std::vector<int32_t>& kv_len, uint64_t seed = 0);

// A digest of q, of what the queries can see of k and v, of the lengths, and of whatever else there
// is.
std::string digest(const Problem& problem, const Inputs& inputs);

}  // namespace splitkv::tool
