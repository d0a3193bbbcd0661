// Shapes of queries and keys: head dims, tensors of q, query tokens and their masks, lengths and
// positions; each in several schedules.
#include <gtest/gtest.h>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

const char* const kSchedules[] = {
    "partition=fixed splits=1 reduce=kernel merge=mlo",
    "partition=fixed splits=3 reduce=last_block merge=lse",
    "partition=strided splits=7 reduce=kernel merge=lse",
    "partition=flat blocks=11 reduce=last_block merge=mlo",
};

// rows that divide no group, so that blocks end in rows that do not exist
std::string schedule(const char* rest, int rows = 3) {
  return "schedule family=vector tile=16 warps=1 rows=" + std::to_string(rows) + " " + rest;
}

KernelCase make(const std::string& words, const char* rest) {
  return {"attention lse=natural " + words, schedule(rest)};
}

void expect_right_in_all(KernelCase test) {
  for (const char* rest : kSchedules) {
    test.schedule = schedule(rest);
    expect_right(test);
  }
}

TEST(CpuQueries, HeadDimsTo576AndEvenOnes) {
  for (const char* dim : {"10", "46", "66", "112", "576/512", "320/256", "30/14"}) {
    for (const char* types : {"q=fp32 kv=fp32", "q=bf16 kv=bf16", "q=fp16 kv=fp16"}) {
      const std::string align = std::string(types).find("kv=fp32") == std::string::npos ? "2" : "4";
      expect_right(
          make(std::string(types) + " heads=4/2 dim=" + dim + " align=" + align, kSchedules[1]));
    }
  }
}

TEST(CpuQueries, QMayLieInTwoTensorsAndVInK) {
  for (const char* layout : {"bthd", "paged:16:nhd"}) {
    const std::string words = std::string(" heads=5/1 v_in_k=on kv_layout=") + layout;
    expect_right_in_all(make("q=fp32 kv=fp32 dim=72/64 q_rope=8" + words, ""));
    expect_right_in_all(make("q=bf16 kv=bf16 dim=54/48 q_rope=6 align=4" + words, ""));
    expect_right(make("q=bf16 kv=bf16 dim=576/512 q_rope=64" + words, kSchedules[2]));
  }
}

TEST(CpuQueries, MasksOfSeveralQueries) {
  for (const char* mask : {"mask=causal", "mask=none", "mask=tree"}) {
    for (const char* more : {"", " window=5", " window=40", " chunk=24"}) {
      if (std::string(mask) == "mask=tree" && *more == ' ') continue;
      for (const char* query_len : {" query_len=3", " query_len=9"}) {
        KernelCase test =
            make(std::string("q=fp32 kv=fp32 heads=4/2 dim=24 ") + mask + more + query_len, "");
        test.kv_lens = {130, 0, 1, 2, 5, 64};
        expect_right_in_all(test);
      }
    }
  }
}

TEST(CpuQueries, ChunksAndWindowsOfOneQuery) {
  for (const char* words : {"chunk=16", "chunk=50 window=30", "mask=none window=20", "window=1"}) {
    KernelCase test =
        make(std::string("q=fp32 kv=fp32 heads=2 dim=16 kv_layout=paged:16:hnd ") + words, "");
    test.kv_lens = {16, 17, 100, 0, 150, 151};
    expect_right_in_all(test);
  }
}

TEST(CpuQueries, RaggedQueriesAndTokensBeyondThem) {
  for (const char* words : {"query_len=4 mask=causal", "query_len=4 mask=tree", "query_len=1",
                            "query_len=4 sink=on", "query_len=4 window=9"}) {
    KernelCase test = make(std::string("q=fp32 kv=fp32 heads=4/2 dim=16 ") + words, "");
    test.kv_lens = {50, 3, 70, 0, 40, 9};
    const bool one = test.problem.find("query_len=1") != std::string::npos;
    test.q_offsets =
        one ? std::vector<int>{0, 1, 2, 2, 3, -1, -1} : std::vector<int>{0, 4, 4, 5, 8, 8, -1};
    test.query_rows = 12;
    expect_right_in_all(test);
  }
  // A gap before the first row, one between rows, and nothing at all.
  KernelCase test = make("q=bf16 kv=bf16 heads=2 dim=16 query_len=2 out=fp32", kSchedules[1]);
  test.kv_lens = {20, 30, 40};
  test.query_rows = 9;
  for (const std::vector<int>& offsets :
       {std::vector<int>{2, 4, 5, 6}, {0, 2, -1, 5}, {-1, -1, -1, -1}, {0, 0, 0, 0}}) {
    test.q_offsets = offsets;
    expect_right(test);
  }
}

TEST(CpuQueries, LengthsInEveryForm) {
  for (int bytes : {0, 4, 8}) {
    KernelCase test = make("q=fp32 kv=fp32 heads=2 dim=16", "");
    test.kv_lens = bytes == 0 ? std::vector<int>{77, 77, 77} : std::vector<int>{77, 0, -3, 100};
    test.kv_len_bytes = bytes;
    expect_right_in_all(test);
  }
}

TEST(CpuQueries, KeysBeforeTheBeginDoNotCount) {
  for (const char* words : {"", " window=20", " query_len=3", " kv_layout=paged:16:nhd"}) {
    KernelCase test = make(std::string("q=fp32 kv=fp32 heads=2 dim=16") + words, "");
    test.kv_lens = {77, 30, 0, 100, 16};
    test.kv_begins = {3, 30, 5, 64, -2};
    expect_right_in_all(test);
  }
}

TEST(CpuQueries, PositionsOfAStripedShard) {
  for (const char* words : {"query_len=1", "query_len=3", "query_len=3 window=30",
                            "query_len=2 chunk=20", "query_len=2 mask=none", "alibi=on"}) {
    for (int rank = 0; rank < 3; ++rank) {
      KernelCase test = make(
          std::string("q=fp32 kv=fp32 heads=2 dim=16 positions=strided kv_layout=paged:3:nhd ") +
              words,
          "");
      test.total_lens = {1, 2, 100, 0, 151};
      test.pos0 = rank;
      test.pos_step = 3;
      test.kv_lens.clear();
      for (int total : test.total_lens) test.kv_lens.push_back((total - rank + 2) / 3);
      expect_right_in_all(test);
    }
  }
}

TEST(CpuQueries, ManyQueriesOfLargeGroups) {
  for (const char* heads : {"7/1", "71/1", "12/4"}) {
    KernelCase test = make(std::string("q=bf16 kv=bf16 dim=16 query_len=5 heads=") + heads, "");
    test.kv_lens = {33, 4};
    expect_right_in_all(test);
  }
}

}  // namespace
}  // namespace splitkv::test
