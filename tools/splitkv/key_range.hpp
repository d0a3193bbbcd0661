// Which keys the queries of each batch row can reach: the interval that tiles are counted in and
// outside of which nothing is read.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/problem.hpp"

namespace splitkv::tool {

// The rows of a step, without their tensors.
struct Rows {
  std::vector<int32_t> kv_len;     // [batch]
  std::vector<int32_t> kv_begin;   // [batch] or empty
  std::vector<int32_t> queries;    // [batch] or empty: query_len each
  std::vector<int32_t> total_len;  // [batch] or empty
  int64_t pos0 = 0, pos_step = 1;
};

struct KeyRange {
  int32_t first = 0;
  int32_t end = 0;  // first where there are no keys

  bool operator==(const KeyRange&) const = default;
};

int32_t queries_of(const Problem& problem, const Rows& rows, int64_t row);
KeyRange key_range(const Problem& problem, const Rows& rows, int64_t row);

// Of a row of `kv_len` keys that has query_len queries.
int32_t first_visible(const Problem& problem, int32_t kv_len);

}  // namespace splitkv::tool
