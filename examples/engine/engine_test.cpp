// The engine with a small model of random weights, beside the dense recomputation in fp64.
#include "engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference.hpp"
#include "thread_pool.hpp"

namespace engine {
namespace {

using Logits = std::vector<std::vector<float>>;  // behind each token of an answer

struct Answer {
  Request request;
  Logits logits;
};

// SmolLM2's heads in a model that fp64 has soon computed.
ModelConfig small_model() {
  ModelConfig config;
  config.hidden = 128;
  config.max_positions = 512;
  return config;
}

const Weights& weights() {
  static const Weights drawn = random_weights(small_model(), 7);
  return drawn;
}

Limits small_limits() {
  Limits limits;
  limits.max_batch = 5;
  limits.page_size = 8;
  limits.pages = 128;
  limits.chunk = 16;
  limits.prefill_tokens = 16 * 5;  // no row's chunk is cut short by the others
  limits.max_length = 256;
  return limits;
}

Request request_of(int64_t id, int32_t prompt, int32_t answer) {
  Request request;
  request.id = id;
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(int32_t((id * 31 + i * i * 17 + i * 5) % small_model().vocab));
  }
  request.max_new = answer;
  return request;
}

// Prompts of 1 token, of one chunk, of one more, of several; answers of different lengths.
std::vector<Request> many_requests() {
  const int32_t prompts[] = {1, 16, 17, 2, 33, 7, 48, 15, 3, 60, 31, 8, 1, 40, 9, 18};
  const int32_t answers[] = {9, 1, 12, 20, 3, 15, 7, 2, 11, 5, 18, 8, 30, 4, 6, 10};
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) requests.push_back(request_of(i, prompts[i], answers[i]));
  return requests;
}

class SmallEngine {
 public:
  explicit SmallEngine(Limits limits = small_limits(), AttentionOptions attention = {})
      : threads_(2),
        device_(open_cpu(threads_)),
        engine_(*device_, weights(), {limits, attention, {}}) {
    engine_.on_logits = [this](const Request& request, const std::vector<float>& logits) {
      answers_[request.id].logits.push_back(logits);
    };
  }

  // Two join at once, then one more after each `apart` steps. Answers by their request's number.
  std::map<int64_t, Answer> run(std::vector<Request> requests, int apart) {
    answers_.clear();
    size_t next = 0;
    for (int step = 0;; ++step) {
      while (next < requests.size() && next < 2 + size_t(step / apart)) {
        engine_.submit(requests[next++]);
      }
      const bool has_worked = engine_.step();
      for (Request& request : engine_.take_done()) {
        answers_[request.id].request = std::move(request);
      }
      if (!has_worked && next == requests.size()) return answers_;
    }
  }

  Engine& engine() { return engine_; }

 private:
  ThreadPool threads_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::map<int64_t, Answer> answers_;
};

// The largest difference of an answer's logits to the dense ones, as a share of the largest logit.
double distance(const Answer& answer) {
  std::vector<int32_t> tokens = answer.request.prompt;
  tokens.insert(tokens.end(), answer.request.generated.begin(), answer.request.generated.end());
  const auto dense = dense_logits(weights(), tokens);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < answer.logits.size(); ++i) {
    const std::vector<double>& expected = dense[answer.request.prompt.size() - 1 + i];
    for (size_t j = 0; j < expected.size(); ++j) {
      const double error = std::fabs(double(answer.logits[i][j]) - expected[j]);
      worst = error <= worst ? worst : error;  // a NaN stays
      largest = std::max(largest, std::fabs(expected[j]));
    }
  }
  return worst / largest;
}

constexpr double kLimit = 1e-4;

TEST(Engine, AnswersAreThoseOfTheDenseModel) {
  SmallEngine small;
  const auto answers = small.run(many_requests(), 3);
  ASSERT_EQ(answers.size(), many_requests().size());
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.request.generated.size(), size_t(answer.request.max_new)) << id;
    ASSERT_EQ(answer.logits.size(), answer.request.generated.size()) << id;
    EXPECT_LE(distance(answer), kLimit) << id;
    for (size_t i = 0; i < answer.logits.size(); ++i) {  // greedy
      const auto most = std::max_element(answer.logits[i].begin(), answer.logits[i].end());
      EXPECT_EQ(answer.request.generated[i], most - answer.logits[i].begin()) << id;
    }
  }
}

