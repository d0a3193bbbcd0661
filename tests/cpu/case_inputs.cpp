#include "tests/cpu/case_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/score.hpp"

namespace splitkv::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float uniform(std::mt19937& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

// Whole bytes of poison: NaN, or the lowest int8.
void poison(DType dtype, void* data, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    if (dtype == DType::int8) {
      static_cast<char*>(data)[i] = -128;
    } else {
      store_element(dtype, data, i, kNan);
    }
  }
}

CacheSide make_side(const Problem& problem, DType dtype, int dim, KvScale scale, int64_t blocks,
                    int64_t tokens, std::mt19937& random) {
  CacheSide side;
  side.dtype = dtype;
  side.dim = dim;
  side.scale = scale;
  const bool head_major = is_paged(problem) ? problem.kv_layout.page_order == PageOrder::hnd
                                            : problem.kv_layout.kind == KvLayoutKind::bhtd;
  const int size = size_bytes(dtype);
  int64_t row = dim;
  if (scale == KvScale::inl) {
    row += 4 / size;
  } else if (dim % 16 != 0) {
    row += 8;  // a padded token stride
  }
  const int elements_aligned = std::max(1, problem.align / size);
  row = (row + elements_aligned - 1) / elements_aligned * elements_aligned;
  side.stride_token = head_major ? row : row * problem.kv_heads;
  side.stride_head = head_major ? row * tokens : row;
  side.stride_block = row * tokens * problem.kv_heads;
  const int64_t elements = std::max<int64_t>(16, blocks * side.stride_block);
  side.memory = std::make_unique<GuardedMemory>(size_t(elements) * size);
  poison(dtype, side.memory->data(), elements);
  side.scale_stride_token = problem.kv_heads;
  side.scale_stride_block = tokens * problem.kv_heads;
  const float unit = dtype == DType::int8 ? 127 : 1;  // scores as large as other types'
  if (scale == KvScale::tensor) side.scales = {0.37f / unit};
  if (scale == KvScale::head) {
    for (int head = 0; head < problem.kv_heads; ++head) {
      side.scales.push_back(uniform(random, 0.1f, 4) / unit);
    }
  }
  if (scale == KvScale::token) side.scales.assign(blocks * side.scale_stride_block, kNan);
  return side;
}

void make_pages(Inputs& inputs, std::mt19937& random) {
  const KernelCase& test = inputs.test;
  const Problem& problem = inputs.compiled.problem;
  const int size = problem.kv_layout.page_size;
  const int64_t slots = (inputs.longest + size - 1) / size;
  inputs.table_stride = slots + 1;
  inputs.pages = inputs.batch * slots + 3;
  for (int row = 0; row < inputs.batch; ++row) {
    inputs.page_offsets.push_back(row * inputs.table_stride);
  }
  for (CacheSide* side : {&inputs.k, &inputs.v}) {
    if (side == &inputs.v && !problem.separate_tables) {
      side->page_table = inputs.k.page_table;
      continue;
    }
    std::vector<int32_t> ids(inputs.pages);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
    std::shuffle(ids.begin(), ids.end(), random);
    // Ids that no visible key needs would lead far out of memory.
    side->page_table.assign(inputs.batch * inputs.table_stride, 0x7fffffff);
    size_t used = 0;
    for (int row = 0; row < inputs.batch; ++row) {
      const auto [first, end] = inputs.interval(row);
      for (int page = first / size; page * size < end; ++page) {
        side->page_table[inputs.page_offsets[row] + page] = ids[used++];
      }
    }
  }
  for (const auto& [row, slot] : test.bad_pages) {
    inputs.k.page_table[inputs.page_offsets[row] + slot] = int32_t(inputs.pages);
    if (!problem.separate_tables) inputs.v.page_table = inputs.k.page_table;
  }
}

void fill_caches(Inputs& inputs, std::mt19937& random) {
  const Problem& problem = inputs.compiled.problem;
  for (int row = 0; row < inputs.batch; ++row) {
    const auto [first, end] = inputs.interval(row);
    for (int key = first; key < end; ++key) {
      for (CacheSide* side : {&inputs.k, &inputs.v}) {
        if (inputs.is_bad(row, key) && side->page_table == inputs.k.page_table) continue;
        const auto [block, token] = inputs.place(*side, row, key);
        for (int head = 0; head < problem.kv_heads; ++head) side->fill(block, head, token, random);
      }
    }
  }
}

