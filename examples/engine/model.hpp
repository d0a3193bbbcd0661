// A model's weights on a device.
#pragma once

#include <vector>

#include "device.hpp"
#include "weights.hpp"

namespace engine {

// q, k and v are projected by one product, and so are gate and up: their weights lie one behind
// the other.
struct Layer {
  Memory attention_norm, qkv, attention_out, feed_norm, gate_up, down;
};

struct Model {
  Model(Device& device, const Weights& weights);

  ModelConfig config;
  Memory embedding;  // [vocab, hidden], also what logits are made of
  Memory final_norm;
  std::vector<Layer> layers;
  Memory cosines, sines;  // fp32 [max_positions, dim / 2]
};

// The angle of pair i at a position, as transformers has it: computed in fp32.
float rotation_angle(const ModelConfig& config, int64_t position, int64_t i);

}  // namespace engine
