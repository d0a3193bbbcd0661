#include "tools/splitkv/kv_image.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "compiler/arithmetic.hpp"
#include "tools/splitkv/parallel.hpp"

namespace splitkv::tool {
namespace {

// One of K and V: its logical bytes, [batch, heads, capacity, token_bytes], and where they go.
struct Source {
  const std::vector<std::byte>& data;
  int64_t element_bytes;
  int64_t token_bytes;
  const float* inline_scale;  // [batch, heads, capacity], stored behind each token; or null
  TokenStrides strides;
};

std::vector<int32_t> shuffled_ids(int64_t count, uint64_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  uint64_t state = seed;
  for (int64_t i = count - 1; i > 0; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(ids[size_t(i)], ids[size_t((state >> 33) % uint64_t(i + 1))]);
  }
  return ids;
}

// The slots [first, end) of a row's list that hold reachable keys.
std::pair<int64_t, int64_t> used_slots(const Problem& problem, const KeyRange& range) {
  const int64_t page = problem.kv_layout.page_size;
  if (range.first == range.end) return {0, 0};
  return {range.first / page, ceil_div(range.end, page)};
}

int64_t pages_for(const Problem& problem, const Inputs& inputs) {
  const Rows rows = rows_of(problem, inputs);
  int64_t used = 0;
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const auto [first, end] = used_slots(problem, key_range(problem, rows, row));
    used += end - first;
  }
  return used + used / 8 + 2;
}

PageLists deal_pages(const Problem& problem, const Inputs& inputs, int64_t pages, uint64_t seed) {
  const int64_t page_size = problem.kv_layout.page_size;
  const Rows rows = rows_of(problem, inputs);
  PageLists lists;
  for (const int32_t length : inputs.kv_len) {
    lists.stride = std::max(lists.stride, ceil_div(length, page_size) + 1);
  }
  int64_t slots = inputs.batch * lists.stride;
  if (inputs.form.page_offsets) {
    // The rows' lists in reverse order, without a slot too many.
    slots = 0;
    lists.offset.resize(size_t(inputs.batch));
    for (int64_t row = inputs.batch - 1; row >= 0; --row) {
      lists.offset[size_t(row)] = slots;
      slots += ceil_div(inputs.kv_len[size_t(row)], page_size);
    }
    lists.stride = 0;
  }
  lists.table.assign(size_t(std::max<int64_t>(1, slots)), kPoisonPage);
  const std::vector<int32_t> ids = shuffled_ids(pages, seed);
  size_t next = 0;
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const int64_t start = lists.offset.empty() ? row * lists.stride : lists.offset[size_t(row)];
    const auto [first, end] = used_slots(problem, key_range(problem, rows, row));
    for (int64_t slot = first; slot < end; ++slot) lists.table[size_t(start + slot)] = ids[next++];
  }
  return lists;
}

// Dense strides of rows of `row` elements, `capacity` tokens a block.
TokenStrides dense(const Problem& problem, int64_t capacity, int64_t row) {
  const int64_t heads = problem.kv_heads;
  const bool paged = is_paged(problem);
  const int64_t tokens = paged ? problem.kv_layout.page_size : capacity;
  const bool tokens_first = paged ? problem.kv_layout.page_order == PageOrder::nhd
                                  : problem.kv_layout.kind == KvLayoutKind::bthd;
  if (tokens_first) return {tokens * heads * row, row, heads * row};
  return {tokens * heads * row, tokens * row, row};
}

int64_t row_elements(const Problem& problem, int64_t token_bytes, int64_t element_bytes,
                     bool with_scale) {
  if (!with_scale) return token_bytes / element_bytes;
  const int64_t unit = std::max<int64_t>(problem.align, element_bytes);
  return ceil_div(token_bytes + 4, unit) * unit / element_bytes;
}

// Calls body(row, head, token, block, token of the block) for every reachable token.
template <class Body>
void for_each_token(const Problem& problem, const Inputs& inputs, const PageLists& pages,
                    const Body& body) {
  const Rows rows = rows_of(problem, inputs);
  const int64_t page_size = problem.kv_layout.page_size;
  parallel_for(inputs.batch * problem.kv_heads, [&](int64_t i) {
    const int64_t row = i / problem.kv_heads, head = i % problem.kv_heads;
    const KeyRange range = key_range(problem, rows, row);
    for (int64_t token = range.first; token < range.end; ++token) {
      if (is_paged(problem)) {
        body(row, head, token, pages.at(row, token / page_size), token % page_size);
      } else {
        body(row, head, token, row, token);
      }
    }
  });
}

// memory: room for all blocks, poisoned.
void write_tokens(const Problem& problem, const Inputs& inputs, const PageLists& pages,
                  const Source& source, std::byte* memory) {
  for_each_token(problem, inputs, pages,
                 [&](int64_t row, int64_t head, int64_t token, int64_t block, int64_t in_block) {
                   const int64_t from = (row * problem.kv_heads + head) * inputs.capacity + token;
                   std::byte* to =
                       memory + (block * source.strides.block + head * source.strides.head +
                                 in_block * source.strides.token) *
                                    source.element_bytes;
                   std::memcpy(to, &source.data[size_t(from * source.token_bytes)],
                               size_t(source.token_bytes));
                   if (source.inline_scale == nullptr) return;
                   std::memcpy(to + source.token_bytes, source.inline_scale + from, sizeof(float));
                 });
}

