#include "engine.hpp"

#include <algorithm>
#include <utility>

namespace engine {
namespace {

// No request can be longer than the model knows positions.
Limits within(Limits limits, const ModelConfig& config) {
  limits.max_length = int32_t(std::min<int64_t>(limits.max_length, config.max_positions));
  return limits;
}

}  // namespace

Engine::Engine(Device& device, const Weights& weights, const EngineOptions& options)
    : model_(device, weights),
      cache_(device, weights.config, options.limits),
      attention_(device, weights.config, cache_, within(options.limits, weights.config),
                 options.attention),
      scheduler_(within(options.limits, weights.config)),
      runner_(device, model_, attention_, within(options.limits, weights.config),
              options.attention.plant, options.runner) {}

bool Engine::step() {
  const Step step = scheduler_.next();
  if (step.rows.empty()) return false;
  const std::vector<int32_t> next = runner_.run(step);
  for (size_t row = 0; on_logits && row < step.rows.size(); ++row) {
    const auto& [request, count] = step.rows[row];
    if (request->computed + count == request->known()) on_logits(*request, runner_.logits(row));
  }
  scheduler_.advance(step, next, done_);
  return true;
}

std::vector<Request> Engine::take_done() { return std::exchange(done_, {}); }

}  // namespace engine
