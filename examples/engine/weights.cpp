#include "weights.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace engine {
namespace {

using nlohmann::json;

std::ifstream open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read; prepare_weights.py writes it");
  return file;
}

ModelConfig parse_config(const std::string& path) {
  std::ifstream file = open(path);
  const json fields = json::parse(file);
  if (fields.at("model_type") != "llama" || !fields.value("tie_word_embeddings", false)) {
    throw std::runtime_error(path + ": model_type " + fields.at("model_type").dump() +
                             " is not known; llama with tied embeddings is");
  }
  ModelConfig config;
  config.layers = fields.at("num_hidden_layers");
  config.hidden = fields.at("hidden_size");
  config.intermediate = fields.at("intermediate_size");
  config.q_heads = fields.at("num_attention_heads");
  config.kv_heads = fields.at("num_key_value_heads");
  config.dim = fields.value("head_dim", config.hidden / config.q_heads);
  config.vocab = fields.at("vocab_size");
  config.max_positions = fields.at("max_position_embeddings");
  config.rope_theta = fields.at("rope_theta");
  config.rms_eps = fields.at("rms_norm_eps");
  config.stop_token = fields.at("eos_token_id");
  return config;
}

float from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(float(mantissa), -24);
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * std::ldexp(float(mantissa + 1024), exponent - 25);
}

std::vector<float> to_floats(const std::vector<char>& bytes, const std::string& type) {
  std::vector<float> floats(bytes.size() / (type == "F32" ? 4 : 2));
  if (type == "F32") {
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    floats[i] = type == "F16" ? from_half(bits) : std::bit_cast<float>(uint32_t(bits) << 16);
  }
  return floats;
}

// A safetensors file: the length of its header, 8 bytes little-endian, the header in JSON, the
// tensors' bytes.
void read_safetensors(const std::string& path, Weights& weights) {
  std::ifstream file = open(path);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  constexpr uint64_t kMostBytes = 100u << 20;
  if (!file || header_bytes > kMostBytes)
    throw std::runtime_error(path + " is no safetensors file");
  std::string text(header_bytes, '\0');
  file.read(text.data(), std::streamsize(header_bytes));
  const json header = json::parse(text);
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string type = tensor.at("dtype");
    if (type != "F32" && type != "F16" && type != "BF16") {
      throw std::runtime_error(path + ": " + name + " is of type " + type +
                               "; F32, F16 or BF16 would fit");
    }
    const uint64_t first = tensor.at("data_offsets").at(0), end = tensor.at("data_offsets").at(1);
    std::vector<char> bytes(end - first);
    file.seekg(std::streamoff(8 + header_bytes + first));
    file.read(bytes.data(), std::streamsize(bytes.size()));
    if (!file) throw std::runtime_error(path + " ends before " + name);
    weights.tensors[name] = to_floats(bytes, type);
  }
}

}  // namespace

const std::vector<float>& Weights::get(const std::string& name, int64_t size) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::runtime_error("the weights have no tensor " + name);
  if (int64_t(found->second.size()) != size) {
    throw std::runtime_error(name + " has " + std::to_string(found->second.size()) +
                             " weights; config.json wants " + std::to_string(size));
  }
  return found->second;
}

Weights load_weights(const std::string& folder) {
  Weights weights;
  try {
    weights.config = parse_config(folder + "/config.json");
    read_safetensors(folder + "/model.safetensors", weights);
  } catch (const json::exception& error) {
    throw std::runtime_error(folder + ": " + error.what());
  }
  return weights;
}

float random_value(uint64_t seed, uint64_t place) {
  uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return float(int64_t(x ^ (x >> 31)) >> 40) * 0x1p-23f;
}

Weights random_weights(const ModelConfig& config, uint64_t seed) {
  Weights weights;
  weights.config = config;
  uint64_t tensor = seed << 16;
  const auto draw = [&](const std::string& name, int64_t rows, int64_t columns, float size) {
    std::vector<float>& values = weights.tensors[name];
    values.resize(size_t(rows * columns));
    ++tensor;
    // Rows keep about the length of their input; q and k are drawn larger, for scores that differ.
    const float scale = size * std::sqrt(3.0f / float(columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = scale * random_value(tensor, i);
  };
  const auto ones = [&](const std::string& name) {
    weights.tensors[name].assign(size_t(config.hidden), 1.0f);
  };
  const int64_t q_width = config.q_heads * config.dim, kv_width = config.kv_heads * config.dim;
  draw("model.embed_tokens.weight", config.vocab, config.hidden, 1);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    ones(name + "input_layernorm.weight");
    draw(name + "self_attn.q_proj.weight", q_width, config.hidden, 2);
    draw(name + "self_attn.k_proj.weight", kv_width, config.hidden, 2);
    draw(name + "self_attn.v_proj.weight", kv_width, config.hidden, 2);
    draw(name + "self_attn.o_proj.weight", config.hidden, q_width, 2);
    ones(name + "post_attention_layernorm.weight");
    draw(name + "mlp.gate_proj.weight", config.intermediate, config.hidden, 1);
    draw(name + "mlp.up_proj.weight", config.intermediate, config.hidden, 1);
    draw(name + "mlp.down_proj.weight", config.hidden, config.intermediate, 1);
  }
  ones("model.norm.weight");
  return weights;
}

}  // namespace engine
