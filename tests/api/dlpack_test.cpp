// Tensors that DLPack describes: what comes of their shapes and strides, and what is refused how.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/splitkv_dlpack.h"
#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

constexpr splitkv_dl_dtype kFp32 = {2, 32, 1}, kFp16 = {2, 16, 1}, kInt32 = {0, 32, 1},
                           kInt64 = {0, 64, 1}, kUint8 = {1, 8, 1}, kE4m3 = {10, 8, 1};

// A DLTensor and the arrays that it points to.
struct Tensor {
  std::vector<int64_t> shape, strides;
  splitkv_dl_tensor dl = {};

  Tensor(const void* data, splitkv_dl_dtype dtype, std::vector<int64_t> sizes,
         std::vector<int64_t> steps = {})
      : shape(std::move(sizes)), strides(std::move(steps)) {
    dl.data = const_cast<void*>(data);
    dl.device = {1, 0};
    dl.ndim = int32_t(shape.size());
    dl.dtype = dtype;
    dl.shape = shape.data();
    dl.strides = strides.empty() ? nullptr : strides.data();
  }
  Tensor(const Tensor&) = delete;
};

struct Prepared {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;

  explicit Prepared(const std::string& problem) {
    const Answer answer = prepare(runtime.get(), "cpu", problem, nullptr, &kernel);
    EXPECT_TRUE(answer.ok()) << answer;
  }

  Answer tensors(const splitkv_dl_cache& cache, splitkv_tensors* filled) const {
    return answer_of([&](splitkv_message* m) {
      return splitkv_tensors_from_dlpack(kernel.get(), &cache, filled, m);
    });
  }
  Answer args(const splitkv_dl_step& step, splitkv_args* filled) const {
    return answer_of([&](splitkv_message* m) {
      return splitkv_args_from_dlpack(kernel.get(), &step, filled, m);
    });
  }
};

TEST(DLPack, TensorsWithStridesOfTheirOwnGiveTheResultOfDenseOnes) {
  const std::vector<int32_t> lengths = {5, 0, 17};
  const std::vector<int64_t> wide_lengths(lengths.begin(), lengths.end());
  DecodeCase step(lengths);
  const Prepared prepared(step.problem);
  ASSERT_TRUE(step.attach(prepared.kernel.get()).ok());
  ASSERT_EQ(splitkv_run(prepared.kernel.get(), &step.binding, &step.args, nullptr, nullptr),
            SPLITKV_OK);
  const std::vector<float> out = step.out.values(), lse = step.lse.values();

  // q lies in rows of 40, behind 3 elements; K and V are dense; out goes to [batch, 1, heads, dim].
  Floats q_memory(3 * 4 * 40 + 3);
  for (int row = 0; row < 12; ++row) {
    std::memcpy(q_memory.data() + 3 + row * 40, step.q.data() + row * 32, 32 * 4);
  }
  Tensor q(q_memory.data(), kFp32, {3, 4, 32}, {160, 40, 1});
  q.dl.byte_offset = 12;
  Tensor k(step.k.data(), kFp32, {3, 2, step.capacity, 32});
  Tensor v(step.v.data(), kFp32, {3, 2, step.capacity, 32});
  Floats out_memory(3 * 4 * 32), lse_memory(12);
  Tensor o(out_memory.data(), kFp32, {3, 1, 4, 32});
  Tensor l(lse_memory.data(), kFp32, {3, 4}, {1, 3});  // [heads, batch] in memory
  Tensor kv_len(wide_lengths.data(), kInt64, {3});
  splitkv_dl_cache cache = SPLITKV_INIT(splitkv_dl_cache);
  cache.k = &k.dl;
  cache.v = &v.dl;
  splitkv_dl_step tensors_of_step = SPLITKV_INIT(splitkv_dl_step);
  tensors_of_step.q = &q.dl;
  tensors_of_step.out = &o.dl;
  tensors_of_step.lse = &l.dl;
  tensors_of_step.kv_len = &kv_len.dl;

  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  Answer answer = prepared.tensors(cache, &tensors);
  ASSERT_TRUE(answer.ok()) << answer;
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  ASSERT_EQ(splitkv_bind(prepared.kernel.get(), &tensors, &binding, nullptr), SPLITKV_OK);
  splitkv_args args = step.args;
  answer = prepared.args(tensors_of_step, &args);
  ASSERT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(args.batch, 3);
  EXPECT_EQ(args.kv_len_is_int64, 1);
  EXPECT_EQ(args.scratch, step.args.scratch) << "the caller's own fields stay";
  answer = answer_of([&](splitkv_message* m) {
    return splitkv_run(prepared.kernel.get(), &binding, &args, nullptr, m);
  });
  ASSERT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(out_memory.values(), out);
  for (int row = 0; row < 3; ++row) {
    for (int head = 0; head < 4; ++head) {
      EXPECT_EQ(lse_memory.data()[head * 3 + row], lse[row * 4 + head]);
    }
  }
}

