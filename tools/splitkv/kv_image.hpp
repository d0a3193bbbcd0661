// K and V as they lie in memory under a problem's layout, with everything around the tokens that a
// query can reach poisoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/problem.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {

// Strides in elements, as the API takes them.
struct TokenStrides {
  int64_t block = 0, head = 0, token = 0;

  bool operator==(const TokenStrides&) const = default;
};

struct PageLists {
  std::vector<int32_t> table;
  std::vector<int64_t> offset;  // where rows' lists start; empty: `stride` slots a row
  int64_t stride = 0;           // slots a row; each row has at least one unused slot

  // Page id of slot `slot` of a row.
  int32_t at(int64_t row, int64_t slot) const {
    return table[size_t((offset.empty() ? row * stride : offset[size_t(row)]) + slot)];
  }
};

struct KvImage {
  std::vector<std::byte> k;
  std::vector<std::byte> v;  // empty: V lies in k, from v_at on (interleaved), or is K (v_in_k)
  size_t v_at = 0;           // bytes
  TokenStrides k_strides, v_strides;
  std::vector<float> k_scale, v_scale;            // what the API is given; empty for inline ones
  TokenStrides k_scale_strides, v_scale_strides;  // of token scales
  std::vector<int32_t> page_table;                // paged: [batch, page_table_stride]
  std::vector<int64_t> page_offset;               // instead of the stride; or empty
  int64_t page_table_stride = 0;
  PageLists v_pages;       // page_tables=separate
  int64_t page_count = 0;  // paged: pages in memory
};

// What an unused slot of a page table holds: no page has this id.
inline constexpr int32_t kPoisonPage = 0x7fffffff;

// bhtd: [batch, kv_heads, capacity, dim]. bthd: [batch, capacity, kv_heads, dim]. paged: dense
// pages; ids are shuffled by `seed`, some pages belong to no row and are NaN throughout, and slots
// of pages that lie wholly outside a row's key range hold kPoisonPage. Rows with an inline scale
// are filled up to the alignment class. Interleaved: [blocks, 2, ...].
KvImage lay_out(const Problem& problem, const Inputs& inputs, uint64_t seed);

}  // namespace splitkv::tool
