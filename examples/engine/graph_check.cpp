#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cache_fill.hpp"
#include "verbs.hpp"

namespace engine {
namespace {

// Logits of the first `count` rows of the step before, one behind the other.
std::vector<float> logits_of(Runner& runner, size_t count) {
  std::vector<float> all;
  for (size_t row = 0; row < count; ++row) {
    const std::vector<float> logits = runner.logits(row);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

double relative_l2(const std::vector<float>& got, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(double(got[i]) - double(expected[i]), 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Lengths that share nothing with those of the capture, from 1 token to the longest.
std::vector<int32_t> lengths_of(int32_t rows, int32_t most, int32_t turn) {
  std::vector<int32_t> lengths;
  for (int32_t row = 0; row < rows; ++row) {
    lengths.push_back(1 + int32_t(int64_t(row + turn) * 99991 % most));
  }
  lengths.front() = 1;
  lengths.back() = most;
  return lengths;
}

// A stream with its graphs, and the same steps without.
struct Lane {
  Device& device;
  Runner replayed, eager;
};

}  // namespace

int graph_check(const Options& options, Device& device, Device& second) {
  if (device.target() == "cpu") {
    std::printf("skipped: the CPU has no graphs; --device cuda:0 has\n");
    return 77;
  }
  Limits limits = options.engine.limits;
  ModelConfig config;
  config.layers = options.layers;
  config.max_positions = limits.max_length;
  const int32_t a_row = limits.pages_of(limits.max_length);
  if (!options.has_pages) limits.pages = limits.max_batch * a_row;
  const Model model(device, random_weights(config, 1));
  const KvCache cache(device, config, limits);
  const Attention attention(device, config, cache, limits, options.engine.attention);
  const Plant plant = options.engine.attention.plant;
  RunnerOptions recorded = options.engine.runner, plain = recorded;
  recorded.graphs = true, plain.graphs = false;
  const auto lane = [&](Device& of) {
    return Lane{of, Runner(of, model, attention, limits, plant, recorded),
                Runner(of, model, attention, limits, plant, plain)};
  };
  Lane lanes[] = {lane(device), lane(second)};

  // Captured full: every row as long as can be, on one stream after the other, over the same pages.
  const std::vector<int32_t> longest(size_t(limits.max_batch), limits.max_length);
  PageAllocator all(limits.pages);
  const std::vector<RunRow> full = make_rows(longest, limits, config.vocab, all);
  for (Lane& each : lanes) each.replayed.capture(full);  // and waits

  double worst = 0;
  for (int32_t turn = 0; turn < 2; ++turn) {
    // Each stream has rows and pages of its own; both steps are under way at once.
    PageAllocator allocator(limits.pages);
    std::vector<RunRow> rows[2];
    std::vector<float> expected[2];
    for (int i = 0; i < 2; ++i) {
      const auto lengths = lengths_of(options.rows, limits.max_length / 2, 10 * turn + i);
      rows[i] = make_rows(lengths, limits, config.vocab, allocator);
      fill_cache(device, config, attention, rows[i]);
      lanes[i].eager.run(rows[i], true);
      expected[i] = logits_of(lanes[i].eager, rows[i].size());
    }
    for (int i = 0; i < 2; ++i) lanes[i].replayed.begin(rows[i], true);
    for (int i = 0; i < 2; ++i) {
      lanes[i].replayed.finish();
      const double error = relative_l2(logits_of(lanes[i].replayed, rows[i].size()), expected[i]);
      std::printf("replay %d, stream %d: %zu of %d rows live, relative L2 to the eager step %.1e\n",
                  turn + 1, i + 1, rows[i].size(), limits.max_batch, error);
      worst = error <= worst ? worst : error;
      const std::vector<size_t> sampled = {0, rows[i].size() / 2, rows[i].size() - 1};
      const double dense = worst_error(lanes[i].device, config, attention, cache, limits, rows[i],
                                       sampled, config.layers - 1);
      std::printf("  %zu sampled rows beside dense attention in fp64: %.1e\n", sampled.size(),
                  dense);
      worst = dense <= worst ? worst : dense;
    }
  }
  const double limit = device.dtype() == Dtype::fp32 ? 1e-5 : 4e-3;
  const bool is_right = worst <= limit;
  std::printf("captured at %d rows of %d tokens, replayed twice on two streams: %s\n",
              limits.max_batch, limits.max_length, is_right ? "ok" : "WRONG");
  return is_right ? 0 : 1;
}

}  // namespace engine
