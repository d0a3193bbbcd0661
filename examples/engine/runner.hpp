// Runs steps on one stream: puts what a step works on into device memory, then the model's layers,
// as a graph where the device has graphs and the step is of answers.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "attention.hpp"
#include "device.hpp"
#include "model.hpp"
#include "scheduler.hpp"

namespace engine {

struct Counters {
  int64_t decode_steps = 0, prefill_steps = 0, tokens = 0;
  int64_t decode_attention_calls = 0, prefill_attention_calls = 0;  // by SplitKV, replayed ones too
  int64_t graph_launches = 0;
  double step_ms = 0, attention_ms = 0;  // on the device; 0 where times are not taken
};

struct RunnerOptions {
  bool graphs = true;
  bool times = true;  // a mark before and behind each attention
};

// A row of a step as the runner wants it: its new tokens, and where they lie.
struct RunRow {
  std::vector<int32_t> tokens;
  int32_t kv_len = 0;  // with the new tokens; 0: an empty place of the bucket
  std::vector<int32_t> pages;
};

class Runner {
 public:
  // All of them must outlive it. A runner of its own for each stream; model, cache and attention
  // may be shared.
  Runner(Device& device, const Model& model, const Attention& attention, const Limits& limits,
         Plant plant, RunnerOptions options);

  // The most likely token after each row. Answers (one token a row) run in their bucket; with
  // `is_decode` false rows are chunks of prompts.
  std::vector<int32_t> run(const std::vector<RunRow>& rows, bool is_decode);
  std::vector<int32_t> run(const Step& step);

  // Of the step before, [vocab].
  std::vector<float> logits(size_t row);

  // run() in three parts, for steps of several streams that are under way at once.
  void begin(const std::vector<RunRow>& rows, bool is_decode);
  std::vector<int32_t> finish();
  // Records the graph of a bucket ahead of time, at the rows given.
  void capture(const std::vector<RunRow>& rows);

  const Counters& counters() const { return counters_; }

 private:
  // Where the parts of the one block of inputs begin, in bytes.
  struct Places {
    size_t tokens, positions, kv_len, attended, q_offset, last, page_offset, pages, end;
  };

  AttentionRows write_inputs(const std::vector<RunRow>& rows, bool is_decode);
  void write_row(const RunRow& row, size_t index, int64_t token, int64_t page, bool is_decode);
  void forward(const AttentionRows& rows, int64_t answers);
  void attend(int64_t layer, AttentionRows rows);
  template <class T>
  T* host(size_t place) {
    return reinterpret_cast<T*>(static_cast<char*>(staging_.get()) + place);
  }
  template <class T>
  T* there(size_t place) const {
    return reinterpret_cast<T*>(static_cast<char*>(inputs_.get()) + place);
  }

  Device& device_;
  const Model& model_;
  const Attention& attention_;
  Limits limits_;
  Plant plant_;
  RunnerOptions options_;
  Workspace workspace_;
  Places at_{};
  Memory staging_, inputs_;
  Memory hidden_, normed_, qkv_, attended_, gate_up_, fed_, last_, logits_, next_;
  std::map<int64_t, std::unique_ptr<Graph>> graphs_;
  Counters counters_;
  size_t live_ = 0;  // rows of the step under way
};

}  // namespace engine
