// The sequence that all processes work on, and which of its tokens each of them holds.
#pragma once

#include <splitkv/splitkv.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "options.hpp"

namespace context_parallel {

// What one process holds of each row. Key i of a row (local index) stands at position
// pos0 + i * pos_step of the sequence and in slot first_slot + i * slot_step of the row's memory.
struct Shard {
  int64_t pos0 = 0, pos_step = 1;
  int64_t first_slot = 0, slot_step = 1;
  int64_t capacity = 1;           // slots of a row's memory
  std::vector<int32_t> kv_begin;  // [batch] local indices: the shard is [kv_begin, kv_len)
  std::vector<int32_t> kv_len;
};

// Contiguous: process p of n has tokens [p * c, (p + 1) * c), c = tokens / n rounded up. Striped:
// tokens p, p + n, p + 2n ... A row shorter than that leaves a process without keys.
Shard shard_of(const Options& options, Shards shards, Memory memory, int rank, int size);

// The whole of it.
Shard whole_of(const Options& options);

// Elements of the problem's type as bytes.
using Elements = std::vector<std::byte>;

// [batch, query_len, q_heads, dim]. The same in every process.
Elements make_queries(const Options& options);

struct Cache {
  Elements k, v;
};

// A shard's K and V. `strides` are of dense tensors with shard.capacity tokens a row. Slots of no
// key of the shard hold NaN.
Cache make_cache(const Options& options, const Shard& shard, const splitkv_tensors& strides);

}  // namespace context_parallel
