// What an append calls in the driver, and how its faults come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "codegen/append_source.hpp"
#include "runtime/splitkv_append.h"
#include "tests/api/fake_driver.hpp"

using namespace splitkv;
using namespace splitkv::testing_support;

namespace {

struct ReleaseAppender {
  void operator()(splitkv_appender* appender) const { splitkv_release_appender(appender); }
};
using AppenderOwner = std::unique_ptr<splitkv_appender, ReleaseAppender>;

Answer prepare_append(splitkv_runtime* runtime, const std::string& problem, const char* type,
                      const char* places, AppenderOwner* appender) {
  splitkv_appender* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_prepare_append(runtime, "cuda:0", problem.c_str(), type, places, &handle, m);
  });
  appender->reset(handle);
  return answer;
}

constexpr const char* kProblem =
    "attention q=bf16 kv=e4m3 heads=32/8 dim=32 kv_layout=paged:16:nhd kv_scale=token checked=on";

using CudaAppend = FakeDriver;

TEST_F(CudaAppend, LaunchesAWarpARowAndCarriesItsArguments) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer prepared = prepare(runtime.get(), "cuda:0", kProblem, nullptr, &kernel);
  ASSERT_TRUE(prepared.ok()) << prepared;
  AppenderOwner appender;
  const Answer made = prepare_append(runtime.get(), kProblem, nullptr, "slots", &appender);
  ASSERT_TRUE(made.ok()) << made;

  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  ASSERT_EQ(splitkv_dense_strides(kernel.get(), 0, &tensors, nullptr), SPLITKV_OK);
  tensors.k = address(0x1000);
  tensors.v = address(0x2000);
  tensors.k_scale = static_cast<float*>(address(0x3000));
  tensors.v_scale = static_cast<float*>(address(0x4000));
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  ASSERT_EQ(splitkv_bind(kernel.get(), &tensors, &binding, nullptr), SPLITKV_OK);
  splitkv_append_args args = SPLITKV_INIT(splitkv_append_args);
  args.tokens = 5;
  args.k_new = address(0x5000);
  args.v_new = address(0x6000);
  args.slots = static_cast<int64_t*>(address(0x7000));
  args.slot_count = 640;
  fake_cuda::clear_calls();
  const Answer ran = answer_of([&](splitkv_message* m) {
    return splitkv_append(appender.get(), &binding, &args, address(0x90), m);
  });
  ASSERT_TRUE(ran.ok()) << ran;
  int launches = 0;
  for (const auto& call : fake_cuda::calls()) {
    EXPECT_EQ(call.name.find("Alloc"), std::string::npos);
    EXPECT_EQ(call.name.find("Synchronize"), std::string::npos);
    if (call.name != "cuLaunchKernel") continue;
    ++launches;
    EXPECT_EQ(call.grid[0], 20u);  // 5 tokens, 8 heads, K and V; 4 warps a block
    EXPECT_EQ(call.block[0], 128u);
    EXPECT_EQ(call.entry, "splitkv_append_slots_bf16_e4m3_h8_d32");
    EXPECT_EQ(call.stream, address(0x90));
    AppendArgs launched;
    ASSERT_EQ(call.argument.size(), sizeof(launched));
    std::memcpy(&launched, call.argument.data(), sizeof(launched));
    EXPECT_EQ(launched.k, tensors.k);
    EXPECT_EQ(launched.v_scale, tensors.v_scale);
    EXPECT_EQ(launched.slots, args.slots);
    EXPECT_EQ(launched.slot_count, 640);
    EXPECT_EQ(launched.k_new_stride_token, 8 * 32);
    ASSERT_NE(launched.errors, nullptr);
    // What the device would write there is what a poll finds, once.
    launched.errors->claimed = 1;
    launched.errors->row = 3;
    launched.errors->value = 641;
    launched.errors->code = kBadSlot;
  }
  EXPECT_EQ(launches, 1);
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  const auto poll = [&] {
    return answer_of(
        [&](splitkv_message* m) { return splitkv_poll_append_fault(appender.get(), &fault, m); });
  };
  const Answer found = poll();
  EXPECT_EQ(found.status, SPLITKV_DEVICE_ERROR);
  EXPECT_TRUE(found.says("slots[3]=641 is outside [0, slot_count)")) << found;
  EXPECT_EQ(fault.code, 5);
  EXPECT_EQ(fault.row, 3);
  EXPECT_EQ(fault.value, 641);
  EXPECT_TRUE(poll().ok());
  EXPECT_EQ(fault.code, 0);
}

