#include "sequence.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace context_parallel {
namespace {

// A number in [-1, 1) that depends on the place alone, so that processes agree without a message.
float value_at(uint64_t tensor, uint64_t place) {
  uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u + tensor * 0xd1b54a32d192ed03u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return float(int64_t(x ^ (x >> 31)) >> 40) * 0x1p-23f;
}

size_t size_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

void store(Dtype dtype, Elements& to, int64_t index, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (dtype == Dtype::fp32) {
    std::memcpy(&to[size_t(index) * 4], &bits, 4);
    return;
  }
  // To the nearest bf16, ties to even; a NaN stays one.
  const uint16_t half =
      value != value ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  std::memcpy(&to[size_t(index) * 2], &half, 2);
}

int32_t within(int64_t value, int64_t least, int64_t most) {
  return int32_t(std::min(std::max(value, least), most));
}

Shard contiguous(const Options& options, Memory memory, int rank, int size) {
  Shard shard;
  const int64_t share = (options.tokens + size - 1) / size, begin = rank * share;
  // In memory of its own a process numbers its tokens from 0 and says where the first one stands.
  // Where it addresses the whole sequence it says which part is there.
  const int64_t origin = memory == Memory::own ? begin : 0;
  shard.pos0 = origin;
  shard.capacity = std::max<int64_t>(1, memory == Memory::own ? share : options.tokens);
  for (const int32_t length : options.lengths) {
    shard.kv_begin.push_back(within(begin, 0, length) - within(origin, 0, length));
    shard.kv_len.push_back(within(begin + share, 0, length) - within(origin, 0, length));
  }
  return shard;
}

Shard striped(const Options& options, Memory memory, int rank, int size) {
  Shard shard;
  shard.pos0 = rank;
  shard.pos_step = size;
  if (memory == Memory::whole) {
    shard.first_slot = rank;
    shard.slot_step = size;
    shard.capacity = std::max<int64_t>(size, options.tokens);
  } else {
    shard.capacity = std::max<int64_t>(1, (options.tokens + size - 1) / size);
  }
  for (const int32_t length : options.lengths) {
    shard.kv_begin.push_back(0);
    shard.kv_len.push_back(int32_t((int64_t(length) + size - 1 - rank) / size));
  }
  return shard;
}

}  // namespace

Shard shard_of(const Options& options, Shards shards, Memory memory, int rank, int size) {
  return shards == Shards::contiguous ? contiguous(options, memory, rank, size)
                                      : striped(options, memory, rank, size);
}

Shard whole_of(const Options& options) { return contiguous(options, Memory::whole, 0, 1); }

Elements make_queries(const Options& options) {
  // Large enough for some keys to count much more than others.
  constexpr float kScale = 6;
  const int64_t count = options.rows() * options.dim;
  Elements q(size_t(count) * size_of(options.dtype));
  for (int64_t i = 0; i < count; ++i) {
    store(options.dtype, q, i, kScale * value_at(0, uint64_t(i)));
  }
  return q;
}

Cache make_cache(const Options& options, const Shard& shard, const splitkv_tensors& strides) {
  const int64_t count = options.batch() * options.kv_heads * shard.capacity * options.dim;
  Cache cache;
  for (Elements* tensor : {&cache.k, &cache.v}) {
    tensor->resize(size_t(count) * size_of(options.dtype));
    for (int64_t i = 0; i < count; ++i) {
      store(options.dtype, *tensor, i, std::numeric_limits<float>::quiet_NaN());
    }
  }
  for (int64_t row = 0; row < options.batch(); ++row) {
    for (int64_t key = shard.kv_begin[size_t(row)]; key < shard.kv_len[size_t(row)]; ++key) {
      const int64_t slot = shard.first_slot + key * shard.slot_step;
      const int64_t position = shard.pos0 + key * shard.pos_step;
      for (int64_t head = 0; head < options.kv_heads; ++head) {
        const int64_t k = row * strides.k_stride_block + head * strides.k_stride_head +
                          slot * strides.k_stride_token;
        const int64_t v = row * strides.v_stride_block + head * strides.v_stride_head +
                          slot * strides.v_stride_token;
        const int64_t place =
            ((row * options.tokens + position) * options.kv_heads + head) * options.dim;
        for (int64_t i = 0; i < options.dim; ++i) {
          store(options.dtype, cache.k, k + i, value_at(1, uint64_t(place + i)));
          store(options.dtype, cache.v, v + i, value_at(2, uint64_t(place + i)));
        }
      }
    }
  }
  return cache;
}

}  // namespace context_parallel
