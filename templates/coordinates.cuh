// Where a score stands: what score and mask expressions may ask.
#pragma once

#include "types.cuh"

namespace splitkv {

struct Coordinates {
  i32 batch;
  i32 q_head;
  i32 query;    // query token of the row: 0 unless query_len > 1
  i32 key_pos;  // position of the key in its row
  i32 kv_len;
};

}  // namespace splitkv
