// One making a key in flight; waiters share the outcome; failures are not kept.
#include "runtime/single_flight.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace splitkv;

namespace {

constexpr int kThreads = 8;

// Calls get("key", make) from all threads at once; `make` waits until all have had time to come.
template <class Make>
std::vector<Result<SingleFlight<int>::Found>> from_all_threads(SingleFlight<int>& flights,
                                                               const Make& make) {
  std::vector<Result<SingleFlight<int>::Found>> results(kThreads, Error{});
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      ++arrived;
      while (arrived < kThreads) std::this_thread::yield();
      result = flights.get("key", [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return make();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(SingleFlightMap, EightThreadsMakeAKeyOnce) {
  SingleFlight<int> flights;
  std::atomic<int> makes{0};
  const auto results = from_all_threads(flights, [&]() -> Result<int> { return ++makes * 10; });
  int made = 0;
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->value, 10);
    made += result->made ? 1 : 0;
  }
  EXPECT_EQ(makes, 1);
  EXPECT_EQ(made, 1);
}

TEST(SingleFlightMap, AFailureReachesEveryWaiterAndTheNextCallTriesAgain) {
  SingleFlight<int> flights;
  std::atomic<int> makes{0};
  const auto results = from_all_threads(flights, [&]() -> Result<int> {
    ++makes;
    return Error{Status::compile_failed, "the log"};
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error(), (Error{Status::compile_failed, "the log"}));
  }
  EXPECT_EQ(makes, 1);
  const auto again = flights.get("key", [&]() -> Result<int> { return 3; });
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->made);
  EXPECT_EQ(again->value, 3);
}

TEST(SingleFlightMap, AnExceptionIsTheErrorOfEveryWaiter) {
  SingleFlight<int> flights;
  const auto results = from_all_threads(
      flights, []() -> Result<int> { throw std::runtime_error("thrown while making"); });
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error(), (Error{Status::internal, "thrown while making"}));
  }
}

TEST(SingleFlightMap, KeysDoNotWaitForEachOther) {
  SingleFlight<int> flights;
  const auto outer = flights.get("a", [&]() -> Result<int> {
    const auto inner = flights.get("b", []() -> Result<int> { return 1; });
    return inner->value + 1;
  });
  ASSERT_TRUE(outer.ok());
  EXPECT_EQ(outer->value, 2);
}

}  // namespace
