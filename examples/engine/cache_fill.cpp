#include "cache_fill.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "reference.hpp"

namespace engine {
namespace {

// Step inputs in device memory that live as long as this does.
struct Inputs {
  Memory kv_len, q_offset, pages, page_offset, qkv, out;

  AttentionRows rows(int64_t batch, int64_t tokens) const {
    AttentionRows rows;
    rows.batch = batch, rows.tokens = tokens;
    rows.kv_len = static_cast<const int32_t*>(kv_len.get());
    rows.q_offset = static_cast<const int32_t*>(q_offset.get());
    rows.page_table = static_cast<const int32_t*>(pages.get());
    rows.page_offset = static_cast<const int64_t*>(page_offset.get());
    rows.qkv = qkv.get(), rows.out = out.get();
    return rows;
  }
};

template <class T>
Memory put(Device& device, const std::vector<T>& values) {
  Memory memory = device.allocate(values.size() * sizeof(T));
  device.upload(memory.get(), values.data(), values.size() * sizeof(T));
  device.wait();
  return memory;
}

Memory put_random(Device& device, int64_t count, uint64_t seed, float size) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = size * random_value(seed, i);
  return put(device, to_elements(device.dtype(), values));
}

std::vector<float> fetch(Device& device, const void* from, int64_t count) {
  std::vector<std::byte> bytes(size_t(count) * size_of(device.dtype()));
  device.download(bytes.data(), from, bytes.size());
  return from_elements(device.dtype(), bytes);
}

// The rows of one kv head that a row of the batch sees, out of a layer's K or V.
std::vector<const float*> keys_of(const std::vector<float>& cache, const RunRow& row,
                                  const ModelConfig& config, const Limits& limits, int64_t head) {
  std::vector<const float*> keys;
  for (int64_t key = 0; key < row.kv_len; ++key) {
    const int64_t page = row.pages[size_t(key / limits.page_size)];
    const int64_t token = page * limits.page_size + key % limits.page_size;
    keys.push_back(cache.data() + (token * config.kv_heads + head) * config.dim);
  }
  return keys;
}

}  // namespace

std::vector<RunRow> make_rows(const std::vector<int32_t>& lengths, const Limits& limits,
                              int64_t vocab, PageAllocator& allocator) {
  std::vector<RunRow> rows(lengths.size());
  for (bool is_missing = true; is_missing;) {
    is_missing = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (int64_t(rows[i].pages.size()) * limits.page_size >= lengths[i]) continue;
      is_missing = true;
      if (allocator.take(1, rows[i].pages)) continue;
      throw std::runtime_error("--pages " + std::to_string(limits.pages) +
                               " are too few for these lengths");
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].kv_len = lengths[i];
    rows[i].tokens = {int32_t(int64_t(i) * 7919 % vocab)};
  }
  return rows;
}

// One row after another, in pieces of as many tokens; an append is not bound to query_len.
void fill_cache(Device& device, const ModelConfig& config, const Attention& attention,
                const std::vector<RunRow>& rows) {
  constexpr int32_t kPiece = 4096;
  Inputs inputs;
  // One draw for all: its beginning moves on, so that no two pieces hold the same.
  constexpr int64_t kDraws = 1009;
  const int64_t width = config.qkv_width();
  inputs.qkv = put_random(device, (kPiece + kDraws) * width, 1, 2);
  inputs.kv_len = device.allocate(4), inputs.q_offset = device.allocate(8);
  inputs.page_offset = put(device, std::vector<int64_t>{0});
  int64_t draw = 0;
  for (const RunRow& row : rows) {
    inputs.pages = put(device, row.pages);
    for (int32_t first = 0; first < row.kv_len - 1; first += kPiece) {
      const int32_t count = std::min(kPiece, row.kv_len - 1 - first);
      const int32_t length = first + count;
      const int32_t offsets[] = {0, count};
      device.upload(inputs.kv_len.get(), &length, 4);
      device.upload(inputs.q_offset.get(), offsets, 8);
      for (int64_t layer = 0; layer < config.layers; ++layer) {
        AttentionRows step = inputs.rows(1, count);
        draw = (draw + 101) % kDraws;
        step.qkv = static_cast<char*>(step.qkv) + size_t(draw * width) * size_of(device.dtype());
        attention.append(device, layer, step);
      }
      device.wait();
    }
  }
}

double worst_error(Device& device, const ModelConfig& config, const Attention& attention,
                   const KvCache& cache, const Limits& limits, const std::vector<RunRow>& rows,
                   const std::vector<size_t>& sampled, int64_t layer) {
  const int64_t batch = attention.bucket_of(int64_t(rows.size())), width = config.qkv_width();
  std::vector<int32_t> kv_len(static_cast<size_t>(batch)), pages;
  std::vector<int64_t> page_offset(static_cast<size_t>(batch));
  for (size_t i = 0; i < rows.size(); ++i) {
    kv_len[i] = rows[i].kv_len;
    page_offset[i] = int64_t(pages.size());
    pages.insert(pages.end(), rows[i].pages.begin(), rows[i].pages.end());
  }
  Inputs inputs;
  inputs.kv_len = put(device, kv_len), inputs.pages = put(device, pages);
  inputs.page_offset = put(device, page_offset);
  inputs.qkv = put_random(device, batch * width, 2, 3);
  inputs.out = device.allocate(size_t(batch * config.q_heads * config.dim) * 4);
  const AttentionRows step = inputs.rows(batch, batch);
  const Workspace workspace = attention.make_workspace(device);
  attention.append(device, layer, step);
  attention.attend(device, layer, step, workspace);

  const std::vector<float> q = fetch(device, step.qkv, batch * width);
  const std::vector<float> out = fetch(device, step.out, batch * config.q_heads * config.dim);
  const auto elements = int64_t(cache.layer_bytes() / size_of(device.dtype()));
  const std::vector<float> k = fetch(device, cache.k(layer), elements);
  const std::vector<float> v = fetch(device, cache.v(layer), elements);
  double worst = 0;
  for (const size_t row : sampled) {
    for (int64_t head = 0; head < config.q_heads; ++head) {
      const int64_t kv_head = head / (config.q_heads / config.kv_heads);
      const auto expected = dense_attention(&q[row * size_t(width) + size_t(head * config.dim)],
                                            keys_of(k, rows[row], config, limits, kv_head),
                                            keys_of(v, rows[row], config, limits, kv_head),
                                            config.dim, 1 / std::sqrt(config.dim));
      double difference = 0, norm = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t place = (row * size_t(config.q_heads) + size_t(head)) * size_t(config.dim) + i;
        difference += std::pow(double(out[place]) - expected[i], 2);
        norm += expected[i] * expected[i];
      }
      const double error = std::sqrt(difference / norm);
      worst = error <= worst ? worst : error;  // a NaN stays
    }
  }
  return worst;
}

}  // namespace engine