// NaN, or +Inf where the step's form says so and the type has it; 0xff bytes where it has neither.
std::vector<std::byte> poisoned(const Inputs& inputs, DType type, int64_t bytes) {
  std::vector<std::byte> memory(size_t(bytes), std::byte{0xff});
  if (!inputs.form.infinite_poison || type == DType::e4m3 || type == DType::int8) return memory;
  const uint32_t pattern = type == DType::fp32   ? 0x7f800000
                           : type == DType::fp16 ? 0x7c00
                           : type == DType::bf16 ? 0x7f80
                                                 : 0x7c;
  const int64_t size = size_bytes(type);
  for (int64_t at = 0; at + size <= bytes; at += size) {
    std::memcpy(&memory[size_t(at)], &pattern, size_t(size));
  }
  return memory;
}

struct ScaleSource {
  KvScale kind;
  const std::vector<float>& values;
  int64_t blocks;
};

std::vector<float> lay_out_scale(const Problem& problem, const Inputs& inputs,
                                 const PageLists& pages, const ScaleSource& source,
                                 TokenStrides& strides) {
  if (source.kind == KvScale::inl) return {};
  if (source.kind != KvScale::token) return source.values;
  strides = dense(problem, inputs.capacity, 1);
  std::vector<float> scale(size_t(source.blocks * strides.block), std::nanf(""));
  for_each_token(
      problem, inputs, pages,
      [&](int64_t row, int64_t head, int64_t token, int64_t block, int64_t in_block) {
        const int64_t from = (row * problem.kv_heads + head) * inputs.capacity + token;
        scale[size_t(block * strides.block + head * strides.head + in_block * strides.token)] =
            source.values[size_t(from)];
      });
  return scale;
}

Source source_of_k(const Problem& problem, const Inputs& inputs) {
  const int64_t bytes = size_bytes(problem.k_dtype), token = problem.dim_qk * bytes;
  const bool with_scale = problem.k_scale == KvScale::inl;
  return {inputs.k, bytes, token, with_scale ? inputs.k_scale.data() : nullptr,
          dense(problem, inputs.capacity, row_elements(problem, token, bytes, with_scale))};
}

Source source_of_v(const Problem& problem, const Inputs& inputs) {
  const int64_t bytes = size_bytes(problem.v_dtype), token = problem.dim_v * bytes;
  const bool with_scale = problem.v_scale == KvScale::inl;
  return {inputs.v, bytes, token, with_scale ? inputs.v_scale.data() : nullptr,
          dense(problem, inputs.capacity, row_elements(problem, token, bytes, with_scale))};
}

}  // namespace

KvImage lay_out(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  KvImage image;
  PageLists pages;
  int64_t blocks = inputs.batch;
  if (is_paged(problem)) {
    blocks = image.page_count = pages_for(problem, inputs);
    pages = deal_pages(problem, inputs, blocks, seed);
    if (problem.separate_tables) image.v_pages = deal_pages(problem, inputs, blocks, seed + 1);
  }
  const PageLists& v_pages = problem.separate_tables ? image.v_pages : pages;
  Source k = source_of_k(problem, inputs);
  Source v = source_of_v(problem, inputs);
  const int64_t k_bytes = k.strides.block * k.element_bytes;
  const int64_t v_bytes = v.strides.block * v.element_bytes;
  const bool interleaved =
      inputs.form.interleaved && !problem.v_in_k && k.strides == v.strides && k_bytes == v_bytes;
  if (interleaved) {
    k.strides.block *= 2;
    v.strides.block *= 2;
    image.v_at = size_t(k_bytes);
  }
  image.k = poisoned(inputs, problem.k_dtype, blocks * k_bytes * (interleaved ? 2 : 1));
  write_tokens(problem, inputs, pages, k, image.k.data());
  image.k_strides = k.strides;
  image.k_scale = lay_out_scale(problem, inputs, pages, {problem.k_scale, inputs.k_scale, blocks},
                                image.k_scale_strides);
  if (!problem.v_in_k) {
    if (!interleaved) image.v = poisoned(inputs, problem.v_dtype, blocks * v_bytes);
    write_tokens(problem, inputs, v_pages, v,
                 interleaved ? image.k.data() + image.v_at : image.v.data());
    image.v_strides = v.strides;
    image.v_scale = lay_out_scale(problem, inputs, v_pages,
                                  {problem.v_scale, inputs.v_scale, blocks}, image.v_scale_strides);
  }
  image.page_table = std::move(pages.table);
  image.page_offset = std::move(pages.offset);
  image.page_table_stride = pages.stride;
  return image;
}

}  // namespace splitkv::tool