TEST(Engine, ARequestInABatchHasTheBitsThatItHasAlone) {
  AttentionOptions deterministic;
  deterministic.deterministic = true;
  SmallEngine small(small_limits(), deterministic);
  const auto together = small.run(many_requests(), 2);
  int same = 0;
  for (const Request& request : many_requests()) {
    const auto alone = small.run({request}, 1);
    EXPECT_EQ(alone.at(request.id).request.generated, together.at(request.id).request.generated);
    EXPECT_EQ(alone.at(request.id).logits, together.at(request.id).logits) << request.id;
    ++same;
  }
  std::printf("%d requests answered alike alone and in a batch\n", same);
}

TEST(Engine, WithFewPagesRequestsGoBackAndLoseNothing) {
  // Short prompts are let in together, and then answers want more pages than there are.
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) requests.push_back(request_of(i, 3 + 4 * i, 40 - i));
  SmallEngine ample;
  const auto expected = ample.run(requests, 1);
  Limits limits = small_limits();
  limits.pages = 10;  // 80 tokens; the longest request needs 60
  SmallEngine small(limits);
  const auto answers = small.run(requests, 1);
  int32_t preemptions = 0;
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [id, answer] : answers) {
    preemptions += answer.request.preemptions;
    EXPECT_EQ(answer.request.generated, expected.at(id).request.generated) << id;
  }
  EXPECT_GT(preemptions, 0);
  for (SmallEngine* each : {&ample, &small}) {
    const PageAllocator& allocator = each->engine().scheduler().allocator();
    EXPECT_EQ(allocator.free_pages(), allocator.pages());
  }
}

TEST(Engine, AttentionIsCalledOnceALayerAndStep) {
  SmallEngine small;
  small.run({request_of(0, 33, 6)}, 1);
  const Counters& counters = small.engine().counters();
  // 16 and 16 in chunks; the last token of the prompt and 5 of the answer one by one.
  EXPECT_EQ(counters.prefill_steps, 2);
  EXPECT_EQ(counters.decode_steps, 6);
  EXPECT_EQ(counters.prefill_attention_calls, 2 * small_model().layers);
  EXPECT_EQ(counters.decode_attention_calls, 6 * small_model().layers);
  EXPECT_GT(counters.attention_ms, 0);
  EXPECT_LT(counters.attention_ms, counters.step_ms);
}

TEST(Engine, PlantedFaultsAreNoticed) {
  int noticed = 0;
  for (const Plant plant : {Plant::scale, Plant::length, Plant::page}) {
    AttentionOptions options;
    options.plant = plant;
    SmallEngine small(small_limits(), options);
    const auto answers = small.run({request_of(4, 33, 8)}, 1);
    const double far = distance(answers.at(4));
    EXPECT_GT(far, 10 * kLimit) << int(plant);
    noticed += far > 10 * kLimit ? 1 : 0;
  }
  std::printf("%d faults planted in the engine were noticed\n", noticed);
}

TEST(Engine, RequestsThatCanNeverEndAreRefused) {
  SmallEngine small;
  try {
    small.engine().submit(request_of(3, 250, 7));
    FAIL() << "257 tokens were taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(
        error.what(),
        "request 3 has a prompt of 250 tokens and max_new=7; together at most 256 would fit");
  }
  EXPECT_THROW(small.engine().submit(request_of(0, 0, 1)), std::invalid_argument);
  EXPECT_THROW(small.engine().submit(request_of(0, 1, 0)), std::invalid_argument);
}

TEST(Engine, AStopTokenEndsARequest) {
  SmallEngine small;
  const auto whole = small.run({request_of(5, 20, 12)}, 1).at(5).request.generated;
  Request request = request_of(5, 20, 12);
  request.stop_token = whole[4];
  const auto stopped = small.run({request}, 1).at(5).request.generated;
  const auto first = std::find(whole.begin(), whole.end(), whole[4]);
  EXPECT_EQ(stopped, std::vector<int32_t>(whole.begin(), first + 1));
}

}  // namespace
}  // namespace engine
