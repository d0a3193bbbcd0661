// The model and its attention in fp64, without cache, pages, batches or SplitKV: all of a sequence
// at once, as the formulas have it. What the engine is checked against.
#pragma once

#include <cstdint>
#include <vector>

#include "weights.hpp"

namespace engine {

// Logits behind each token, [tokens][vocab].
std::vector<std::vector<double>> dense_logits(const Weights& weights,
                                              const std::vector<int32_t>& tokens);

// softmax(scale * q K^T) V of one query head over `keys` rows of K and V.
std::vector<double> dense_attention(const float* q, const std::vector<const float*>& k,
                                    const std::vector<const float*>& v, int64_t dim, double scale);

}  // namespace engine