TEST(DLPack, PagedFp8WithScalesFillsEveryField) {
  const Prepared prepared(
      "attention q=fp32 kv=e4m3 heads=4/2 dim=32 kv_layout=paged:16:nhd kv_scale=token");
  std::vector<uint8_t> bytes(7 * 16 * 2 * 32);
  std::vector<float> scales(7 * 16 * 2);
  Tensor k(bytes.data(), kE4m3, {7, 16, 2, 32});
  Tensor v(bytes.data(), kUint8, {7, 16, 2, 32});  // raw bytes count as either fp8
  Tensor scale(scales.data(), kFp32, {7, 16, 2}, {32, 1, 16});
  splitkv_dl_cache cache = SPLITKV_INIT(splitkv_dl_cache);
  cache.k = &k.dl;
  cache.v = &v.dl;
  cache.k_scale = cache.v_scale = &scale.dl;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  const Answer filled = prepared.tensors(cache, &tensors);
  ASSERT_TRUE(filled.ok()) << filled;
  EXPECT_EQ(tensors.k, bytes.data());
  EXPECT_EQ(tensors.k_stride_block, 16 * 2 * 32);
  EXPECT_EQ(tensors.k_stride_token, 2 * 32);
  EXPECT_EQ(tensors.v_stride_head, 32);
  EXPECT_EQ(tensors.k_scale, scales.data());
  EXPECT_EQ(tensors.v_scale_stride_block, 32);
  EXPECT_EQ(tensors.v_scale_stride_head, 16);
  EXPECT_EQ(tensors.v_scale_stride_token, 1);

  std::vector<float> q_memory(5 * 4 * 32), out_memory(q_memory);
  std::vector<int32_t> ids(5 * 9), lengths(5);
  Tensor q(q_memory.data(), kFp32, {5, 4, 32}), out(out_memory.data(), kFp32, {5, 4, 32});
  Tensor table(ids.data(), kInt32, {5, 8}, {9, 1}), kv_len(lengths.data(), kInt32, {5});
  splitkv_dl_step step = SPLITKV_INIT(splitkv_dl_step);
  step.q = &q.dl;
  step.out = &out.dl;
  step.page_table = &table.dl;
  step.kv_len = &kv_len.dl;
  splitkv_args args = SPLITKV_INIT(splitkv_args);
  const Answer read = prepared.args(step, &args);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(args.batch, 5);
  EXPECT_EQ(args.page_table, ids.data());
  EXPECT_EQ(args.page_table_stride, 9);
  EXPECT_EQ(args.kv_len_is_int64, 0);
  EXPECT_EQ(args.q_stride_batch, 128);
  EXPECT_EQ(args.q_stride_head, 32);
}

// Changes one thing of a cache that fits, and what the message must then say.
struct Refused {
  const char* name;
  void (*change)(Tensor& k, splitkv_dl_cache& cache);
  std::vector<const char*> words;
};

const Refused kRefused[] = {
    {"null", [](Tensor&, splitkv_dl_cache& c) { c.k = nullptr; }, {"cache.k is NULL", "dim=32"}},
    {"device",
     [](Tensor& k, splitkv_dl_cache&) {
       k.dl.device = {2, 1};
     },
     {"cache.k lies on cuda:1", "prepared on cpu"}},
    {"type", [](Tensor& k, splitkv_dl_cache&) { k.dl.dtype = kFp16; }, {"holds fp16; fp32 would"}},
    {"lanes",
     [](Tensor& k, splitkv_dl_cache&) { k.dl.dtype.lanes = 4; },
     {"4 lanes", "fp32 would fit"}},
    {"heads",
     [](Tensor& k, splitkv_dl_cache&) { k.shape[1] = 4; },
     {"cache.k has the shape [3, 4, 20, 32]", "kv_heads=2"}},
    {"ndim", [](Tensor& k, splitkv_dl_cache&) { k.dl.ndim = 3; }, {"shape [3, 2, 20];", "dim=32]"}},
    {"last stride",
     [](Tensor& k, splitkv_dl_cache&) {
       k.strides = {1280, 640, 32, 2};
       k.dl.strides = k.strides.data();
     },
     {"a stride of 2 in its last dimension, dim", "contiguous"}},
    {"repeated",
     [](Tensor& k, splitkv_dl_cache&) {
       k.strides = {0, 640, 32, 1};
       k.dl.strides = k.strides.data();
     },
     {"a stride of 0 in dimension 0, batch"}},
    {"backwards",
     [](Tensor& k, splitkv_dl_cache&) {
       k.strides = {1280, 640, -32, 1};
       k.dl.strides = k.strides.data();
     },
     {"a stride of -32 in dimension 2, tokens"}},
    {"no shape",
     [](Tensor& k, splitkv_dl_cache&) { k.dl.shape = nullptr; },
     {"ndim=4 and no shape"}},
    {"superfluous",
     [](Tensor& k, splitkv_dl_cache& c) { c.sink = &k.dl; },
     {"cache.sink is given, but the problem has no sink=on; NULL would fit"}},
    {"scale",
     [](Tensor& k, splitkv_dl_cache& c) { c.k_scale = &k.dl; },
     {"cache.k_scale is given", "no such scale"}},
};

