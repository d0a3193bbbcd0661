// The host's AppendArgs and the device's are the same struct, member by member.
#include <gtest/gtest.h>

#include <cstddef>

#include "codegen/append_source.hpp"

// The device header, read as host C++ under another namespace.
#define __device__
#define __host__
#define __int_as_float(bits) (float(bits))
#define splitkv device_splitkv
#include "templates/append_args.cuh"
#undef splitkv

namespace splitkv {
namespace {

#define EXPECT_SAME_MEMBER(member)                                                       \
  EXPECT_EQ(offsetof(AppendArgs, member), offsetof(device_splitkv::AppendArgs, member)); \
  EXPECT_EQ(sizeof(AppendArgs::member), sizeof(device_splitkv::AppendArgs::member))

TEST(AppendArgsAgreement, EveryMemberLiesAtTheSameOffsetOnHostAndDevice) {
  EXPECT_EQ(sizeof(AppendArgs), sizeof(device_splitkv::AppendArgs));
  EXPECT_SAME_MEMBER(k_new);
  EXPECT_SAME_MEMBER(v_new);
  EXPECT_SAME_MEMBER(k);
  EXPECT_SAME_MEMBER(v);
  EXPECT_SAME_MEMBER(k_scale);
  EXPECT_SAME_MEMBER(v_scale);
  EXPECT_SAME_MEMBER(slots);
  EXPECT_SAME_MEMBER(v_slots);
  EXPECT_SAME_MEMBER(kv_len);
  EXPECT_SAME_MEMBER(q_offset);
  EXPECT_SAME_MEMBER(page_table);
  EXPECT_SAME_MEMBER(page_offset);
  EXPECT_SAME_MEMBER(v_page_table);
  EXPECT_SAME_MEMBER(v_page_offset);
  EXPECT_SAME_MEMBER(token_count);
  EXPECT_SAME_MEMBER(errors);
  EXPECT_SAME_MEMBER(k_new_stride_token);
  EXPECT_SAME_MEMBER(k_new_stride_head);
  EXPECT_SAME_MEMBER(v_new_stride_token);
  EXPECT_SAME_MEMBER(v_new_stride_head);
  EXPECT_SAME_MEMBER(k_stride_block);
  EXPECT_SAME_MEMBER(k_stride_head);
  EXPECT_SAME_MEMBER(k_stride_token);
  EXPECT_SAME_MEMBER(v_stride_block);
  EXPECT_SAME_MEMBER(v_stride_head);
  EXPECT_SAME_MEMBER(v_stride_token);
  EXPECT_SAME_MEMBER(k_scale_stride_block);
  EXPECT_SAME_MEMBER(k_scale_stride_head);
  EXPECT_SAME_MEMBER(k_scale_stride_token);
  EXPECT_SAME_MEMBER(v_scale_stride_block);
  EXPECT_SAME_MEMBER(v_scale_stride_head);
  EXPECT_SAME_MEMBER(v_scale_stride_token);
  EXPECT_SAME_MEMBER(page_table_stride);
  EXPECT_SAME_MEMBER(v_page_table_stride);
  EXPECT_SAME_MEMBER(tokens);
  EXPECT_SAME_MEMBER(slots_a_row);
  EXPECT_SAME_MEMBER(slot_count);
  EXPECT_SAME_MEMBER(batch);
  EXPECT_SAME_MEMBER(tokens_a_row);
  EXPECT_SAME_MEMBER(page_count);
  EXPECT_SAME_MEMBER(kv_capacity);
  EXPECT_SAME_MEMBER(kv_len_bytes);
  EXPECT_SAME_MEMBER(kv_len_host);
}

TEST(AppendArgsAgreement, TheFaultCodeIsTheSameOnHostAndDevice) {
  EXPECT_EQ(int(kBadSlot), int(device_splitkv::kBadSlot));
}

}  // namespace
}  // namespace splitkv
