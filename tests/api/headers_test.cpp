#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "runtime/splitkv.h"
#include "tests/api/decode_case.hpp"

extern "C" int c_header_opens_a_runtime(void);
std::pair<splitkv_status, std::string> cpp_header_throws_failures();

TEST(PublicHeaders, AC11FileOpensARuntime) { EXPECT_EQ(c_header_opens_a_runtime(), 1); }

TEST(PublicHeaders, ACpp17FileGetsAFailureWithTheStatusAndTheMessage) {
  const auto [status, message] = cpp_header_throws_failures();
#ifdef SPLITKV_HAS_CPU
  EXPECT_EQ(status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_NE(message.find("heads"), std::string::npos) << message;
#else
  EXPECT_EQ(status, SPLITKV_LIBRARY_MISSING) << message;
#endif
}

TEST(PublicHeaders, EveryStatusHasANameOfItsOwn) {
  EXPECT_STREQ(splitkv_status_name(SPLITKV_OK), "ok");
  EXPECT_STREQ(splitkv_status_name(SPLITKV_LIBRARY_MISSING), "library_missing");
  EXPECT_STREQ(splitkv_status_name(splitkv_status(99)), "unknown");
  for (int a = 0; a <= SPLITKV_INTERNAL; ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_STRNE(splitkv_status_name(splitkv_status(a)), splitkv_status_name(splitkv_status(b)));
    }
  }
}

TEST(PublicHeaders, TheVersionIsThatOfTheHeader) { EXPECT_STREQ(splitkv_version(), "0.1.0"); }

TEST(BuiltTargets, ATargetThatTheBuildLeavesOutIsAMissingLibrary) {
#if defined(SPLITKV_HAS_CUDA) && defined(SPLITKV_HAS_CPU)
  GTEST_SKIP() << "this build has both targets";
#elif defined(SPLITKV_HAS_CUDA)
  const char* device = "cpu";
  const char* option = "SPLITKV_CPU=ON";
#else
  const char* device = "cuda:0";
  const char* option = "SPLITKV_CUDA=ON";
#endif
#if !defined(SPLITKV_HAS_CUDA) || !defined(SPLITKV_HAS_CPU)
  using namespace splitkv::testing_support;
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer answer =
      prepare(runtime.get(), device, "attention q=fp32 heads=4/2 dim=32", nullptr, &kernel);
  EXPECT_EQ(answer.status, SPLITKV_LIBRARY_MISSING);
  EXPECT_TRUE(answer.says(option)) << answer;
#endif
}
