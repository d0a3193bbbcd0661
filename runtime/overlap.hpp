// Whether memory that a run writes lies apart from itself and from what it reads, as far as
// pointers and strides tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv {

// A dimension of a strided array of rows.
struct Extent {
  std::string name;  // of its stride in messages, "out_stride_head"
  int64_t stride = 0;
  int64_t count = 1;
};

// Refuses arrays whose rows of `row` elements overlap. The dimensions must nest: each stride
// reaches past all that lies within the smaller ones.
Outcome check_rows_apart(const char* owner, int64_t row, std::vector<Extent> extents);

// Rows of `row_bytes` at `data`, by byte strides.
struct Footprint {
  const char* name;
  const void* data = nullptr;
  int64_t row_bytes = 0;
  std::vector<std::pair<int64_t, int64_t>> extents;  // (stride, count)
};

// False where the two are sure to share no byte: their ranges lie apart, or one's rows lie between
// the other's at a stride that both have in common.
bool may_overlap(const Footprint& a, const Footprint& b);

}  // namespace splitkv
