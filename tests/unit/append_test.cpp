// What a KV writer is made for, of the problem whose cache it writes.
#include "compiler/append.hpp"

#include <gtest/gtest.h>

#include "compiler/text.hpp"

namespace splitkv {
namespace {

// Problems whose caches lie alike share the code: what is printed is all that is emitted from.
TEST(AppendOf, OnlyTheMemoryFormOfTheCacheCounts) {
  const auto append = [](const char* text) {
    Problem problem = parse_problem(text).value();
    problem.checked = Checked::off;
    return append_of(problem, DType::bf16, AppendPlaces::slots);
  };
  const Append plain = append("q=bf16 heads=32/8 dim=128 kv_layout=paged:16:nhd");
  EXPECT_EQ(plain, append("q=fp16 kv=bf16 heads=16/8 dim=128 kv_layout=paged:16:hnd query_len=4 "
                          "window=77 softcap=30 sink=on lse=natural"));
  EXPECT_EQ(print(plain),
            "append new=bf16 places=slots heads=8 k=bf16 k_dim=128 v=bf16 v_dim=128 page=16");
  EXPECT_NE(plain, append("q=bf16 heads=32/8 dim=128 kv_layout=paged:32:nhd"));
  EXPECT_NE(plain, append("q=bf16 kv=e4m3 heads=32/8 dim=128 kv_layout=paged:16:nhd"));
  EXPECT_EQ(entry_name(plain), "splitkv_append_slots_bf16_h8_d128");
  EXPECT_EQ(entry_name(append("q=bf16 kv=e4m3 heads=4/1 dim=576/512 v_in_k=on")),
            "splitkv_append_slots_bf16_e4m3_h1_d576");
}

TEST(AppendWidth, DividesTheRowAndKeepsToTheAlignment) {
  EXPECT_EQ(append_width({DType::bf16, 128}, 16), 4);
  EXPECT_EQ(append_width({DType::bf16, 46}, 16), 2);
  EXPECT_EQ(append_width({DType::bf16, 128}, 4), 2);
  EXPECT_EQ(append_width({DType::bf16, 128}, 2), 1);
  EXPECT_EQ(append_width({DType::fp32, 128}, 8), 2);
  EXPECT_EQ(append_width({DType::e4m3, 132}, 2), 2);
  EXPECT_EQ(append_width({DType::int8, 132}, 4), 4);
}

}  // namespace
}  // namespace splitkv
