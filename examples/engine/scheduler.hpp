// Continuous batching: which requests run, and how many tokens of each the next step takes.
//
// A request waits until all its tokens so far fit into free pages, runs its prompt in chunks, then
// one token a step, and leaves when it is done; others join at any step. Where a running request
// needs a page and none is free, the one that joined last goes back to the head of the queue: it
// loses its pages, keeps its tokens, and computes them again.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "page_allocator.hpp"

namespace engine {

struct Request {
  int64_t id = 0;
  std::vector<int32_t> prompt;
  int32_t max_new = 32;
  int32_t stop_token = -1;      // ends the request when it is generated; -1: none
  std::vector<int32_t> forced;  // taken as generated, whatever the model says, while there are any

  // What has come of it.
  std::vector<int32_t> generated;
  int32_t preemptions = 0;

  // Kept by the scheduler. Tokens whose K and V lie in the cache, and where.
  int32_t computed = 0;
  std::vector<int32_t> pages;

  int32_t known() const { return int32_t(prompt.size() + generated.size()); }
  int32_t token(int32_t i) const {
    const auto prompts = int32_t(prompt.size());
    return i < prompts ? prompt[size_t(i)] : generated[size_t(i - prompts)];
  }
};

struct Limits {
  int32_t max_batch = 8;         // requests that run at once
  int32_t page_size = 16;        // tokens of a page
  int32_t pages = 256;           // of the cache
  int32_t chunk = 64;            // prompt tokens of a request in one step: SplitKV's query_len
  int32_t prefill_tokens = 256;  // prompt tokens of all requests in one step
  int32_t max_length = 2048;     // tokens of a request, prompt and answer

  // That so many tokens take.
  int32_t pages_of(int32_t tokens) const { return (tokens + page_size - 1) / page_size; }
};

// One row of a step: the request's tokens [computed, computed + count).
struct StepRow {
  Request* request = nullptr;
  int32_t count = 0;
};

struct Step {
  bool is_decode = false;  // every row brings one token, the last one known
  std::vector<StepRow> rows;
};

class Scheduler {
 public:
  explicit Scheduler(const Limits& limits);

  // Throws std::invalid_argument where the request could never run to its end.
  void submit(Request request);

  // Prompts and answers take turns, so that a long prompt does not hold up the others' answers. Of
  // no rows: nothing is left to do.
  Step next();

  // After a step: `next_tokens` of its rows. Requests that are done are moved to `done`.
  void advance(const Step& step, const std::vector<int32_t>& next_tokens,
               std::vector<Request>& done);

  const PageAllocator& allocator() const { return allocator_; }
  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }

 private:
  void admit();
  bool reserve(Request& request, int32_t tokens);
  Step decode_step();
  Step prefill_step();
  void preempt_last();

  Limits limits_;
  PageAllocator allocator_;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> running_;  // in the order in which they joined
  bool prefilled_last_ = false;
};

}  // namespace engine
