#include "tools/splitkv/kv_image.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tools/splitkv/parallel.hpp"

namespace splitkv::tool {
namespace {

// One of K and V: its logical bytes, [batch, heads, capacity, token_bytes].
struct Source {
  const std::vector<std::byte>& data;
  int64_t heads;
  int64_t capacity;
  int64_t token_bytes;

  const std::byte* token(int64_t row, int64_t head, int64_t token) const {
    return data.data() + ((row * heads + head) * capacity + token) * token_bytes;
  }
};

std::vector<std::byte> tokens_before_heads(const Source& source, int64_t batch) {
  std::vector<std::byte> image(source.data.size());
  parallel_for(batch * source.capacity, [&](int64_t i) {
    std::byte* to = &image[i * source.heads * source.token_bytes];
    for (int64_t head = 0; head < source.heads; ++head, to += source.token_bytes) {
      std::memcpy(to, source.token(i / source.capacity, head, i % source.capacity),
                  size_t(source.token_bytes));
    }
  });
  return image;
}

std::vector<int32_t> shuffled_ids(int64_t count, uint64_t seed) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  uint64_t state = seed;
  for (int64_t i = count - 1; i > 0; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(ids[i], ids[int64_t((state >> 33) % uint64_t(i + 1))]);
  }
  return ids;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Paging {
  int64_t pages = 0;  // in memory, unused ones included
  int64_t stride = 0;
  std::vector<int32_t> table;
};

Paging deal_pages(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const int64_t page_size = problem.kv_layout.page_size;
  Paging paging;
  int64_t used = 0;
  for (const int32_t length : inputs.kv_len) {
    paging.stride = std::max(paging.stride, ceil_div(length, page_size) + 1);
    used += ceil_div(length, page_size) - first_visible(problem, length) / page_size;
  }
  paging.pages = used + used / 8 + 2;
  paging.table.assign(size_t(inputs.batch * paging.stride), kPoisonPage);
  const std::vector<int32_t> ids = shuffled_ids(paging.pages, seed);
  int64_t next = 0;
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const int32_t length = inputs.kv_len[row];
    for (int64_t slot = first_visible(problem, length) / page_size;
         slot < ceil_div(length, page_size); ++slot) {
      paging.table[row * paging.stride + slot] = ids[next++];
    }
  }
  return paging;
}

std::vector<std::byte> fill_pages(const Problem& problem, const Inputs& inputs,
                                  const Source& source, const Paging& paging) {
  const int64_t page_size = problem.kv_layout.page_size;
  const bool tokens_first = problem.kv_layout.page_order == PageOrder::nhd;
  std::vector<std::byte> image(size_t(paging.pages * page_size * source.heads * source.token_bytes),
                               std::byte{0xff});
  parallel_for(inputs.batch * source.heads, [&](int64_t i) {
    const int64_t row = i / source.heads, head = i % source.heads;
    const int32_t length = inputs.kv_len[row];
    for (int64_t token = first_visible(problem, length); token < length; ++token) {
      const int64_t page = paging.table[row * paging.stride + token / page_size];
      const int64_t in_page = token % page_size;
      const int64_t place = tokens_first ? (page * page_size + in_page) * source.heads + head
                                         : (page * source.heads + head) * page_size + in_page;
      std::memcpy(&image[place * source.token_bytes], source.token(row, head, token),
                  size_t(source.token_bytes));
    }
  });
  return image;
}

}  // namespace

KvImage lay_out(const Problem& problem, const Inputs& inputs, uint64_t seed) {
  const Source k{inputs.k, problem.kv_heads, inputs.capacity,
                 int64_t(problem.dim_qk) * size_bytes(problem.k_dtype)};
  const Source v{inputs.v, problem.kv_heads, inputs.capacity,
                 int64_t(problem.dim_v) * size_bytes(problem.v_dtype)};
  switch (problem.kv_layout.kind) {
    case KvLayoutKind::bhtd:
      return {.k = inputs.k, .v = inputs.v};
    case KvLayoutKind::bthd:
      return {.k = tokens_before_heads(k, inputs.batch), .v = tokens_before_heads(v, inputs.batch)};
    case KvLayoutKind::paged:
      break;
  }
  const Paging paging = deal_pages(problem, inputs, seed);
  return {fill_pages(problem, inputs, k, paging), fill_pages(problem, inputs, v, paging),
          paging.table, paging.stride};
}

}  // namespace splitkv::tool
