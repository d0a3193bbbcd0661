// A model's numbers in the process's memory, as Hugging Face names them. Read from a folder that
// prepare_weights.py wrote, or drawn from a seed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace engine {

// Llama's architecture with tied embeddings: config.json's fields under shorter names.
struct ModelConfig {
  int64_t layers = 2, hidden = 576, intermediate = 128;
  int64_t q_heads = 9, kv_heads = 3, dim = 64;
  int64_t vocab = 256, max_positions = 2048;
  float rope_theta = 100000, rms_eps = 1e-5f;
  int32_t stop_token = -1;

  int64_t qkv_width() const { return (q_heads + 2 * kv_heads) * dim; }
};

struct Weights {
  ModelConfig config;
  std::map<std::string, std::vector<float>> tensors;  // row-major [out, in]

  // Throws std::runtime_error where it is missing or has another size.
  const std::vector<float>& get(const std::string& name, int64_t size) const;
};

// folder/config.json and folder/model.safetensors (fp32, fp16 or bf16). Throws std::runtime_error.
Weights load_weights(const std::string& folder);

// Weights whose answers depend on all tokens before. The same on every machine.
Weights random_weights(const ModelConfig& config, uint64_t seed);

// A number in [-1, 1) that depends on seed and place alone.
float random_value(uint64_t seed, uint64_t place);

}  // namespace engine
