#include "runtime/cpu/workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace splitkv::test {
namespace {

struct Counts {
  explicit Counts(int64_t n) : of(size_t(n)) {}
  std::vector<std::atomic<int>> of;

  static void add(void* context, int64_t i) { ++static_cast<Counts*>(context)->of[size_t(i)]; }
  bool all(int value) const {
    for (const auto& count : of) {
      if (count != value) return false;
    }
    return true;
  }
};

TEST(Workers, RunEveryIndexOnceWithAnyNumberOfThreads) {
  for (int threads : {1, 2, 5}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (int64_t n : {1, 2, 3, 1000}) {
      Counts counts(n);
      workers.parallel_for(n, Counts::add, &counts);
      EXPECT_TRUE(counts.all(1)) << threads << " threads, n = " << n;
    }
  }
}

TEST(Workers, DoNothingForNoIndices) {
  Workers workers(3);
  Counts counts(1);
  workers.parallel_for(0, Counts::add, &counts);
  workers.parallel_for(-1, Counts::add, &counts);
  EXPECT_TRUE(counts.all(0));
}

TEST(Workers, ServeSeveralCallersAtOnce) {
  constexpr int kCallers = 6, kRounds = 200, kIndices = 37;
  Workers workers(3);
  Counts counts(kIndices);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        Counts own(kIndices);
        workers.parallel_for(kIndices, Counts::add, &own);
        EXPECT_TRUE(own.all(1));  // done when the call returns, not some time later
        workers.parallel_for(kIndices, Counts::add, &counts);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(counts.all(kCallers * kRounds));
}

TEST(Workers, MayBeCalledFromInsideABody) {
  struct Nested {
    Workers workers{3};
    Counts counts{10};
  } nested;
  nested.workers.parallel_for(
      7,
      [](void* context, int64_t) {
        auto* inner = static_cast<Nested*>(context);
        inner->workers.parallel_for(10, Counts::add, &inner->counts);
      },
      &nested);
  EXPECT_TRUE(nested.counts.all(7));
}

TEST(Workers, UseOtherThreadsToo) {
  Workers workers(2);
  struct Meeting {
    std::atomic<int> present{0};
  } meeting;
  // Neither index returns before both have begun: on one thread this would never end.
  workers.parallel_for(
      2,
      [](void* context, int64_t) {
        auto& present = static_cast<Meeting*>(context)->present;
        ++present;
        while (present < 2) std::this_thread::yield();
      },
      &meeting);
  EXPECT_EQ(meeting.present, 2);
}

}  // namespace
}  // namespace splitkv::test
