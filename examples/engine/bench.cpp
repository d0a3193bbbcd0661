#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cache_fill.hpp"
#include "verbs.hpp"

namespace engine {
namespace {

// The lengths of `batch` rows, evenly spread on a logarithmic scale, shortest first.
std::vector<int32_t> log_uniform(int32_t least, int32_t most, int32_t batch) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < batch; ++i) {
    const double part = batch > 1 ? double(i) / (batch - 1) : 1;
    lengths.push_back(int32_t(std::lround(least * std::pow(double(most) / least, part))));
  }
  return lengths;
}

// Bytes of K and V that one step's attention has to read in all layers.
double step_bytes(const ModelConfig& config, const std::vector<RunRow>& rows, Dtype dtype) {
  double tokens = 0;
  for (const RunRow& row : rows) tokens += row.kv_len;
  return tokens * 2 * double(config.kv_heads * config.dim * config.layers) * double(size_of(dtype));
}

// Milliseconds of a plain read of as many bytes, out of the cache's own memory; the best of five.
double read_ms(Device& device, const ModelConfig& config, const KvCache& cache, double bytes) {
  double best = INFINITY;
  for (int repeat = 0; repeat < 5; ++repeat) {
    device.mark(0);
    double left = bytes;
    while (left > 0) {
      for (int64_t layer = 0; layer < config.layers && left > 0; ++layer) {
        for (const void* data : {cache.k(layer), cache.v(layer)}) {
          const size_t part = size_t(std::clamp(left, 0.0, double(cache.layer_bytes())));
          if (part >= 16) device.read(data, part);
          left -= double(part);
        }
      }
      if (left < 16) break;
    }
    device.mark(1);
    device.wait();
    best = std::min(best, device.ms_between(0, 1));
  }
  return best;
}

}  // namespace

int bench(const Options& options, Device& device) {
  ModelConfig small;
  small.layers = options.layers;
  small.max_positions = options.most + options.steps;
  const Weights weights =
      options.model.empty() ? random_weights(small, 1) : load_weights(options.model);
  Limits limits = options.engine.limits;
  const std::vector<int32_t> lengths = log_uniform(options.least, options.most, limits.max_batch);
  limits.max_length = options.most + options.steps;
  if (!options.has_pages) {
    limits.pages = 0;
    for (const int32_t length : lengths) limits.pages += limits.pages_of(length + options.steps);
  }
  if (weights.config.max_positions < limits.max_length) {
    throw BadOption("--most " + std::to_string(options.most) + " with --steps " +
                    std::to_string(options.steps) + " is above the model's " +
                    std::to_string(weights.config.max_positions) + " positions");
  }
  const Model model(device, weights);
  const KvCache cache(device, model.config, limits);
  const Attention attention(device, model.config, cache, limits, options.engine.attention);
  Runner runner(device, model, attention, limits, options.engine.attention.plant,
                options.engine.runner);
  PageAllocator allocator(limits.pages);
  std::vector<RunRow> rows = make_rows(lengths, limits, model.config.vocab, allocator);
  fill_cache(device, model.config, attention, rows);

  double bytes = 0;
  runner.run(rows, true);  // warms up
  const Counters before = runner.counters();
  for (int32_t step = 0; step < options.steps; ++step) {
    bytes += step_bytes(model.config, rows, device.dtype());
    const std::vector<int32_t> next = runner.run(rows, true);
    for (size_t row = 0; row < rows.size(); ++row) {
      rows[row].tokens = {next[row]};
      ++rows[row].kv_len;
      if (rows[row].kv_len <= int64_t(rows[row].pages.size()) * limits.page_size) continue;
      if (!allocator.take(1, rows[row].pages)) throw std::runtime_error("--pages are too few");
    }
  }
  const double attention_ms =
      (runner.counters().attention_ms - before.attention_ms) / options.steps;
  const double step_ms = (runner.counters().step_ms - before.step_ms) / options.steps;
  const double floor_ms = read_ms(device, model.config, cache, bytes / options.steps);
  std::printf("%zu rows of %d to %d tokens, %lld layers, %s on %s\n", rows.size(), options.least,
              options.most, (long long)model.config.layers, name_of(device.dtype()),
              device.target().c_str());
  std::printf("a step: %.3f ms, of it attention with the writing of K and V %.3f ms (%.1f %%)\n",
              step_ms, attention_ms, 100 * attention_ms / step_ms);
  std::printf("floor: %.1f MB of K and V, plainly read in %.3f ms; attention takes %.2f of it\n",
              bytes / options.steps / 1e6, floor_ms, attention_ms / floor_ms);

  const std::vector<size_t> sampled = {0, rows.size() / 3, rows.size() / 2, rows.size() - 1};
  const int64_t layer = model.config.layers - 1;
  const double error =
      worst_error(device, model.config, attention, cache, limits, rows, sampled, layer);
  const double limit = device.dtype() == Dtype::fp32 ? 1e-5 : 4e-3;
  const bool is_right = error <= limit;
  std::printf(
      "%zu sampled rows beside dense attention in fp64: relative L2 error %.1e of %.0e: %s\n",
      sampled.size(), error, limit, is_right ? "ok" : "WRONG");
  return is_right ? 0 : 1;
}

}  // namespace engine
