#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "model.hpp"

namespace engine {
namespace {

using Vector = std::vector<double>;

Vector multiply(const std::vector<float>& weight, const Vector& in) {
  Vector out(weight.size() / in.size());
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t j = 0; j < in.size(); ++j) out[i] += double(weight[i * in.size() + j]) * in[j];
  }
  return out;
}

Vector rms_norm(const Vector& in, const std::vector<float>& weight, double eps) {
  double sum = 0;
  for (const double x : in) sum += x * x;
  Vector out(in.size());
  const double factor = 1 / std::sqrt(sum / double(in.size()) + eps);
  for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * factor * double(weight[i]);
  return out;
}

void rotate(Vector& heads, const ModelConfig& config, int64_t position) {
  const int64_t half = config.dim / 2;
  for (size_t first = 0; first < heads.size(); first += size_t(config.dim)) {
    for (int64_t i = 0; i < half; ++i) {
      double &a = heads[first + size_t(i)], &b = heads[first + size_t(i + half)];
      const auto angle = double(rotation_angle(config, position, i));
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
  }
}

// Softmax over keys of the scaled products with q, times the values. Each of q, a key and a value
// has `dim` elements.
template <class T>
Vector attend_head(const T* q, const std::vector<const T*>& k, const std::vector<const T*>& v,
                   int64_t dim, double scale) {
  Vector weights, out(static_cast<size_t>(dim));
  for (const T* key : k) {
    double score = 0;
    for (int64_t i = 0; i < dim; ++i) score += double(q[i]) * double(key[i]);
    weights.push_back(score * scale);
  }
  const double most = weights.empty() ? 0 : *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - most);
  for (size_t key = 0; key < v.size(); ++key) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += weights[key] / sum * double(v[key][i]);
  }
  return out;
}

// Of `q` over all of k and v, each [kv_heads * dim] a token.
Vector attend(const ModelConfig& config, const Vector& q, const std::vector<Vector>& k,
              const std::vector<Vector>& v) {
  Vector out;
  for (int64_t head = 0; head < config.q_heads; ++head) {
    const int64_t first = head / (config.q_heads / config.kv_heads) * config.dim;
    std::vector<const double*> keys, values;
    for (const Vector& key : k) keys.push_back(key.data() + first);
    for (const Vector& value : v) values.push_back(value.data() + first);
    const Vector one = attend_head(q.data() + head * config.dim, keys, values, config.dim,
                                   1 / std::sqrt(double(config.dim)));
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

void add(Vector& to, const Vector& more) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

void run_layer(const Weights& weights, int64_t layer, std::vector<Vector>& hidden) {
  const ModelConfig& config = weights.config;
  const std::string name = "model.layers." + std::to_string(layer) + ".";
  const auto of = [&](const char* part) -> const std::vector<float>& {
    return weights.tensors.at(name + part);
  };
  std::vector<Vector> k, v;
  for (size_t token = 0; token < hidden.size(); ++token) {
    const Vector normed = rms_norm(hidden[token], of("input_layernorm.weight"), config.rms_eps);
    Vector q = multiply(of("self_attn.q_proj.weight"), normed);
    k.push_back(multiply(of("self_attn.k_proj.weight"), normed));
    v.push_back(multiply(of("self_attn.v_proj.weight"), normed));
    rotate(q, config, int64_t(token));
    rotate(k.back(), config, int64_t(token));
    add(hidden[token], multiply(of("self_attn.o_proj.weight"), attend(config, q, k, v)));
  }
  for (Vector& row : hidden) {
    const Vector normed = rms_norm(row, of("post_attention_layernorm.weight"), config.rms_eps);
    Vector gate = multiply(of("mlp.gate_proj.weight"), normed);
    const Vector up = multiply(of("mlp.up_proj.weight"), normed);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    add(row, multiply(of("mlp.down_proj.weight"), gate));
  }
}

}  // namespace

std::vector<std::vector<double>> dense_logits(const Weights& weights,
                                              const std::vector<int32_t>& tokens) {
  const std::vector<float>& embedding = weights.tensors.at("model.embed_tokens.weight");
  std::vector<Vector> hidden;
  for (const int32_t token : tokens) {
    const auto first = embedding.begin() + token * weights.config.hidden;
    hidden.emplace_back(first, first + weights.config.hidden);
  }
  for (int64_t layer = 0; layer < weights.config.layers; ++layer) run_layer(weights, layer, hidden);
  for (Vector& row : hidden) {
    row = multiply(embedding,
                   rms_norm(row, weights.tensors.at("model.norm.weight"), weights.config.rms_eps));
  }
  return hidden;
}

std::vector<double> dense_attention(const float* q, const std::vector<const float*>& k,
                                    const std::vector<const float*>& v, int64_t dim, double scale) {
  return attend_head(q, k, v, dim, scale);
}

}  // namespace engine
