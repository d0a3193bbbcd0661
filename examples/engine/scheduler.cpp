#include "scheduler.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace engine {
namespace {

bool is_in_prompt(const Request& request) { return request.known() - request.computed > 1; }

}  // namespace

Scheduler::Scheduler(const Limits& limits) : limits_(limits), allocator_(limits.pages) {}

void Scheduler::submit(Request request) {
  const int64_t tokens = int64_t(request.prompt.size()) + request.max_new;
  const int64_t fits =
      std::min<int64_t>(limits_.max_length, int64_t(limits_.pages) * limits_.page_size);
  const std::string name = "request " + std::to_string(request.id);
  if (request.prompt.empty()) {
    throw std::invalid_argument(name + " has no prompt; at least 1 token would fit");
  }
  if (request.max_new < 1) {
    throw std::invalid_argument(name + ": max_new=" + std::to_string(request.max_new) +
                                " is no answer; at least 1 would fit");
  }
  if (tokens > fits) {
    throw std::invalid_argument(name + " has a prompt of " + std::to_string(request.prompt.size()) +
                                " tokens and max_new=" + std::to_string(request.max_new) +
                                "; together at most " + std::to_string(fits) + " would fit");
  }
  waiting_.push_back(std::make_unique<Request>(std::move(request)));
}

// Where all pages of what is known are free, and one more for those that run to grow into.
void Scheduler::admit() {
  while (!waiting_.empty() && int32_t(running_.size()) < limits_.max_batch) {
    Request& first = *waiting_.front();
    const int32_t needed = limits_.pages_of(first.known());
    const int32_t spare = running_.empty() ? 0 : 1;
    if (allocator_.free_pages() < needed + spare || !allocator_.take(needed, first.pages)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::preempt_last() {
  Request& last = *running_.back();
  allocator_.give_back(last.pages);
  last.computed = 0;
  ++last.preemptions;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

// Pages for `tokens` more of a running request, whatever those that joined later lose by it. False:
// it was itself the last one and had to go. The first one always gets its pages: submit saw to
// that.
bool Scheduler::reserve(Request& request, int32_t tokens) {
  while (true) {
    const int32_t missing =
        limits_.pages_of(request.computed + tokens) - int32_t(request.pages.size());
    if (missing <= 0 || allocator_.take(missing, request.pages)) return true;
    const bool is_itself = running_.back().get() == &request;
    preempt_last();
    if (is_itself) return false;
  }
}

Step Scheduler::decode_step() {
  Step step;
  step.is_decode = true;
  for (size_t i = 0; i < running_.size(); ++i) {  // fewer may be left after each
    Request& request = *running_[i];
    if (is_in_prompt(request)) continue;
    if (!reserve(request, 1)) break;
    step.rows.push_back({&request, 1});
  }
  return step;
}

Step Scheduler::prefill_step() {
  Step step;
  int32_t left = limits_.prefill_tokens;
  for (const auto& request : running_) {  // their pages were taken when they joined
    if (left == 0 || !is_in_prompt(*request)) continue;
    const int32_t count = std::min({request->known() - request->computed, limits_.chunk, left});
    step.rows.push_back({request.get(), count});
    left -= count;
  }
  return step;
}

Step Scheduler::next() {
  admit();
  const auto in_prompt = std::count_if(running_.begin(), running_.end(),
                                       [](const auto& request) { return is_in_prompt(*request); });
  const bool some_answer = in_prompt < std::ptrdiff_t(running_.size());
  prefilled_last_ = in_prompt > 0 && !(prefilled_last_ && some_answer);
  Step step = prefilled_last_ ? prefill_step() : decode_step();
  // The only answer may have had to go, for want of a page that prompts before it hold.
  if (step.rows.empty() && in_prompt > 0) step = prefill_step();
  return step;
}

void Scheduler::advance(const Step& step, const std::vector<int32_t>& next_tokens,
                        std::vector<Request>& done) {
  for (size_t row = 0; row < step.rows.size(); ++row) {
    Request& request = *step.rows[row].request;
    request.computed += step.rows[row].count;
    if (request.computed < request.known()) continue;  // a chunk that is not the last
    const size_t place = request.generated.size();
    request.generated.push_back(place < request.forced.size() ? request.forced[place]
                                                              : next_tokens[row]);
    const bool stopped = request.generated.back() == request.stop_token;
    if (!stopped && int32_t(request.generated.size()) < request.max_new) continue;
    allocator_.give_back(request.pages);
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& other) { return other.get() == &request; });
    done.push_back(std::move(request));
    running_.erase(found);
  }
}

}  // namespace engine
