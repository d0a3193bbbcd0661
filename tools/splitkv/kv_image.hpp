// K and V as they lie in memory under a problem's layout, with everything around the tokens that a
// query can see poisoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/problem.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {

struct KvImage {
  std::vector<std::byte> k;
  std::vector<std::byte> v;
  std::vector<int32_t> page_table;  // paged: [batch, page_table_stride]
  int64_t page_table_stride = 0;    // paged: slots a row; each row has at least one unused slot
};

// What an unused slot of a page table holds: no page has this id.
inline constexpr int32_t kPoisonPage = 0x7fffffff;

// bhtd: [batch, kv_heads, capacity, dim]. bthd: [batch, capacity, kv_heads, dim]. paged: dense
// pages; ids are shuffled by `seed`, some pages belong to no row and are NaN throughout, and slots
// of pages that lie wholly before a window hold kPoisonPage.
KvImage lay_out(const Problem& problem, const Inputs& inputs, uint64_t seed);

}  // namespace splitkv::tool
