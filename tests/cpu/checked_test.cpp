// Checked kernels: what is out of range is recorded once, and nothing is read through it.
#include <gtest/gtest.h>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

const char* const kSchedules[] = {
    "schedule family=vector tile=16 rows=2 warps=1 partition=fixed splits=3",
    "schedule family=vector tile=16 rows=4 warps=1 partition=flat blocks=9 reduce=last_block",
};

CaseOutcome run_right(const KernelCase& test) {
  expect_right(test);
  return run_case(test);
}

TEST(CpuChecked, ABadPageIsNamedAndItsKeysAreMasked) {
  for (const char* schedule : kSchedules) {
    for (const char* words : {"kv=bf16", "kv=bf16 page_tables=separate", "kv=e4m3 kv_scale=token",
                              "kv=e4m3 kv_scale=inline", "kv=bf16 v_in_k=on"}) {
      KernelCase test{std::string("attention q=bf16 heads=4/2 dim=32 align=4 lse=natural "
                                  "checked=on kv_layout=paged:16:nhd ") +
                          words,
                      schedule};
      test.kv_lens = {40, 90};
      test.bad_pages = {{1, 2}};
      const ErrorRecord errors = run_right(test).errors;
      EXPECT_EQ(errors.code, kBadPageId);
      EXPECT_EQ(errors.row, 1);
      EXPECT_EQ(errors.slot, 2);
      EXPECT_EQ(errors.value, 2 * 6 + 3);  // one past the last of the case's pages
      EXPECT_EQ(errors.claimed, 1);
      test.with_errors = false;
      EXPECT_EQ(run_right(test).errors.code, kNoFault);
    }
  }
}

TEST(CpuChecked, ALengthBeyondTheCapacityIsClamped) {
  for (const char* schedule : kSchedules) {
    for (const char* layout : {"bhtd", "paged:16:nhd"}) {
      KernelCase test{std::string("attention q=fp32 kv=fp32 heads=2 dim=16 lse=natural checked=on "
                                  "kv_layout=") +
                          layout,
                      schedule};
      test.kv_lens = {30, 1000, 3};
      test.kv_capacity = 48;
      const ErrorRecord errors = run_right(test).errors;
      EXPECT_EQ(errors.code, kLengthTooLong);
      EXPECT_EQ(errors.row, 1);
      EXPECT_EQ(errors.slot, 0);
      EXPECT_EQ(errors.value, 1000);
    }
  }
}

TEST(CpuChecked, MoreQueriesThanTheKernelHasAreClamped) {
  for (const char* schedule : kSchedules) {
    KernelCase test{"attention q=fp32 kv=fp32 heads=2 dim=16 query_len=2 lse=natural checked=on",
                    schedule};
    test.kv_lens = {30, 20};
    test.q_offsets = {0, 2, 7};
    test.query_rows = 8;
    const ErrorRecord errors = run_right(test).errors;
    EXPECT_EQ(errors.code, kBadQueryOffset);
    EXPECT_EQ(errors.row, 1);
    EXPECT_EQ(errors.value, 5);
  }
}

TEST(CpuChecked, WhatIsRightIsNotRecorded) {
  for (const char* checked : {"checked=on", "checked=off"}) {
    KernelCase test{std::string("attention q=fp32 kv=fp32 heads=2 dim=16 lse=natural "
                                "kv_layout=paged:16:nhd ") +
                        checked,
                    kSchedules[1]};
    const ErrorRecord errors = run_right(test).errors;
    EXPECT_EQ(errors.code, kNoFault);
    EXPECT_EQ(errors.claimed, 0);
  }
}

TEST(CpuChecked, OneOfManyFaultsIsRecordedWhole) {
  KernelCase test{
      "attention q=fp32 kv=fp32 heads=4/4 dim=16 checked=on kv_layout=paged:16:nhd lse=natural",
      kSchedules[0]};
  test.kv_lens = {64, 64, 64, 64};
  for (int row = 0; row < 4; ++row) test.bad_pages.push_back({row, row});
  test.threads = 4;
  for (int round = 0; round < 20; ++round) {
    const ErrorRecord errors = run_case(test).errors;
    EXPECT_EQ(errors.code, kBadPageId);
    EXPECT_EQ(errors.slot, errors.row);
  }
}

}  // namespace
}  // namespace splitkv::test
