// splitkv bench-host: every number is there, of the kind it says, and what cannot be measured here
// is said. The numbers themselves are nobody's promise.
#include "tools/splitkv/bench_host.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/process.hpp"

using namespace splitkv;
using namespace splitkv::cli_test;
using splitkv::tool::HostRow;

namespace {

// The row's line as "median least greatest" in microseconds; empty where there is none.
std::vector<double> numbers_of(const std::string& out, const std::string& name) {
  std::istringstream words(line_of(out, name));
  std::vector<double> numbers(3);
  std::string unit;
  words >> numbers[0] >> numbers[1] >> numbers[2] >> unit;
  if (!words) return {};
  const double us = unit == "ns" ? 1e-3 : unit == "us" ? 1 : unit == "ms" ? 1e3 : 0;
  for (double& number : numbers) number *= us;
  return numbers;
}

void expect_ordered(const std::string& out, const std::string& name) {
  const auto numbers = numbers_of(out, name);
  ASSERT_EQ(numbers.size(), 3u) << name << "\n" << out;
  EXPECT_GT(numbers[1], 0) << name;
  EXPECT_LE(numbers[1], numbers[0]) << name;
  EXPECT_LE(numbers[0], numbers[2]) << name;
}

TEST(BenchHost, PrintsTheMiddleAndTheEndsInAUnitThatSuits) {
  EXPECT_EQ(tool::print(HostRow{"run", "until it returns", {4.5, 3.25, 7}}),
            "run                  4.5        3.2        7.0 us  until it returns");
  EXPECT_EQ(tool::print(HostRow{"handle", "x", {0.012, 0.5}}),
            "handle             256.0       12.0      500.0 ns  x");
  EXPECT_EQ(tool::print(HostRow{"process, cold", "x", {250000}}),
            "process, cold      250.0      250.0      250.0 ms  x");
  EXPECT_EQ(tool::print(HostRow{"run - bare", "x", {-0.25, 0.125, -0.5}}),
            "run - bare        -250.0     -500.0      125.0 ns  x");
}

TEST(BenchHost, MeanIsOfAllCallsAndAFailureEndsThem) {
  int calls = 0;
  const auto fine = tool::mean_us(5, [&]() -> Outcome {
    ++calls;
    return Unit{};
  });
  ASSERT_TRUE(fine.ok());
  EXPECT_EQ(calls, 5);
  const auto failed = tool::mean_us(5, [&]() -> Outcome {
    ++calls;
    return invalid_argument("no");
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(calls, 6);
}

TEST(BenchHost, BadInputIsNamed) {
  for (const auto& [option, value] :
       {std::pair{"--batch", "0"}, {"--kv-len", "-1"}, {"--samples", "0"}}) {
    const Finished finished = run_splitkv({"bench-host", option, value});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.err.find(std::string(option) + "=" + value + ": 1 to"), std::string::npos)
        << finished.err;
  }
  EXPECT_EQ(run_splitkv({"bench-host", "--target", "tpu"}).status, 2);
}

#ifdef SPLITKV_TEST_CPU
TEST(BenchHost, MeasuresEveryPartOnTheCpu) {
  const Finished finished =
      run_splitkv({"bench-host", "attention q=fp32 kv=fp32 heads=4/2 dim=32", "--target", "cpu",
                   "--batch", "2", "--kv-len", "256", "--samples", "3"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (const char* name : {"compiler", "disk ", "disk, loaded", "process, cold", "process, disk",
                           "handle", "memory", "run ", "bare"}) {
    expect_ordered(finished.out, name);
  }
  EXPECT_EQ(numbers_of(finished.out, "run - bare").size(), 3u) << finished.out;
  EXPECT_LT(numbers_of(finished.out, "disk ")[0], numbers_of(finished.out, "process, cold")[0]);
}
#endif

#ifdef SPLITKV_TEST_FAKE_LIBCUDA
TEST(BenchHost, MeasuresWhatNeedsNoGpuWithoutOne) {
  const Finished finished =
      run_splitkv({"bench-host", "--target", "cuda:sm_90a", "--samples", "1"});
  if (finished.status == 3) GTEST_SKIP() << "needs NVRTC: " << finished.err;
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (const char* name : {"compiler", "disk ", "process, cold", "process, disk"}) {
    expect_ordered(finished.out, name);
  }
  EXPECT_EQ(line_of(finished.out, "memory"), "");
  EXPECT_NE(finished.out.find("cuda:sm_90a is no device of this machine"), std::string::npos);
}

TEST(BenchHost, RunsBesideBareLaunchesOnACudaDevice) {
  const Finished finished =
      run_splitkv({"bench-host", "--target", "cuda:0", "--samples", "2", "--batch", "2"},
                  {std::string("SPLITKV_LIBCUDA=") + SPLITKV_TEST_FAKE_LIBCUDA});
  if (finished.status == 3) GTEST_SKIP() << "needs NVRTC: " << finished.err;
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (const char* name : {"disk, loaded", "handle", "memory", "run ", "bare"}) {
    expect_ordered(finished.out, name);
  }
}
#endif

}  // namespace
