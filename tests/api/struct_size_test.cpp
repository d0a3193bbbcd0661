// Structs of older and newer headers, messages that do not fit, and options.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/options.hpp"
#include "runtime/struct_io.hpp"
#include "tests/api/decode_case.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;

namespace {

struct NewerWorkload {
  splitkv_workload known = SPLITKV_INIT(splitkv_workload);
  int64_t unknown = 0;
};

TEST(StructSizes, FieldsThatAnOlderHeaderLacksAreZero) {
  splitkv_workload given = SPLITKV_INIT(splitkv_workload);
  given.size = offsetof(splitkv_workload, kv_len);
  given.batch = 7;
  given.kv_len = 99;  // beyond the older struct: not the caller's
  const auto read = read_struct(&given, "workload");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->batch, 7);
  EXPECT_EQ(read->kv_len, 0);
}

TEST(StructSizes, ANewerStructIsTakenUnlessItSetsAnUnknownField) {
  NewerWorkload given;
  given.known.size = sizeof(NewerWorkload);
  given.known.batch = 7;
  EXPECT_TRUE(read_struct(&given.known, "workload").ok());
  given.unknown = 1;
  const auto refused = read_struct(&given.known, "workload");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("a field that this library lacks"), std::string::npos);
}

TEST(StructSizes, AResultIsWrittenAsFarAsTheCallersStructReaches) {
  struct {
    splitkv_statistics known = SPLITKV_INIT(splitkv_statistics);
    uint64_t beyond = 42;
  } out;
  out.known.size = offsetof(splitkv_statistics, compile_failures);
  splitkv_statistics value = SPLITKV_INIT(splitkv_statistics);
  value.compiles = 3;
  value.compile_failures = 4;
  ASSERT_TRUE(write_struct(value, &out.known, "statistics").ok());
  EXPECT_EQ(out.known.compiles, 3u);
  EXPECT_EQ(out.known.compile_failures, 0u);
  EXPECT_EQ(out.known.size, offsetof(splitkv_statistics, compile_failures));
  EXPECT_EQ(out.beyond, 42u);
}

TEST(StructSizes, ACutMessageShowsItsNeededLength) {
  char text[8];
  std::memset(text, 'x', sizeof(text));
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  message.text = text;
  message.capacity = 5;
  EXPECT_EQ(splitkv_supports(nullptr, "cpu", &message), SPLITKV_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "prob");
  EXPECT_EQ(message.needed, std::strlen("problem is NULL") + 1);
  EXPECT_EQ(text[5], 'x');
  message.text = nullptr;
  EXPECT_EQ(splitkv_supports(nullptr, "cpu", &message), SPLITKV_INVALID_ARGUMENT);
  EXPECT_EQ(splitkv_supports(nullptr, "cpu", nullptr), SPLITKV_INVALID_ARGUMENT);
}

TEST(StructSizes, AMessageWithoutASizeIsNotTouched) {
  char text[4] = "abc";
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  message.size = 0;
  message.text = text;
  message.capacity = sizeof(text);
  EXPECT_EQ(splitkv_supports("attention q=bf16 heads=32/8 dim=128", "cuda:sm_90a", &message),
            SPLITKV_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "abc");
}

TEST(OpenOptions, WrongOnesAreRefusedByField) {
  splitkv_runtime* runtime = nullptr;
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  const auto open = [&] {
    return answer_of([&](splitkv_message* m) { return splitkv_open(&options, &runtime, m); });
  };
  options.flags = 0x81;
  EXPECT_TRUE(open().says("options.flags=0x81 has unknown bits 0x80")) << open();
  options.flags = 0;
  options.threads = -4;
  EXPECT_TRUE(open().says("options.threads=-4")) << open();
  options.threads = 0;
  options.size = 0;
  EXPECT_TRUE(open().says("options.size=0")) << open();
  EXPECT_EQ(runtime, nullptr);
  EXPECT_TRUE(answer_of([](splitkv_message* m) {
                return splitkv_open(nullptr, nullptr, m);
              }).says("runtime is NULL"));
}

TEST(OpenOptions, ClosingAndReleasingNothingIsAllowed) {
  splitkv_close(nullptr);
  splitkv_release(nullptr);
}

}  // namespace
