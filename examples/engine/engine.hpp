// The loop: the scheduler says what the next step is, the runner runs it, until nothing is left.
#pragma once

#include <functional>
#include <vector>

#include "attention.hpp"
#include "device.hpp"
#include "model.hpp"
#include "runner.hpp"
#include "scheduler.hpp"

namespace engine {

struct EngineOptions {
  Limits limits;
  AttentionOptions attention;
  RunnerOptions runner;
};

class Engine {
 public:
  // The device must outlive it; weights are copied there.
  Engine(Device& device, const Weights& weights, const EngineOptions& options);

  // Throws std::invalid_argument where the request could never run to its end.
  void submit(Request request) { scheduler_.submit(std::move(request)); }
  // One step. False: there was nothing to do.
  bool step();
  // Requests that ended since the last call, in the order in which they did.
  std::vector<Request> take_done();

  // Called before each new token with the logits that it is taken from, [vocab].
  std::function<void(const Request&, const std::vector<float>& logits)> on_logits;

  const Scheduler& scheduler() const { return scheduler_; }
  const Counters& counters() const { return runner_.counters(); }
  const Attention& attention() const { return attention_; }

 private:
  Model model_;
  KvCache cache_;
  Attention attention_;
  Scheduler scheduler_;
  Runner runner_;
  std::vector<Request> done_;
};

}  // namespace engine
