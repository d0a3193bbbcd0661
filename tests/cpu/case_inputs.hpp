// The device data of a kernel case, NaN wherever nothing of it may matter.
#pragma once

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {

// K or V: guarded memory, poison all over but for the keys that rows see.
struct CacheSide {
  DType dtype = DType::bf16;
  int dim = 0;
  KvScale scale = KvScale::none;
  int64_t stride_block = 0, stride_head = 0, stride_token = 0;
  std::unique_ptr<GuardedMemory> memory;
  std::vector<float> scales;  // tensor, head, token: [block][token][head]
  int64_t scale_stride_block = 0, scale_stride_token = 0;
  std::vector<int32_t> page_table;

  // The value that an element stands for, its scale included.
  double at(int64_t block, int64_t head, int64_t token, int64_t d) const;
  int64_t index(int64_t block, int64_t head, int64_t token) const {
    return block * stride_block + head * stride_head + token * stride_token;
  }
  // A random row, and scale where keys have their own.
  void fill(int64_t block, int64_t head, int64_t token, std::mt19937& random);
};

struct Inputs {
  const KernelCase& test;
  const CompiledCase& compiled;
  int batch = 0, token_rows = 0;  // token rows of q and out
  std::vector<char> q, q_rope;
  CacheSide k, v;
  std::vector<int32_t> kv_lens, kv_begins, q_offsets, total_lens;
  std::vector<int64_t> wide_kv_lens;
  std::vector<int64_t> page_offsets;
  int64_t table_stride = 0, pages = 0;
  std::vector<float> sinks;
  std::vector<char> bias;  // [batch, q_heads, query_len, longest]
  int64_t longest = 0;     // keys of a row, at most
  std::vector<uint8_t> tree;
  int64_t tree_row_bytes = 0;
  std::vector<std::vector<float>> params;

  int length(int row) const;   // stored keys
  int total(int row) const;    // of all shards
  int queries(int row) const;  // tokens the row has
  int token(int row, int query) const;
  int64_t position(int key) const;
  // Whether the masks of the problem, but for the user's and the tree, let a query see a key.
  bool sees(int row, int query, int key) const;
  // Keys [first, end) that any query of the row sees.
  std::pair<int, int> interval(int row) const;
  bool is_bad(int row, int key) const;  // its page id is wild
  // Block and token inside it of key `key` of batch row `row`.
  std::pair<int64_t, int64_t> place(const CacheSide& side, int row, int key) const;
  const CacheSide& values() const { return compiled.problem.v_in_k ? k : v; }
  double q_at(int token, int head, int d) const;
  float bias_at(int row, int head, int query, int key) const;
  bool tree_bit(int row, int query, int bit) const;
};

Inputs make_inputs(const KernelCase& test, const CompiledCase& compiled);

// softmax(score) V of every row, in two passes of doubles.
Answer reference_answer(const Inputs& inputs);

}  // namespace splitkv::test