TEST_F(CudaAppend, ProblemsWhoseCachesLieAlikeShareTheCode) {
  RuntimeOwner runtime = open_runtime();
  AppenderOwner first, second, third;
  ASSERT_TRUE(
      prepare_append(runtime.get(), "q=bf16 heads=32/8 dim=32", nullptr, "rows", &first).ok());
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  ASSERT_TRUE(prepare_append(runtime.get(), "q=fp16 kv=bf16 heads=16/8 dim=32 window=9", "bf16",
                             "rows", &second)
                  .ok());
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  EXPECT_EQ(statistics_of(runtime.get()).memory_hits, 1u);
  ASSERT_TRUE(
      prepare_append(runtime.get(), "q=bf16 heads=32/8 dim=32", nullptr, "slots", &third).ok());
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 2u);
}

TEST_F(CudaAppend, WhatCannotBePreparedIsRefusedByName) {
  RuntimeOwner runtime = open_runtime();
  AppenderOwner appender;
  const auto refused = [&](const char* problem, const char* type, const char* places) {
    const Answer answer = prepare_append(runtime.get(), problem, type, places, &appender);
    EXPECT_EQ(appender, nullptr);
    return answer;
  };
  const char* right = "q=bf16 heads=32/8 dim=32";
  EXPECT_TRUE(refused(right, "bf16", "pages").says("places=pages"));
  EXPECT_TRUE(refused(right, "float", "slots").says("type=float"));
  EXPECT_TRUE(refused("q=bf16 heads=32/8", "bf16", "slots").says("dim=: the word is missing"));
  EXPECT_EQ(refused(right, "int8", "slots").status, SPLITKV_UNSUPPORTED);
  EXPECT_TRUE(refused(right, "int8", "slots").says("append_type_is_floating: type=int8"));
  EXPECT_TRUE(refused("q=bf16 heads=32/8 dim=32 positions=strided", nullptr, "rows")
                  .says("append_rows_are_contiguous: places=rows"));
  EXPECT_TRUE(refused("q=bf16 heads=32/8 dim=31", nullptr, "rows").says("head_dims_are_even"));
}

TEST_F(CudaAppend, NullArgumentsAndNoTokens) {
  RuntimeOwner runtime = open_runtime();
  AppenderOwner appender;
  ASSERT_TRUE(
      prepare_append(runtime.get(), "q=bf16 heads=8/8 dim=32", nullptr, "slots", &appender).ok());
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  splitkv_append_args args = SPLITKV_INIT(splitkv_append_args);
  const auto append = [&](const splitkv_appender* to, const splitkv_binding* where,
                          const splitkv_append_args* what) {
    return answer_of(
        [&](splitkv_message* m) { return splitkv_append(to, where, what, nullptr, m); });
  };
  EXPECT_TRUE(append(nullptr, &binding, &args).says("appender is NULL"));
  EXPECT_TRUE(append(appender.get(), nullptr, &args).says("binding is NULL"));
  EXPECT_TRUE(append(appender.get(), &binding, nullptr).says("args is NULL"));
  fake_cuda::clear_calls();
  EXPECT_TRUE(append(appender.get(), &binding, &args).ok()) << "no tokens: nothing is done";
  EXPECT_TRUE(fake_cuda::calls().empty());
  args.tokens = -1;
  EXPECT_TRUE(append(appender.get(), &binding, &args).says("args.tokens=-1"));
  splitkv_release_appender(nullptr);
}

}  // namespace