TEST(DLPack, WhatDoesNotFitIsRefusedByFieldAndValueAndNothingIsWritten) {
  const Prepared prepared("attention q=fp32 heads=4/2 dim=32");
  Floats memory(3 * 2 * 20 * 32);
  for (const Refused& refused : kRefused) {
    Tensor k(memory.data(), kFp32, {3, 2, 20, 32}), v(memory.data(), kFp32, {3, 2, 20, 32});
    splitkv_dl_cache cache = SPLITKV_INIT(splitkv_dl_cache);
    cache.k = &k.dl;
    cache.v = &v.dl;
    splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
    ASSERT_TRUE(prepared.tensors(cache, &tensors).ok());
    tensors = SPLITKV_INIT(splitkv_tensors);
    refused.change(k, cache);
    const Answer answer = prepared.tensors(cache, &tensors);
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << refused.name;
    for (const char* words : refused.words) EXPECT_TRUE(answer.says(words)) << words << answer;
    EXPECT_EQ(tensors.k, nullptr) << refused.name;
  }
}

TEST(DLPack, ABatchThatDiffersBetweenTensorsIsRefused) {
  const Prepared prepared("attention q=fp32 heads=4/2 dim=32");
  Floats memory(3 * 4 * 32);
  const std::vector<int32_t> lengths(4);
  Tensor q(memory.data(), kFp32, {3, 4, 32}), out(memory.data(), kFp32, {3, 4, 32});
  Tensor kv_len(lengths.data(), kInt32, {4});
  splitkv_dl_step step = SPLITKV_INIT(splitkv_dl_step);
  step.q = &q.dl;
  step.out = &out.dl;
  step.kv_len = &kv_len.dl;
  splitkv_args args = SPLITKV_INIT(splitkv_args);
  const Answer answer = prepared.args(step, &args);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("step.kv_len has the shape [4]; [batch=3] would fit")) << answer;
}

TEST(DLPack, AManagedTensorIsViewedWhereItsVersionAndItsFlagsAllowIt) {
  Floats memory(8);
  const Tensor inside(memory.data(), kFp32, {8});
  splitkv_dl_managed_tensor managed = {1, 1, nullptr, nullptr, 1, inside.dl};
  const splitkv_dl_tensor* tensor = nullptr;
  const auto view = [&](int writable) {
    return answer_of(
        [&](splitkv_message* m) { return splitkv_dl_view(&managed, writable, &tensor, m); });
  };
  EXPECT_TRUE(view(0).ok());
  EXPECT_EQ(tensor, &managed.tensor);
  EXPECT_TRUE(view(1).says("read only")) << view(1);
  EXPECT_EQ(tensor, nullptr);
  managed.flags = 0;
  EXPECT_TRUE(view(1).ok());
  managed.version_major = 2;
  EXPECT_TRUE(view(0).says("DLPack 2.1; 1.x would fit")) << view(0);
}

// As dlpack.h of version 1.1 has them on 64-bit machines.
static_assert(sizeof(splitkv_dl_device) == 8 && sizeof(splitkv_dl_dtype) == 4);
static_assert(offsetof(splitkv_dl_tensor, device) == 8 && offsetof(splitkv_dl_tensor, ndim) == 16 &&
              offsetof(splitkv_dl_tensor, dtype) == 20 &&
              offsetof(splitkv_dl_tensor, shape) == 24 &&
              offsetof(splitkv_dl_tensor, strides) == 32 &&
              offsetof(splitkv_dl_tensor, byte_offset) == 40 && sizeof(splitkv_dl_tensor) == 48);
static_assert(offsetof(splitkv_dl_managed_tensor, manager_ctx) == 8 &&
              offsetof(splitkv_dl_managed_tensor, deleter) == 16 &&
              offsetof(splitkv_dl_managed_tensor, flags) == 24 &&
              offsetof(splitkv_dl_managed_tensor, tensor) == 32);

}  // namespace
