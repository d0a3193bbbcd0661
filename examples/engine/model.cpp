#include "model.hpp"

#include <cmath>

namespace engine {
namespace {

Memory put(Device& device, const void* data, size_t bytes) {
  Memory memory = device.allocate(bytes);
  device.upload(memory.get(), data, bytes);
  device.wait();  // data goes when the caller returns
  return memory;
}

Memory put(Device& device, const std::vector<float>& floats) {
  const std::vector<std::byte> elements = to_elements(device.dtype(), floats);
  return put(device, elements.data(), elements.size());
}

std::vector<float> joined(std::initializer_list<const std::vector<float>*> parts) {
  std::vector<float> all;
  for (const auto* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

}  // namespace

float rotation_angle(const ModelConfig& config, int64_t position, int64_t i) {
  const float frequency = 1 / std::pow(config.rope_theta, float(2 * i) / float(config.dim));
  return float(position) * frequency;
}

Model::Model(Device& device, const Weights& weights) : config(weights.config) {
  const int64_t hidden = config.hidden, feed = config.intermediate;
  const int64_t q_width = config.q_heads * config.dim, kv_width = config.kv_heads * config.dim;
  embedding = put(device, weights.get("model.embed_tokens.weight", config.vocab * hidden));
  final_norm = put(device, weights.get("model.norm.weight", hidden));
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".";
    const auto get = [&](const char* part, int64_t size) {
      return &weights.get(name + part, size);
    };
    Layer layer;
    layer.attention_norm = put(device, *get("input_layernorm.weight", hidden));
    layer.qkv = put(device, joined({get("self_attn.q_proj.weight", q_width * hidden),
                                    get("self_attn.k_proj.weight", kv_width * hidden),
                                    get("self_attn.v_proj.weight", kv_width * hidden)}));
    layer.attention_out = put(device, *get("self_attn.o_proj.weight", hidden * q_width));
    layer.feed_norm = put(device, *get("post_attention_layernorm.weight", hidden));
    layer.gate_up = put(device, joined({get("mlp.gate_proj.weight", feed * hidden),
                                        get("mlp.up_proj.weight", feed * hidden)}));
    layer.down = put(device, *get("mlp.down_proj.weight", hidden * feed));
    layers.push_back(std::move(layer));
  }
  const int64_t half = config.dim / 2;
  std::vector<float> cosine(size_t(config.max_positions * half)), sine(cosine.size());
  for (int64_t position = 0; position < config.max_positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = rotation_angle(config, position, i);
      cosine[size_t(position * half + i)] = std::cos(angle);
      sine[size_t(position * half + i)] = std::sin(angle);
    }
  }
  cosines = put(device, cosine.data(), cosine.size() * 4);
  sines = put(device, sine.data(), sine.size() * 4);
}

}  // namespace engine
