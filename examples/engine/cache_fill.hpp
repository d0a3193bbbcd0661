// A cache that holds something without a prompt having been computed: for bench and graph-check.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "runner.hpp"

namespace engine {

// Rows of one token with the lengths given, the new token included. Pages are dealt out in turn, so
// that none of a row lie side by side. Throws std::runtime_error where the cache has too few.
std::vector<RunRow> make_rows(const std::vector<int32_t>& lengths, const Limits& limits,
                              int64_t vocab, PageAllocator& allocator);

// Writes random K and V of every layer through the writer of the cache, to all of the rows' tokens
// but the last.
void fill_cache(Device& device, const ModelConfig& config, const Attention& attention,
                const std::vector<RunRow>& rows);

// How far one layer's attention for the answers of `rows` is from the dense fp64 recomputation over
// what the cache holds: the largest relative L2 error of a query head, of `sampled` rows. K and V
// of the rows' last tokens are written by it as well.
double worst_error(Device& device, const ModelConfig& config, const Attention& attention,
                   const KvCache& cache, const Limits& limits, const std::vector<RunRow>& rows,
                   const std::vector<size_t>& sampled, int64_t layer);

}  // namespace engine
