// The tensors of one decode step on the host, generated or read from files, rounded to the
// problem's types and in logical order; kv_image.hpp lays K and V out as the problem says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"

namespace splitkv::tool {

struct Inputs {
  int64_t batch = 0;
  int64_t capacity = 0;         // tokens a row of k and v holds; at least 1
  std::vector<int32_t> kv_len;  // [batch], each in [0, capacity]
  std::vector<std::byte> q;     // [batch, q_heads, dim_qk] of q_dtype
  std::vector<std::byte> k;     // [batch, kv_heads, capacity, dim_qk] of k_dtype
  std::vector<std::byte> v;     // [batch, kv_heads, capacity, dim_v] of v_dtype

  bool operator==(const Inputs&) const = default;
};

// Tokens [first_visible, kv_len) of a row are seen by its query; the rest lies before the window.
int32_t first_visible(const Problem& problem, int32_t kv_len);

// Element `index` of the stream `key`: close to a standard normal (the sum of eight uniforms of 16
// bits, scaled), from integer arithmetic and one multiplication, so that every machine makes the
// same.
float generated_value(uint64_t key, uint64_t index);

// Streams are keyed by seed, tensor, row and head, and indexed by token and dim: a token's values
// do not depend on batch size or lengths. Tokens that the query does not see are NaN.
Inputs generate_inputs(const Problem& problem, const std::vector<int32_t>& kv_len, uint64_t seed);

struct InputFiles {
  std::string q;        // [batch, q_heads, dim_qk]
  std::string k;        // [batch, kv_heads, capacity, dim_qk]
  std::string v;        // [batch, kv_heads, capacity, dim_v]
  std::string kv_lens;  // [batch], or empty
};

// Lengths come from files.kv_lens, else from `kv_len` (one for all rows or one a row), else every
// row is full. Refuses shapes that do not agree with the problem or with each other.
Result<Inputs> load_inputs(const Problem& problem, const InputFiles& files,
                           const std::vector<int32_t>& kv_len);

// A digest of q, of what the queries can see of k and v, and of the lengths.
std::string digest(const Problem& problem, const Inputs& inputs);

}  // namespace splitkv::tool
