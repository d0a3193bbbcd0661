// The emitted split and reduce kernels against a two-pass fp64 answer, with NaN in every key, page,
// partial and output that must not matter and unreadable memory behind K and V.
#include <gtest/gtest.h>

#include "runtime/cpu/host.hpp"
#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

const std::string kSplit3 =
    "schedule family=vector tile=16 rows=4 warps=1 partition=fixed splits=3";

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
                      std::string("schedule family=vector tile=8 rows=2 warps=1 ") + partition +
                          " " + reduce + " " + merge});
      }
    }
  }
}

TEST(CpuAttention, SplitsLeavePartialsOfTwoOrMorePieces) {
  const CaseOutcome outcome =
      run_case({attention("q=fp32 kv=fp32 heads=2 dim=16"), kSplit3, "cpu", {100, 40, 3}});
  EXPECT_EQ(outcome.partials, 12);  // 2 heads, 3 pieces of each of the two longer rows
}

TEST(CpuAttention, GivesTheSameBitsInWhateverOrderBlocksArrive) {
  for (const char* partition : {"partition=strided splits=7", "partition=flat blocks=23"}) {
    KernelCase test{
        attention("q=fp32 kv=fp32 heads=4/2 dim=16 lse=natural"),
        std::string("schedule family=vector tile=8 rows=2 warps=1 reduce=last_block ") + partition,
        "cpu",
        {200, 3, 0, 77}};
    const CompiledCase compiled = compile_case(test);
    const CaseOutcome in_turn = run_case(test, compiled);
    EXPECT_LE(in_turn.out_error, 1e-5);
    test.threads = 4;
    for (int round = 0; round < 50; ++round) {
      const CaseOutcome at_once = run_case(test, compiled);
      EXPECT_EQ(at_once.actual.out, in_turn.actual.out);
      EXPECT_EQ(at_once.actual.lse, in_turn.actual.lse);
      EXPECT_EQ(at_once.fault, "");
    }
  }
}

TEST(CpuAttention, IsRightWithEveryHeadDim) {
  for (const char* dim : {"8", "40", "72", "80", "128", "192/128", "64/256", "256"}) {
    for (const char* types : {"q=fp32 kv=fp32", "q=bf16 kv=bf16"}) {
      expect_right({attention(std::string(types) + " heads=3 lse=natural dim=" + dim), kSplit3});
    }
  }
}

TEST(CpuAttention, IsRightWithEveryGroupSizeWhateverTheRowsOfABlock) {
  for (const char* heads : {"heads=2", "heads=6/2", "heads=7/1", "heads=24/2", "heads=71/1"}) {
    for (const char* rows : {"rows=1", "rows=4", "rows=8 unroll=1"}) {
      expect_right({attention(std::string("q=fp32 kv=fp32 dim=16 lse=base2 ") + heads),
                    std::string("schedule family=vector tile=32 warps=1 partition=strided "
                                "splits=2 reduce=last_block ") +
                        rows});
    }
  }
}

TEST(CpuAttention, IsRightInEveryLayoutAndReadsNoUnusedPage) {
  for (const char* layout : {"bhtd", "bthd", "paged:1:nhd", "paged:3:hnd", "paged:16:nhd",
                             "paged:16:hnd", "paged:48:nhd", "paged:784:hnd"}) {
    for (const bool offsets : {false, true}) {
      KernelCase test{attention("q=fp16 kv=fp16 heads=4/2 dim=72 lse=natural kv_layout=") + layout,
                      kSplit3,
                      "cpu",
                      {1, 15, 16, 17, 83, 0, 129}};
      test.page_offsets = offsets;
      expect_right(test);
    }
  }
}

TEST(CpuAttention, ReadsNothingLeftOfTheWindow) {
  for (const char* window : {"window=1", "window=16", "window=100", "window=5000"}) {
    for (const char* layout : {"bhtd", "paged:16:nhd"}) {
      for (const char* partition : {"partition=fixed splits=3", "partition=flat blocks=9"}) {
        expect_right({attention(std::string("q=fp32 kv=fp32 heads=2 dim=24 lse=natural ") + window +
                                " kv_layout=" + layout),
                      std::string("schedule family=vector tile=32 rows=1 warps=1 ") + partition,
                      "cpu",
                      {99, 100, 101, 513, 0, 16}});
      }
    }
  }
}

TEST(CpuAttention, IsRightAtEveryLengthAroundTiles) {
  std::vector<int> lengths;
  for (int length = 0; length <= 140; ++length) lengths.push_back(length);
  for (const char* schedule :
       {"tile=8 unroll=1", "tile=32 unroll=4", "tile=64 unroll=8", "tile=128 unroll=2"}) {
    expect_right(
        {attention("q=fp32 kv=fp32 heads=1 dim=8 lse=natural"),
         std::string("schedule family=vector rows=1 warps=1 partition=fixed splits=2 ") + schedule,
         "cpu", lengths});
  }
}

TEST(CpuAttention, CapsScoresSoftlyBeforeTheSoftmax) {
  for (const char* softcap : {"softcap=1", "softcap=30"}) {
    KernelCase test{attention(std::string("q=fp32 kv=fp32 heads=2 dim=64 lse=natural ") + softcap),
                    kSplit3};
    test.q_size = 20;
    expect_right(test);
  }
}

TEST(CpuAttention, StaysAccurateAtScoresOfSeveralHundred) {
  for (const char* merge : {"merge=mlo", "merge=lse"}) {
    KernelCase test{attention(std::string("q=fp32 kv=fp32 heads=4 dim=64 lse=natural ") + merge),
                    kSplit3,
                    "cpu",
                    {400, 399}};
    test.q_size = 500;
    // Beside |S| an fp32 S is a few ulp wide, and so are the weights of a forced lse join.
    expect_right(test, std::string(merge) == "merge=lse" ? 2e-4 : 1e-5);
  }
}

TEST(CpuAttention, IsRightWithEveryVectorWidth) {
  for (const char* target :
       {"cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v3:128", "cpu:x86-64-v4", "cpu"}) {
    if (!resolve_cpu_target(target, 1)) continue;  // an older machine
    for (const char* types : {"q=fp32 kv=fp32 out=fp16", "q=fp16 kv=fp16", "q=bf16 kv=bf16"}) {
      for (const char* dim : {"40", "128", "72/8"}) {
        expect_right({attention(std::string(types) + " heads=6/2 softcap=20 window=70 dim=" + dim),
                      kSplit3, target});
      }
    }
  }
}

}  // namespace
}  // namespace splitkv::test