void make_caches(Inputs& inputs, std::mt19937& random) {
  const Problem& problem = inputs.compiled.problem;
  int64_t blocks = inputs.batch, tokens = std::max<int64_t>(1, inputs.longest);
  if (is_paged(problem)) {
    make_pages(inputs, random);
    blocks = inputs.pages;
    tokens = problem.kv_layout.page_size;
  }
  const auto k_table = std::move(inputs.k.page_table), v_table = std::move(inputs.v.page_table);
  inputs.k =
      make_side(problem, problem.k_dtype, problem.dim_qk, problem.k_scale, blocks, tokens, random);
  inputs.v =
      make_side(problem, problem.v_dtype, problem.dim_v, problem.v_scale, blocks, tokens, random);
  inputs.k.page_table = k_table;
  inputs.v.page_table = v_table;
  fill_caches(inputs, random);
}

void make_queries(Inputs& inputs, std::mt19937& random) {
  const Problem& problem = inputs.compiled.problem;
  const DType dtype = problem.q_dtype;
  const int64_t rows = int64_t(inputs.token_rows) * problem.q_heads;
  const auto make = [&](std::vector<char>& to, int dim) {
    to.resize(size_t(rows) * dim * size_bytes(dtype));
    for (int64_t i = 0; i < rows * dim; ++i) {
      store_element(dtype, to.data(), i, uniform(random, -1, 1) * float(inputs.test.q_size));
    }
  };
  make(inputs.q, problem.dim_qk - problem.dim_rope);
  make(inputs.q_rope, problem.dim_rope);
}

void make_score_data(Inputs& inputs, std::mt19937& random) {
  const Problem& problem = inputs.compiled.problem;
  inputs.sinks = inputs.test.sinks;
  for (int head = int(inputs.sinks.size()); head < problem.q_heads; ++head) {
    inputs.sinks.push_back(uniform(random, -3, 3));
  }
  for (const Param& param : all_params(problem)) {
    const int count = param.scope == ParamScope::head  ? problem.q_heads
                      : param.scope == ParamScope::row ? inputs.batch
                                                       : 1;
    std::vector<float> values;
    for (int i = 0; i < count; ++i) values.push_back(uniform(random, 0.05f, 1));
    inputs.params.push_back(values);
  }
  if (problem.bias) {
    const int64_t rows = int64_t(inputs.batch) * problem.q_heads * problem.query_len;
    const int64_t elements = rows * inputs.longest;
    inputs.bias.resize(size_t(elements) * size_bytes(*problem.bias));
    poison(*problem.bias, inputs.bias.data(), elements);
    for (int64_t i = 0; i < elements; ++i) {
      const int row = int(i / inputs.longest / problem.query_len / problem.q_heads);
      const auto [first, end] = inputs.interval(row);
      const int64_t key = i % inputs.longest;
      if (key < first || key >= end) continue;
      const float value = random() % 8 == 0 ? -kInfinity : uniform(random, -2, 2);
      store_element(*problem.bias, inputs.bias.data(), i, value);
    }
  }
  inputs.tree_row_bytes = (problem.query_len + 7) / 8 + 1;
  inputs.tree.resize(size_t(inputs.batch) * problem.query_len * inputs.tree_row_bytes);
  for (uint8_t& byte : inputs.tree) byte = uint8_t(random());
}

}  // namespace

double CacheSide::at(int64_t block, int64_t head, int64_t token, int64_t d) const {
  const int64_t row = index(block, head, token);
  const double value = load_element(dtype, memory->data(), row + d);
  switch (scale) {
    case KvScale::none:
      return value;
    case KvScale::tensor:
      return value * scales[0];
    case KvScale::head:
      return value * scales[head];
    case KvScale::token:
      return value * scales[block * scale_stride_block + token * scale_stride_token + head];
    case KvScale::inl:
      break;
  }
  float inside;
  std::memcpy(&inside, static_cast<const char*>(memory->data()) + (row + dim) * size_bytes(dtype),
              sizeof inside);
  return value * inside;
}

void CacheSide::fill(int64_t block, int64_t head, int64_t token, std::mt19937& random) {
  const int64_t row = index(block, head, token);
  const float size = dtype == DType::int8 ? 127 : 1;
  for (int d = 0; d < dim; ++d) {
    store_element(dtype, memory->data(), row + d, uniform(random, -size, size));
  }
  const float own = uniform(random, 0.1f, 2) / size;
  if (scale == KvScale::token) {
    scales[block * scale_stride_block + token * scale_stride_token + head] = own;
  } else if (scale == KvScale::inl) {
    std::memcpy(static_cast<char*>(memory->data()) + (row + dim) * size_bytes(dtype), &own,
                sizeof own);
  }
}

