#include "tools/splitkv/inputs.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "compiler/dtype.hpp"
#include "tools/splitkv/npy.hpp"
#include "tools/splitkv/parallel.hpp"

namespace splitkv::tool {
namespace {

enum class Tensor : uint64_t { q = 1, k = 2, v = 3 };

// The finalizer of SplitMix64: a bijection whose output bits each depend on every input bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
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

int64_t sum_of_16_bit_lanes(uint64_t bits) {
  return int64_t((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
}

struct TensorShape {
  Tensor tensor;
  DType type;
  int64_t heads;
  int64_t tokens;
  int64_t dim;
};

TensorShape shape_of_k(const Problem& p, int64_t tokens) {
  return {Tensor::k, p.k_dtype, p.kv_heads, tokens, p.dim_qk};
}
TensorShape shape_of_v(const Problem& p, int64_t tokens) {
  return {Tensor::v, p.v_dtype, p.kv_heads, tokens, p.dim_v};
}

// One (row, head): tokens [first, last) generated, the others all ones, which is NaN.
void generate_head(const TensorShape& shape, uint64_t key, int64_t first, int64_t last,
                   std::byte* data) {
  std::memset(data, 0xff, size_t(shape.tokens * shape.dim * size_bytes(shape.type)));
  for (int64_t i = first * shape.dim; i < last * shape.dim; ++i) {
    store_element(shape.type, data, i, generated_value(key, uint64_t(i)));
  }
}

std::vector<std::byte> generate_kv(const Problem& problem, const TensorShape& shape,
                                   const std::vector<int32_t>& kv_len, uint64_t seed) {
  const int64_t bytes_a_head = shape.tokens * shape.dim * size_bytes(shape.type);
  std::vector<std::byte> data(kv_len.size() * size_t(shape.heads * bytes_a_head));
  parallel_for(int64_t(kv_len.size()) * shape.heads, [&](int64_t i) {
    const int64_t row = i / shape.heads, head = i % shape.heads;
    generate_head(shape, stream_key(seed, shape.tensor, row, head),
                  first_visible(problem, kv_len[row]), kv_len[row], &data[i * bytes_a_head]);
  });
  return data;
}

// Reads a tensor and checks it against the shape the problem asks for; -1 accepts any extent there.
Result<FloatArray> read_tensor(const char* option, const std::string& path,
                               const std::vector<int64_t>& wanted, const char* names) {
  Result<FloatArray> array = read_npy_floats(path);
  if (!array) return array;
  bool fits = array->shape.size() == wanted.size();
  for (size_t i = 0; fits && i < wanted.size(); ++i) {
    fits = wanted[i] < 0 || array->shape[i] == wanted[i];
  }
  if (fits) return array;
  std::string would_fit = print_shape(wanted);
  for (size_t at; (at = would_fit.find("-1")) != std::string::npos;)
    would_fit.replace(at, 2, "any");
  return invalid_argument(fmt::format("{}={} has shape {}; the problem asks for {} = {}", option,
                                      path, print_shape(array->shape), names, would_fit));
}

std::vector<std::byte> rounded(DType type, const std::vector<float>& values) {
  std::vector<std::byte> data(values.size() * size_t(size_bytes(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(type, data.data(), int64_t(i), values[i]);
  }
  return data;
}

Result<std::vector<int32_t>> lengths_for(const InputFiles& files, std::vector<int32_t> given,
                                         int64_t batch, int64_t capacity) {
  std::vector<int64_t> lengths(given.begin(), given.end());
  const char* option = "--kv-len";
  if (!files.kv_lens.empty()) {
    if (!given.empty()) {
      return invalid_argument(
          "--kv-len and --kv-lens both give the lengths; one of them would fit");
    }
    option = "--kv-lens";
    const Result<IntArray> array = read_npy_ints(files.kv_lens);
    if (!array) return array.error();
    if (array->shape != std::vector<int64_t>{batch}) {
      return invalid_argument(fmt::format("--kv-lens={} has shape {}; [batch] = [{}] would fit",
                                          files.kv_lens, print_shape(array->shape), batch));
    }
    lengths = array->values;
  }
  if (lengths.empty()) lengths = {capacity};
  if (lengths.size() == 1) lengths.assign(size_t(batch), lengths[0]);
  if (int64_t(lengths.size()) != batch) {
    return invalid_argument(fmt::format("{} gives {} lengths; the files hold {} batch rows", option,
                                        lengths.size(), batch));
  }
  for (const int64_t length : lengths) {
    if (length < 0 || length > capacity) {
      return invalid_argument(fmt::format("{}: length {} is outside 0..{}, the tokens that k holds",
                                          option, length, capacity));
    }
  }
  return std::vector<int32_t>(lengths.begin(), lengths.end());
}

}  // namespace

int32_t first_visible(const Problem& problem, int32_t kv_len) {
  return problem.window == 0 ? 0 : std::max(0, kv_len - problem.window);
}

float generated_value(uint64_t key, uint64_t index) {
  const int64_t sum =
      sum_of_16_bit_lanes(mix(key + 2 * index)) + sum_of_16_bit_lanes(mix(key + 2 * index + 1));
  // Mean 4 * 65535; variance 8 * (2^32 - 1) / 12. The difference is an integer below 2^24: exact.
  constexpr float kInverseDeviation = 1.8688124e-05f;
  return float(sum - 4 * 65535) * kInverseDeviation;
}

Inputs generate_inputs(const Problem& problem, const std::vector<int32_t>& kv_len, uint64_t seed) {
  Inputs inputs;
  inputs.batch = int64_t(kv_len.size());
  inputs.kv_len = kv_len;
  inputs.capacity = 1;
  for (const int32_t length : kv_len) inputs.capacity = std::max<int64_t>(inputs.capacity, length);

  const TensorShape q{Tensor::q, problem.q_dtype, problem.q_heads, 1, problem.dim_qk};
  const int64_t q_bytes = q.dim * size_bytes(q.type);
  inputs.q.resize(size_t(inputs.batch * q.heads * q_bytes));
  for (int64_t i = 0; i < inputs.batch * q.heads; ++i) {
    generate_head(q, stream_key(seed, q.tensor, i / q.heads, i % q.heads), 0, 1,
                  &inputs.q[i * q_bytes]);
  }
  inputs.k = generate_kv(problem, shape_of_k(problem, inputs.capacity), kv_len, seed);
  inputs.v = generate_kv(problem, shape_of_v(problem, inputs.capacity), kv_len, seed);
  return inputs;
}

Result<Inputs> load_inputs(const Problem& problem, const InputFiles& files,
                           const std::vector<int32_t>& kv_len) {
  const auto q =
      read_tensor("--q", files.q, {-1, problem.q_heads, problem.dim_qk}, "[batch, q_heads, dim]");
  if (!q) return q.error();
  const int64_t batch = q->shape[0];
  if (batch == 0) return invalid_argument("--q=" + files.q + " holds no batch rows");
  const auto k = read_tensor("--k", files.k, {batch, problem.kv_heads, -1, problem.dim_qk},
                             "[batch, kv_heads, kv_len, dim]");
  if (!k) return k.error();
  const int64_t capacity = k->shape[2];
  const auto v = read_tensor("--v", files.v, {batch, problem.kv_heads, capacity, problem.dim_v},
                             "[batch, kv_heads, kv_len, dim]");
  if (!v) return v.error();
  if (capacity == 0) return invalid_argument("--k=" + files.k + " holds no tokens");
  const auto lengths = lengths_for(files, kv_len, batch, capacity);
  if (!lengths) return lengths.error();
  return Inputs{batch,
                capacity,
                *lengths,
                rounded(problem.q_dtype, q->values),
                rounded(problem.k_dtype, k->values),
                rounded(problem.v_dtype, v->values)};
}

std::string digest(const Problem& problem, const Inputs& inputs) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), inputs.kv_len.data(), inputs.kv_len.size() * sizeof(int32_t));
  XXH3_64bits_update(state.get(), inputs.q.data(), inputs.q.size());
  const auto add = [&](const TensorShape& shape, const std::vector<std::byte>& data) {
    const int64_t token_bytes = shape.dim * size_bytes(shape.type);
    for (int64_t i = 0; i < inputs.batch * shape.heads; ++i) {
      const int32_t length = inputs.kv_len[i / shape.heads];
      const int64_t first = first_visible(problem, length);
      XXH3_64bits_update(state.get(), data.data() + (i * shape.tokens + first) * token_bytes,
                         size_t((length - first) * token_bytes));
    }
  };
  add(shape_of_k(problem, inputs.capacity), inputs.k);
  add(shape_of_v(problem, inputs.capacity), inputs.v);
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace splitkv::tool
