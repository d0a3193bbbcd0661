// The host's LaunchArgs and the device's are the same struct, member by member.
#include <gtest/gtest.h>

#include <cstddef>

#include "codegen/launch_args.hpp"

// The device header, read as host C++ under another namespace.
#define __device__
#define __host__
#define __int_as_float(bits) (float(bits))
#define splitkv device_splitkv
#include "templates/args.cuh"
#undef splitkv

namespace splitkv {
namespace {

#define EXPECT_SAME_MEMBER(member)                                                       \
  EXPECT_EQ(offsetof(LaunchArgs, member), offsetof(device_splitkv::LaunchArgs, member)); \
  EXPECT_EQ(sizeof(LaunchArgs::member), sizeof(device_splitkv::LaunchArgs::member))

TEST(LaunchArgsAgreement, EveryMemberLiesAtTheSameOffsetOnHostAndDevice) {
  EXPECT_EQ(sizeof(LaunchArgs), sizeof(device_splitkv::LaunchArgs));
  EXPECT_SAME_MEMBER(q);
  EXPECT_SAME_MEMBER(q_rope);
  EXPECT_SAME_MEMBER(k);
  EXPECT_SAME_MEMBER(v);
  EXPECT_SAME_MEMBER(out);
  EXPECT_SAME_MEMBER(lse);
  EXPECT_SAME_MEMBER(partial_l);
  EXPECT_SAME_MEMBER(kv_len);
  EXPECT_SAME_MEMBER(kv_begin);
  EXPECT_SAME_MEMBER(q_offset);
  EXPECT_SAME_MEMBER(total_len);
  EXPECT_SAME_MEMBER(page_table);
  EXPECT_SAME_MEMBER(page_offset);
  EXPECT_SAME_MEMBER(v_page_table);
  EXPECT_SAME_MEMBER(v_page_offset);
  EXPECT_SAME_MEMBER(k_scale);
  EXPECT_SAME_MEMBER(v_scale);
  EXPECT_SAME_MEMBER(sink);
  EXPECT_SAME_MEMBER(bias);
  EXPECT_SAME_MEMBER(tree);
  EXPECT_SAME_MEMBER(partials);
  EXPECT_SAME_MEMBER(arrivals);
  EXPECT_SAME_MEMBER(errors);
  EXPECT_SAME_MEMBER(params);
  EXPECT_SAME_MEMBER(q_stride_batch);
  EXPECT_SAME_MEMBER(q_stride_query);
  EXPECT_SAME_MEMBER(q_stride_head);
  EXPECT_SAME_MEMBER(q_rope_stride_batch);
  EXPECT_SAME_MEMBER(q_rope_stride_query);
  EXPECT_SAME_MEMBER(q_rope_stride_head);
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
  EXPECT_SAME_MEMBER(out_stride_batch);
  EXPECT_SAME_MEMBER(out_stride_query);
  EXPECT_SAME_MEMBER(out_stride_head);
  EXPECT_SAME_MEMBER(lse_stride_batch);
  EXPECT_SAME_MEMBER(lse_stride_query);
  EXPECT_SAME_MEMBER(lse_stride_head);
  EXPECT_SAME_MEMBER(bias_stride_batch);
  EXPECT_SAME_MEMBER(bias_stride_head);
  EXPECT_SAME_MEMBER(bias_stride_query);
  EXPECT_SAME_MEMBER(bias_stride_key);
  EXPECT_SAME_MEMBER(tree_stride_batch);
  EXPECT_SAME_MEMBER(tree_stride_query);
  EXPECT_SAME_MEMBER(page_table_stride);
  EXPECT_SAME_MEMBER(v_page_table_stride);
  EXPECT_SAME_MEMBER(partial_o_offset);
  EXPECT_SAME_MEMBER(pos0);
  EXPECT_SAME_MEMBER(pos_step);
  EXPECT_SAME_MEMBER(query_rows);
  EXPECT_SAME_MEMBER(page_count);
  EXPECT_SAME_MEMBER(kv_capacity);
  EXPECT_SAME_MEMBER(batch);
  EXPECT_SAME_MEMBER(splits);
  EXPECT_SAME_MEMBER(blocks);
  EXPECT_SAME_MEMBER(kv_len_bytes);
  EXPECT_SAME_MEMBER(kv_len_host);
  EXPECT_SAME_MEMBER(reserved);
  EXPECT_SAME_MEMBER(k_map);
  EXPECT_SAME_MEMBER(v_map);
}

TEST(LaunchArgsAgreement, TheErrorRecordIsTheSameOnHostAndDevice) {
  EXPECT_EQ(sizeof(ErrorRecord), sizeof(device_splitkv::ErrorRecord));
  EXPECT_EQ(offsetof(ErrorRecord, code), offsetof(device_splitkv::ErrorRecord, code));
  EXPECT_EQ(offsetof(ErrorRecord, row), offsetof(device_splitkv::ErrorRecord, row));
  EXPECT_EQ(offsetof(ErrorRecord, slot), offsetof(device_splitkv::ErrorRecord, slot));
  EXPECT_EQ(offsetof(ErrorRecord, claimed), offsetof(device_splitkv::ErrorRecord, claimed));
  EXPECT_EQ(offsetof(ErrorRecord, value), offsetof(device_splitkv::ErrorRecord, value));
  EXPECT_EQ(int(kBadPageId), int(device_splitkv::kBadPageId));
  EXPECT_EQ(int(kLengthTooLong), int(device_splitkv::kLengthTooLong));
  EXPECT_EQ(int(kBadQueryOffset), int(device_splitkv::kBadQueryOffset));
}

}  // namespace
}  // namespace splitkv
