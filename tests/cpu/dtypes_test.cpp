// Stored types of K and V and what scales them.
#include <gtest/gtest.h>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

const char* const kSchedules[] = {
    "schedule family=vector tile=16 rows=4 warps=1 partition=fixed splits=3 reduce=kernel",
    "schedule family=vector tile=32 rows=1 warps=1 partition=flat blocks=7 reduce=last_block",
};

TEST(CpuDtypes, NarrowKeysAndValues) {
  for (const char* types :
       {"q=fp32 kv=e4m3", "q=bf16 kv=e5m2", "q=fp16 kv=int8 kv_scale=tensor",
        "q=bf16 k=e4m3 v=bf16", "q=fp16 k=fp16 v=int8 v_scale=tensor", "q=fp32 k=fp32 v=e5m2"}) {
    for (const char* dim : {"64", "44", "128/20"}) {
      for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
        expect_right(
            {std::string("attention lse=natural heads=4/2 align=4 dim=") + dim + " " + types,
             kSchedules[0], target});
      }
    }
  }
}

TEST(CpuDtypes, EveryKindOfScale) {
  int done = 0;
  for (const char* scale : {"kv_scale=tensor", "kv_scale=head", "kv_scale=token", "kv_scale=inline",
                            "k_scale=head v_scale=token", "k_scale=inline v_scale=none",
                            "k_scale=none v_scale=inline", "k_scale=token v_scale=tensor"}) {
    for (const char* types : {"q=fp32 kv=int8", "q=bf16 kv=e4m3 out=fp32", "q=fp32 kv=fp32"}) {
      for (const char* layout : {"bhtd", "bthd", "paged:16:nhd", "paged:3:hnd"}) {
        const std::string words = std::string("attention lse=base2 heads=4/2 align=4 dim=32 ") +
                                  types + " " + scale + " kv_layout=" + layout;
        expect_right({words, kSchedules[done++ % 2]});
      }
    }
  }
}

TEST(CpuDtypes, RowsOf132Bytes) {
  for (const char* layout : {"bthd", "paged:16:nhd", "paged:19:hnd"}) {
    expect_right({std::string("attention q=bf16 kv=e4m3 kv_scale=inline heads=8/2 dim=128 align=4 "
                              "lse=natural kv_layout=") +
                      layout,
                  kSchedules[0]});
  }
}

TEST(CpuDtypes, VInKTakesItsScale) {
  for (const char* scale : {"tensor", "head", "token", "inline"}) {
    for (const char* layout : {"bthd", "paged:16:nhd"}) {
      expect_right({std::string("attention q=bf16 kv=e4m3 v_in_k=on heads=4/1 dim=72/64 align=4 "
                                "out=fp32 lse=natural kv_scale=") +
                        scale + " kv_layout=" + layout,
                    kSchedules[0]});
    }
  }
}

TEST(CpuDtypes, SeparatePageTables) {
  for (const char* types : {"kv=bf16", "kv=int8 kv_scale=token", "kv=e5m2 kv_scale=inline"}) {
    for (bool offsets : {false, true}) {
      KernelCase test{std::string("attention q=bf16 heads=4/2 dim=40 align=4 lse=natural "
                                  "page_tables=separate kv_layout=paged:16:nhd ") +
                          types,
                      kSchedules[1]};
      test.page_offsets = offsets;
      expect_right(test);
    }
  }
}

}  // namespace
}  // namespace splitkv::test
