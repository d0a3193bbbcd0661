// Generated inputs: values that make every option matter, and poison around them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/dtype.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/parallel.hpp"
#include "tools/splitkv/streams.hpp"

namespace splitkv::tool {
namespace {

// What stored elements of a scaled tensor are multiplied with, so that they use their type's range;
// scales divide it out again.
float spread_of(DType type, KvScale scale) {
  if (scale == KvScale::none) return 1;
  switch (type) {
    case DType::e4m3:
      return 96;  // of 448
    case DType::e5m2:
      return 8192;  // of 57344
    case DType::int8:
      return 30;  // of 127
    case DType::fp32:
    case DType::fp16:
    case DType::bf16:
      break;
  }
  return 4;
}

struct Cache {
  Tensor tensor;
  DType type;
  int64_t dim;
  KvScale scale;
};

// One (row, head): tokens of the range generated, the others all ones, which is NaN in every type
// that has one.
void generate_head(const Cache& cache, uint64_t key, const KeyRange& range, int64_t tokens,
                   std::byte* data) {
  std::memset(data, 0xff, size_t(tokens * cache.dim * size_bytes(cache.type)));
  const float spread = spread_of(cache.type, cache.scale);
  for (int64_t i = range.first * cache.dim; i < range.end * cache.dim; ++i) {
    store_element(cache.type, data, i, spread * generated_value(key, uint64_t(i)));
  }
}

std::vector<std::byte> generate_cache(const Problem& problem, const Inputs& inputs,
                                      const Cache& cache, uint64_t seed) {
  const int64_t heads = problem.kv_heads;
  const int64_t bytes_a_head = inputs.capacity * cache.dim * size_bytes(cache.type);
  std::vector<std::byte> data(size_t(inputs.batch * heads * bytes_a_head));
  const Rows rows = rows_of(problem, inputs);
  parallel_for(inputs.batch * heads, [&](int64_t i) {
    const int64_t row = i / heads, head = i % heads;
    generate_head(cache, stream_key(seed, cache.tensor, row, head), key_range(problem, rows, row),
                  inputs.capacity, &data[size_t(i * bytes_a_head)]);
  });
  return data;
}

std::vector<float> generate_scale(const Problem& problem, const Inputs& inputs, const Cache& cache,
                                  uint64_t seed) {
  if (cache.scale == KvScale::none) return {};
  const float least = 0.5f / spread_of(cache.type, cache.scale);
  const auto value = [&](int64_t row, int64_t head, int64_t token) {
    const uint64_t key = stream_key(seed, cache.tensor, row, head);
    return least * (1 + 2 * uniform_value(key, uint64_t(token)));
  };
  if (cache.scale == KvScale::tensor) return {value(0, 0, 0)};
  std::vector<float> scale;
  if (cache.scale == KvScale::head) {
    for (int64_t head = 0; head < problem.kv_heads; ++head) scale.push_back(value(0, head, 0));
    return scale;
  }
  const Rows rows = rows_of(problem, inputs);
  for (int64_t i = 0; i < inputs.batch * problem.kv_heads; ++i) {
    const int64_t row = i / problem.kv_heads, head = i % problem.kv_heads;
    const KeyRange range = key_range(problem, rows, row);
    for (int64_t token = 0; token < inputs.capacity; ++token) {
      const bool reached = token >= range.first && token < range.end;
      scale.push_back(reached ? value(row, head, token) : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return scale;
}

std::vector<std::byte> generate_q(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const int64_t row_bytes = problem.dim_qk * size_bytes(problem.q_dtype);
  std::vector<std::byte> q(size_t(inputs.query_rows * problem.q_heads * row_bytes),
                           std::byte{0xff});
  const Rows rows = rows_of(problem, inputs);
  for (int64_t row = 0; row < inputs.batch; ++row) {
    for (int32_t query = 0; query < queries_of(problem, rows, row); ++query) {
      for (int64_t head = 0; head < problem.q_heads; ++head) {
        const uint64_t key = stream_key(seed, Tensor::q, row, head);
        const int64_t to = token_row(problem, inputs, row, query) * problem.q_heads + head;
        for (int64_t d = 0; d < problem.dim_qk; ++d) {
          store_element(problem.q_dtype, q.data(), to * problem.dim_qk + d,
                        generated_value(key, uint64_t(query * problem.dim_qk + d)));
        }
      }
    }
  }
  return q;
}

// A local length is the number of the shard's positions below the total.
std::vector<int32_t> generate_totals(const Inputs& inputs, uint64_t seed) {
  std::vector<int32_t> totals;
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const int64_t length = inputs.kv_len[size_t(row)], step = inputs.form.pos_step;
    const uint64_t bits = mix(stream_key(seed, Tensor::total_len, row, 0));
    const int64_t least = length == 0 ? 0 : inputs.form.pos0 + (length - 1) * step + 1;
    const int64_t choices = length == 0 ? inputs.form.pos0 + 1 : step;
    totals.push_back(int32_t(least + int64_t(bits % uint64_t(choices))));
  }
  return totals;
}

void set_queries(const Problem& problem, Inputs& inputs) {
  inputs.query_rows = inputs.batch * problem.query_len;
  inputs.q_offset.clear();
  const std::vector<int32_t>& queries = inputs.form.queries;
  if (queries.empty()) return;
  inputs.q_offset = {0};
  size_t last = 0;  // one past the last row with queries
  for (size_t row = 0; row < queries.size(); ++row) {
    inputs.q_offset.push_back(inputs.q_offset.back() + queries[row]);
    if (queries[row] > 0) last = row + 1;
  }
  // Tensors of no rows have no address.
  inputs.query_rows = std::max(1, inputs.q_offset.back() + inputs.form.spare_rows);
  if (!inputs.form.minus_one_tail) return;
  std::fill(inputs.q_offset.begin() + int64_t(last) + 1, inputs.q_offset.end(), -1);
}

std::vector<std::byte> generate_bias(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const int64_t row_bytes = inputs.capacity * size_bytes(*problem.bias);
  const int64_t lists = inputs.bias_heads * inputs.bias_queries;
  std::vector<std::byte> bias(size_t(inputs.batch * lists * row_bytes), std::byte{0xff});
  const Rows rows = rows_of(problem, inputs);
  parallel_for(inputs.batch * lists, [&](int64_t i) {
    const KeyRange range = key_range(problem, rows, i / lists);
    const uint64_t key = stream_key(seed, Tensor::bias, i / lists, i % lists);
    // One list in 16 masks everything.
    const bool nothing = mix(key) % 16 == 0;
    for (int64_t token = range.first; token < range.end; ++token) {
      const bool masked = nothing || uniform_value(key + 1, uint64_t(token)) < 0.125f;
      store_element(
          *problem.bias, bias.data(), i * inputs.capacity + token,
          masked ? -std::numeric_limits<float>::infinity() : generated_value(key, uint64_t(token)));
    }
  });
  return bias;
}

// A random tree a row: each query sees itself, its parent and all that the parent sees. Bits that
// nobody asks for are random.
std::vector<std::byte> generate_tree(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const int64_t row_bytes = tree_row_bytes(problem);
  std::vector<std::byte> tree(size_t(inputs.batch * problem.query_len * row_bytes));
  const Rows rows = rows_of(problem, inputs);
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const int32_t queries = queries_of(problem, rows, row);
    const uint64_t key = stream_key(seed, Tensor::tree, row, 0);
    std::vector<uint64_t> seen;
    for (int64_t query = 0; query < problem.query_len; ++query) {
      const uint64_t random = mix(key + uint64_t(query));
      uint64_t bits = random;
      if (query < queries) {
        bits = uint64_t(1) << query;
        // Parent -1 is the root: the keys before the tree.
        const int64_t parent = int64_t(random % uint64_t(query + 1)) - 1;
        if (parent >= 0) bits |= seen[size_t(parent)];
      }
      seen.push_back(bits);
      if (query < queries && queries < 64) bits |= random << queries;
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        tree[size_t((row * problem.query_len + query) * row_bytes + byte)] =
            std::byte(uint8_t(bits >> (8 * byte)));
      }
    }
  }
  return tree;
}

std::vector<float> generate_param(const Problem& problem, const Inputs& inputs, size_t index,
                                  uint64_t seed) {
  const ParamScope scope = problem.params[index].scope;
  const int64_t count = scope == ParamScope::scalar ? 1
                        : scope == ParamScope::head ? problem.q_heads
                                                    : inputs.batch;
  const uint64_t key = stream_key(seed, Tensor::params, int64_t(index), 0);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(1 + 0.25f * generated_value(key, uint64_t(i)));
  }
  return values;
}

}  // namespace

