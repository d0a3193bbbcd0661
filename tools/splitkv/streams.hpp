// Reproducible streams of numbers: the same on every machine.
#pragma once

#include <cstdint>

namespace splitkv::tool {

enum class Tensor : uint64_t {
  q = 1,
  k,
  v,
  k_scale,
  v_scale,
  slopes,
  sink,
  params,
  bias,
  tree,
  total_len,
};

// The finalizer of SplitMix64: a bijection whose output bits each depend on every input bit.
// It adds kMixStep first: mix(s), mix(s + kMixStep), ... are SplitMix64's numbers from the seed s.
uint64_t mix(uint64_t x);
inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15u;

uint64_t stream_key(uint64_t seed, Tensor tensor, int64_t row, int64_t head);

// In [0, 1).
float uniform_value(uint64_t key, uint64_t index);

}  // namespace splitkv::tool
