#include "tools/splitkv/inputs.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "compiler/dtype.hpp"
#include "tools/splitkv/npy.hpp"

namespace splitkv::tool {
namespace {

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

int64_t tree_row_bytes(const Problem& problem) { return (problem.query_len + 7) / 8; }

Rows rows_of(const Problem& problem, const Inputs& inputs) {
  Rows rows;
  rows.kv_len = inputs.kv_len;
  rows.kv_begin = inputs.form.kv_begin;
  rows.queries = inputs.form.queries;
  rows.total_len = inputs.total_len;
  if (problem.strided_positions) {
    rows.pos0 = inputs.form.pos0;
    rows.pos_step = inputs.form.pos_step;
  }
  return rows;
}

KeyRange key_range(const Problem& problem, const Inputs& inputs, int64_t row) {
  return key_range(problem, rows_of(problem, inputs), row);
}

int64_t token_row(const Problem& problem, const Inputs& inputs, int64_t row, int64_t query) {
  if (inputs.q_offset.empty()) return row * problem.query_len + query;
  return inputs.q_offset[size_t(row)] + query;
}

Result<Inputs> load_inputs(const Problem& problem, const InputFiles& files,
                           const std::vector<int32_t>& kv_len, uint64_t seed) {
  // One query a row may leave its dimension out.
  Result<FloatArray> q =
      problem.query_len == 1
          ? read_tensor("--q", files.q, {-1, problem.q_heads, problem.dim_qk},
                        "[batch, q_heads, dim]")
          : read_tensor("--q", files.q, {-1, problem.query_len, problem.q_heads, problem.dim_qk},
                        "[batch, query_len, q_heads, dim]");
  if (!q) return q.error();
  const int64_t batch = q->shape[0];
  if (batch == 0) return invalid_argument("--q=" + files.q + " holds no batch rows");
  const auto k = read_tensor("--k", files.k, {batch, problem.kv_heads, -1, problem.dim_qk},
                             "[batch, kv_heads, kv_len, dim]");
  if (!k) return k.error();
  const int64_t capacity = k->shape[2];
  if (capacity == 0) return invalid_argument("--k=" + files.k + " holds no tokens");
  Inputs inputs;
  if (problem.v_in_k && !files.v.empty()) {
    return invalid_argument("--v=" + files.v +
                            ": the problem has v_in_k=on, where V is part of K; leave --v out");
  }
  if (!problem.v_in_k) {
    const auto v = read_tensor("--v", files.v, {batch, problem.kv_heads, capacity, problem.dim_v},
                               "[batch, kv_heads, kv_len, dim]");
    if (!v) return v.error();
    inputs.v = rounded(problem.v_dtype, v->values);
  }
  const auto lengths = lengths_for(files, kv_len, batch, capacity);
  if (!lengths) return lengths.error();
  inputs.batch = batch;
  inputs.capacity = capacity;
  inputs.kv_len = *lengths;
  inputs.query_rows = batch * problem.query_len;
  inputs.q = rounded(problem.q_dtype, q->values);
  inputs.k = rounded(problem.k_dtype, k->values);
  if (problem.strided_positions) {
    // One shard of one.
    inputs.form.pos_step = 1;
    inputs.total_len = inputs.kv_len;
  }
  generate_rest(problem, seed, inputs);
  return inputs;
}

namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }

  void add(const void* data, size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  template <class T>
  void add(const std::vector<T>& values) {
    if (!values.empty()) add(values.data(), values.size() * sizeof(T));
  }
  std::string text() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Tokens that queries reach of a [batch, kv_heads, capacity, token_bytes] array.
void add_reached(const Problem& problem, const Inputs& inputs, const void* data,
                 int64_t token_bytes, Hash& hash) {
  const Rows rows = rows_of(problem, inputs);
  for (int64_t i = 0; i < inputs.batch * problem.kv_heads; ++i) {
    const KeyRange range = key_range(problem, rows, i / problem.kv_heads);
    hash.add(
        static_cast<const std::byte*>(data) + (i * inputs.capacity + range.first) * token_bytes,
        size_t((range.end - range.first) * token_bytes));
  }
}

}  // namespace

std::string digest(const Problem& problem, const Inputs& inputs) {
  Hash hash;
  hash.add(inputs.kv_len);
  hash.add(inputs.q);
  add_reached(problem, inputs, inputs.k.data(), problem.dim_qk * size_bytes(problem.k_dtype), hash);
  if (!problem.v_in_k) {
    add_reached(problem, inputs, inputs.v.data(), problem.dim_v * size_bytes(problem.v_dtype),
                hash);
  }
  hash.add(inputs.q_offset);
  hash.add(inputs.form.kv_begin);
  hash.add(inputs.total_len);
  hash.add(inputs.k_scale);
  hash.add(inputs.v_scale);
  hash.add(inputs.alibi_slopes);
  hash.add(inputs.sink);
  for (const std::vector<float>& param : inputs.params) hash.add(param);
  hash.add(inputs.bias);
  hash.add(inputs.tree);
  return hash.text();
}

}  // namespace splitkv::tool
