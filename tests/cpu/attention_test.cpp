// The emitted split and reduce kernels against a two-pass fp64 answer, with NaN in every key, page,
// partial and output that must not matter and unreadable memory behind K and V.
#include <gtest/gtest.h>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

const std::string kSplit3 = "schedule family=vector tile=16 rows=4 warps=1 partition=fixed splits=3";

std::string attention(const std::string& words) { return "attention " + words; }

TEST(CpuAttention, IsRightInEveryMixOfTypes) {
  for (const char* types :
       {"q=fp32 kv=fp32", "q=fp16 kv=fp16", "q=bf16 kv=bf16", "q=bf16 kv=fp16 out=fp32",
        "q=fp32 k=bf16 v=fp16 out=fp32", "q=fp16 k=fp32 v=bf16 out=bf16"}) {
    expect_right({attention(std::string(types) + " heads=4/2 dim=64 lse=natural"), kSplit3});
  }
}

TEST(CpuAttention, IsRightInEveryPartitionReduceAndMerge) {
  for (const char* partition :
       {"partition=fixed splits=1", "partition=fixed splits=3", "partition=fixed splits=64",
        "partition=strided splits=1", "partition=strided splits=3", "partition=strided splits=64",
        "partition=flat blocks=1", "partition=flat blocks=5", "partition=flat blocks=200"}) {
    for (const char* reduce : {"reduce=kernel", "reduce=last_block"}) {
      for (const char* merge : {"merge=mlo", "merge=lse"}) {
        expect_right({attention("q=fp32 kv=fp32 heads=6/2 dim=32 lse=natural"),
                      std::string("schedule family=vector tile=8 rows=2 warps=1 ") + partition + " " +
                          reduce + " " + merge});
      }
    }
  }
}

TEST(CpuAttention, SplitsLeavePartialsOfTwoOrMorePieces) {
  const CaseOutcome outcome =
      run_case({attention("q=fp32 kv=fp32 heads=2 dim=16"), kSplit3, "cpu", {100, 40, 3}});
  EXPECT_EQ(outcome.partials, 12);  // 2 heads, 3 pieces of each of the two longer rows
}

}  // namespace
}  // namespace splitkv::test