int Inputs::length(int row) const {
  int stored = test.kv_len_bytes == 0 ? kv_lens[0] : kv_lens[row];
  if (test.kv_capacity > 0) stored = int(std::min<int64_t>(stored, test.kv_capacity));
  return std::max(0, stored);
}

int Inputs::total(int row) const {
  return compiled.problem.strided_positions ? total_lens[row] : length(row);
}

int Inputs::queries(int row) const {
  if (q_offsets.empty()) return compiled.problem.query_len;
  const int begin = q_offsets[row], end = q_offsets[row + 1];
  return begin < 0 || end <= begin ? 0 : std::min(end - begin, compiled.problem.query_len);
}

int Inputs::token(int row, int query) const {
  return (q_offsets.empty() ? row * compiled.problem.query_len : q_offsets[row]) + query;
}

int64_t Inputs::position(int key) const {
  if (!compiled.problem.strided_positions) return key;
  return test.pos0 + int64_t(key) * test.pos_step;
}

bool Inputs::sees(int row, int query, int key) const {
  const Problem& problem = compiled.problem;
  const int64_t at = int64_t(total(row)) - queries(row) + query, key_at = position(key);
  if (!kv_begins.empty() && key < kv_begins[row]) return false;
  if (problem.mask == Mask::causal && key_at > at) return false;
  if (problem.window > 0 && key_at <= at - problem.window) return false;
  if (problem.chunk == 0) return true;
  const int64_t chunk = int64_t(std::floor(double(at) / problem.chunk)) * problem.chunk;
  return key_at >= chunk;
}

std::pair<int, int> Inputs::interval(int row) const {
  int first = length(row), end = 0;
  for (int query = 0; query < queries(row); ++query) {
    for (int key = 0; key < length(row); ++key) {
      if (!sees(row, query, key)) continue;
      first = std::min(first, key);
      end = std::max(end, key + 1);
    }
  }
  return {first, std::max(first, end)};
}

bool Inputs::is_bad(int row, int key) const {
  return std::any_of(test.bad_pages.begin(), test.bad_pages.end(), [&](const auto& bad) {
    return bad.first == row && bad.second == key / compiled.problem.kv_layout.page_size;
  });
}

std::pair<int64_t, int64_t> Inputs::place(const CacheSide& side, int row, int key) const {
  if (!is_paged(compiled.problem)) return {row, key};
  const int size = compiled.problem.kv_layout.page_size;
  return {side.page_table[page_offsets[row] + key / size], key % size};
}

double Inputs::q_at(int token, int head, int d) const {
  const Problem& problem = compiled.problem;
  const int plain = problem.dim_qk - problem.dim_rope;
  const int64_t row = int64_t(token) * problem.q_heads + head;
  if (d < plain) return load_element(problem.q_dtype, q.data(), row * plain + d);
  return load_element(problem.q_dtype, q_rope.data(), row * problem.dim_rope + d - plain);
}

float Inputs::bias_at(int row, int head, int query, int key) const {
  const Problem& problem = compiled.problem;
  const int64_t at =
      ((int64_t(row) * problem.q_heads + head) * problem.query_len + query) * longest + key;
  return load_element(*problem.bias, bias.data(), at);
}

bool Inputs::tree_bit(int row, int query, int bit) const {
  const int64_t from = (int64_t(row) * compiled.problem.query_len + query) * tree_row_bytes;
  return (tree[from + bit / 8] >> (bit % 8) & 1) != 0;
}

Inputs make_inputs(const KernelCase& test, const CompiledCase& compiled) {
  Inputs inputs{test, compiled};
  std::mt19937 random(7);
  inputs.batch = int(test.kv_lens.size());
  inputs.kv_lens.assign(test.kv_lens.begin(), test.kv_lens.end());
  inputs.wide_kv_lens.assign(test.kv_lens.begin(), test.kv_lens.end());
  inputs.kv_begins.assign(test.kv_begins.begin(), test.kv_begins.end());
  inputs.q_offsets.assign(test.q_offsets.begin(), test.q_offsets.end());
  inputs.total_lens.assign(test.total_lens.begin(), test.total_lens.end());
  inputs.token_rows =
      test.q_offsets.empty() ? inputs.batch * compiled.problem.query_len : test.query_rows;
  for (int row = 0; row < inputs.batch; ++row) {
    inputs.longest = std::max<int64_t>(inputs.longest, inputs.length(row));
  }
  make_caches(inputs, random);
  make_queries(inputs, random);
  make_score_data(inputs, random);
  return inputs;
}

}  // namespace splitkv::test
