#include "tools/splitkv/bench_random.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/arithmetic.hpp"
#include "tools/splitkv/streams.hpp"

namespace splitkv::tool {
namespace {

// Query heads, KV heads and head dim of models.
struct Shape {
  int q_heads, kv_heads, dim;
};

constexpr Shape kShapes[] = {
    {32, 8, 128},  {64, 8, 128},  {32, 32, 128}, {28, 4, 128}, {40, 8, 128}, {12, 2, 128},
    {24, 2, 128},  {32, 2, 128},  {48, 1, 128},  {96, 8, 128}, {16, 2, 128}, {40, 40, 128},
    {32, 16, 128}, {64, 4, 128},  {32, 8, 64},   {64, 8, 64},  {71, 1, 64},  {9, 3, 64},
    {14, 2, 64},   {12, 12, 64},  {32, 32, 96},  {32, 32, 64}, {16, 8, 256}, {8, 4, 256},
    {8, 1, 256},   {16, 16, 256},
};

constexpr int64_t kLeastBytes = 4'000'000, kMostBytes = 4'000'000'000;
constexpr int64_t kMostMemory = 16'000'000'000;
constexpr int64_t kMostBatch = 128;
constexpr int64_t kLeastMean = 16, kMostMean = 262'144;  // tokens of a row, on average
constexpr int64_t kMostTokens = 1'048'576;               // of a row
constexpr int kPage = 16;

std::vector<int32_t> uniform_lengths(int64_t batch, int64_t tokens) {
  return std::vector<int32_t>(size_t(batch), int32_t(std::max<int64_t>(1, tokens / batch)));
}

// Log-uniform over six octaves, then scaled so that they make up the tokens.
std::vector<int32_t> spread_lengths(Draw& draw, int64_t batch, int64_t tokens) {
  std::vector<int64_t> weights;
  int64_t sum = 0;
  for (int64_t i = 0; i < batch; ++i) {
    weights.push_back(draw.log_uniform(1024, 65536));
    sum += weights.back();
  }
  std::vector<int32_t> lengths;
  for (const int64_t weight : weights) {
    lengths.push_back(int32_t(std::clamp<int64_t>(weight * tokens / sum, 1, kMostTokens)));
  }
  return lengths;
}

// One row with half of the tokens, at a drawn place.
std::vector<int32_t> one_long_length(Draw& draw, int64_t batch, int64_t tokens) {
  const int64_t longest = std::clamp<int64_t>(tokens / 2, 1, kMostTokens);
  const int64_t rest = std::max<int64_t>(1, (tokens - longest) / (batch - 1));
  std::vector<int32_t> lengths(size_t(batch), int32_t(std::min(rest, longest)));
  lengths[size_t(draw.below(batch))] = int32_t(longest);
  return lengths;
}

std::vector<int32_t> drawn_lengths(Draw& draw, int64_t batch, int64_t tokens) {
  const int64_t kind = draw.below(6);  // half of the rows uniform, a third spread, a sixth one long
  if (batch == 1 || kind < 3) return uniform_lengths(batch, tokens);
  return kind < 5 ? spread_lengths(draw, batch, tokens) : one_long_length(draw, batch, tokens);
}

// Tokens that a contiguous cache has room for.
int64_t capacity_tokens(const std::vector<int32_t>& lengths) {
  return int64_t(lengths.size()) * *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

uint64_t Draw::next() {
  const uint64_t number = mix(state_);
  state_ += kMixStep;
  return number;
}

int64_t Draw::log_uniform(int64_t least, int64_t most) {
  int octaves = 1;
  while (least << octaves <= most) ++octaves;
  for (;;) {
    const int64_t from = least << below(octaves);
    const int64_t drawn = from + below(from);
    if (drawn <= most) return drawn;
  }
}

BenchRow random_row(uint64_t seed, int index) {
  Draw seeds(seed);
  Draw draw(seeds.next() + uint64_t(index));
  const Shape shape = kShapes[draw.below(int64_t(std::size(kShapes)))];
  const char* dtype = draw.below(2) == 0 ? "bf16" : "fp16";
  const int64_t token_bytes = int64_t(shape.kv_heads) * shape.dim * 2 * 2;  // K and V, 16 bits
  const int64_t tokens = draw.log_uniform(kLeastBytes, kMostBytes) / token_bytes;
  const int64_t least_batch = ceil_div(tokens, kMostMean);
  const int64_t most_batch = std::clamp(tokens / kLeastMean, least_batch, kMostBatch);
  const int64_t batch = draw.log_uniform(least_batch, most_batch);
  BenchRow row;
  row.name = fmt::format("random {}.{}", seed, index);
  row.kv_len = drawn_lengths(draw, batch, tokens);
  const bool paged = draw.below(2) == 1 || capacity_tokens(row.kv_len) * token_bytes > kMostMemory;
  const std::string heads = shape.q_heads == shape.kv_heads
                                ? fmt::format("{}", shape.q_heads)
                                : fmt::format("{}/{}", shape.q_heads, shape.kv_heads);
  row.problem = fmt::format("attention q={0} kv={0} heads={1} dim={2}{3}", dtype, heads, shape.dim,
                            paged ? fmt::format(" kv_layout=paged:{}:nhd", kPage) : "");
  row.drawn = true;
  int64_t read = 0;
  for (const int32_t length : row.kv_len) read += length * token_bytes;
  row.goal_ratio = goal_ratio_of(double(read) * 1e-6);
  return row;
}

std::vector<BenchRow> random_rows(uint64_t seed, int count) {
  std::vector<BenchRow> rows;
  for (int index = 1; index <= count; ++index) rows.push_back(random_row(seed, index));
  return rows;
}

}  // namespace splitkv::tool