void generate_rest(const Problem& problem, uint64_t seed, Inputs& inputs) {
  if (problem.alibi) {
    for (int head = 0; head < problem.q_heads; ++head) {
      inputs.alibi_slopes.push_back(std::ldexp(1.0f, -1 - head % 8));
    }
  }
  if (problem.sink) {
    const uint64_t key = stream_key(seed, Tensor::sink, 0, 0);
    for (int head = 0; head < problem.q_heads; ++head) {
      inputs.sink.push_back(2 * generated_value(key, uint64_t(head)));
    }
  }
  for (size_t i = 0; i < problem.params.size(); ++i) {
    inputs.params.push_back(generate_param(problem, inputs, i, seed));
  }
  inputs.k_scale = generate_scale(
      problem, inputs, {Tensor::k_scale, problem.k_dtype, problem.dim_qk, problem.k_scale}, seed);
  if (!problem.v_in_k) {
    inputs.v_scale = generate_scale(
        problem, inputs, {Tensor::v_scale, problem.v_dtype, problem.dim_v, problem.v_scale}, seed);
  }
  if (problem.bias) {
    inputs.bias_heads = inputs.form.bias_for_all_heads ? 1 : problem.q_heads;
    inputs.bias_queries = inputs.form.bias_for_all_queries ? 1 : problem.query_len;
    inputs.bias = generate_bias(problem, inputs, seed);
  }
  if (problem.mask == Mask::tree) inputs.tree = generate_tree(problem, inputs, seed);
}

Inputs generate_inputs(const Problem& problem, const std::vector<int32_t>& kv_len, uint64_t seed,
                       const StepForm& form) {
  Inputs inputs;
  inputs.batch = int64_t(kv_len.size());
  inputs.kv_len = kv_len;
  inputs.form = form;
  inputs.capacity = 1;
  for (const int32_t length : kv_len) inputs.capacity = std::max<int64_t>(inputs.capacity, length);
  set_queries(problem, inputs);
  if (problem.strided_positions) {
    if (inputs.form.pos_step == 0) {
      inputs.form.pos0 = 1;
      inputs.form.pos_step = 4;
    }
    inputs.total_len = generate_totals(inputs, seed);
  }
  inputs.q = generate_q(problem, inputs, seed);
  inputs.k = generate_cache(problem, inputs,
                            {Tensor::k, problem.k_dtype, problem.dim_qk, problem.k_scale}, seed);
  if (!problem.v_in_k) {
    inputs.v = generate_cache(problem, inputs,
                              {Tensor::v, problem.v_dtype, problem.dim_v, problem.v_scale}, seed);
  }
  generate_rest(problem, seed, inputs);
  return inputs;
}

}  // namespace splitkv::tool
