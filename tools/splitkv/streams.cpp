#include "tools/splitkv/streams.hpp"

#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {
namespace {

int64_t sum_of_16_bit_lanes(uint64_t bits) {
  return int64_t((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
}

}  // namespace

uint64_t mix(uint64_t x) {
  x += kMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t stream_key(uint64_t seed, Tensor tensor, int64_t row, int64_t head) {
  uint64_t key = mix(seed);
  key = mix(key ^ uint64_t(tensor));
  key = mix(key ^ uint64_t(row));
  return mix(key ^ uint64_t(head));
}

float uniform_value(uint64_t key, uint64_t index) {
  return float(mix(key + index) >> 40) * 0x1p-24f;
}

float generated_value(uint64_t key, uint64_t index) {
  const int64_t sum =
      sum_of_16_bit_lanes(mix(key + 2 * index)) + sum_of_16_bit_lanes(mix(key + 2 * index + 1));
  // Mean 4 * 65535; variance 8 * (2^32 - 1) / 12. The difference is an integer below 2^24: exact.
  constexpr float kInverseDeviation = 1.8688124e-05f;
  return float(sum - 4 * 65535) * kInverseDeviation;
}

}  // namespace splitkv::tool
