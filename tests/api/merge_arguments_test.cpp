// Arguments of the public merge, wrong ones refused by name; and structs of older headers.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "runtime/binding_io.hpp"
#include "runtime/merge_launch.hpp"

namespace splitkv {
namespace {

float* place(int64_t i, int64_t floats = 0) {
  return reinterpret_cast<float*>((i + 1) * 0x100000000) + floats;
}

splitkv_merge_args right_args(bool mlo) {
  splitkv_merge_args args = SPLITKV_INIT(splitkv_merge_args);
  args.parts = 3;
  args.rows = 10;
  args.dim = 64;
  args.o = place(0);
  args.s_or_m = place(1);
  args.out = place(2);
  args.out_s_or_m = place(3);
  if (mlo) args.l = place(4);
  if (mlo) args.out_l = place(5);
  args.o_stride_part = 640;
  args.o_stride_row = args.out_stride_row = 64;
  args.statistics_stride_part = 10;
  args.statistics_stride_row = args.out_statistics_stride_row = 1;
  return args;
}

std::string refusal(bool mlo, const splitkv_merge_args& args) {
  PreparedMerge merge{mlo ? Merge::mlo : Merge::lse, Target{}, Loaded{}};
  const auto made = make_merge(merge, args);
  return made ? "" : made.error().message;
}

struct Wrong {
  bool mlo;
  std::function<void(splitkv_merge_args&)> spoil;
  const char* message;
};

TEST(MergeArguments, EachWrongOneIsRefusedByNameAndValue) {
  using A = splitkv_merge_args;
  const Wrong wrongs[] = {
      {false, [](A& a) { a.parts = 0; }, "args.parts=0"},
      {false, [](A& a) { a.dim = 4097; }, "args.dim=4097"},
      {false, [](A& a) { a.dim = 0; }, "args.dim=0"},
      {false, [](A& a) { a.rows = int64_t(1) << 31; }, "args.rows=2147483648"},
      {false, [](A& a) { a.o = nullptr; }, "args.o is NULL"},
      {false, [](A& a) { a.s_or_m = nullptr; }, "args.s_or_m is NULL"},
      {false, [](A& a) { a.out = nullptr; }, "args.out is NULL"},
      {false, [](A& a) { a.out_s_or_m = nullptr; }, "args.out_s_or_m is NULL"},
      {false, [](A& a) { a.l = place(4); }, "the merger is of the form lse"},
      {true, [](A& a) { a.l = nullptr; }, "args.l is NULL"},
      {true, [](A& a) { a.out_l = nullptr; }, "args.out_l is NULL"},
      {false, [](A& a) { a.out_stride_row = 63; }, "args.out_stride_row=63"},
      {false, [](A& a) { a.out_statistics_stride_row = 0; }, "args.out_statistics_stride_row=0"},
      {false, [](A& a) { a.out = place(0, 640); }, "args.out="},  // part 1
      {false, [](A& a) { a.out = place(0, 1); }, "args.out="},    // not quite part 0
      {false, [](A& a) { a.out_s_or_m = place(0, 5); }, "overlaps args.o="},
      {true, [](A& a) { a.out_l = a.out_s_or_m; }, "overlaps args.out_l="},
  };
  for (const Wrong& wrong : wrongs) {
    splitkv_merge_args args = right_args(wrong.mlo);
    ASSERT_EQ(refusal(wrong.mlo, args), "");
    wrong.spoil(args);
    const std::string message = refusal(wrong.mlo, args);
    EXPECT_NE(message.find(wrong.message), std::string::npos)
        << "wanted: " << wrong.message << " | got: " << message;
    EXPECT_NE(message.find("would fit"), std::string::npos) << message;
  }
}

TEST(MergeArguments, MayBeInPlaceOfPart0) {
  splitkv_merge_args args = right_args(true);
  args.out = place(0);
  args.out_s_or_m = place(1);
  args.out_l = place(4);
  EXPECT_EQ(refusal(true, args), "");
}

TEST(MergeArguments, PartsMayBeRowsOfOneBuffer) {
  // [rows, parts, dim]: the parts of a row lie beside each other, statistics behind each o.
  splitkv_merge_args args = right_args(false);
  args.o_stride_part = args.statistics_stride_part = 65;
  args.o_stride_row = args.statistics_stride_row = 3 * 65;
  args.s_or_m = place(0, 64);
  args.out = place(0);
  args.out_s_or_m = place(0, 64);
  args.out_stride_row = args.out_statistics_stride_row = 3 * 65;
  EXPECT_EQ(refusal(false, args), "");
}

// Version 0.1.0's first header had tensors without scales and what follows them.
struct OlderTensors {
  size_t size;
  const void *k, *v;
  int64_t strides[6];
};
struct OlderBinding {
  size_t size;
  OlderTensors tensors;
  uint64_t kernel_id;
};

TEST(Bindings, OfAnOlderHeaderKeepTheirKernel) {
  splitkv_binding bound = SPLITKV_INIT(splitkv_binding);
  bound.tensors.size = sizeof(splitkv_tensors);
  bound.tensors.k = place(0);
  bound.tensors.v_stride_token = 77;
  bound.kernel_id = 0x123456789abcdef0;
  OlderBinding older{};
  older.size = sizeof(older);
  auto* out = reinterpret_cast<splitkv_binding*>(&older);
  ASSERT_TRUE(write_binding(bound, out).ok());
  EXPECT_EQ(older.size, sizeof(older));
  EXPECT_EQ(older.tensors.size, sizeof(OlderTensors));
  EXPECT_EQ(older.kernel_id, bound.kernel_id);
  const auto read = read_binding(out);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->kernel_id, bound.kernel_id);
  EXPECT_EQ(read->tensors.k, bound.tensors.k);
  EXPECT_EQ(read->tensors.v_stride_token, 77);
  EXPECT_EQ(read->tensors.sink, nullptr);
  // Tensors that it has no room for are refused, not dropped.
  bound.tensors.sink = place(1);
  EXPECT_FALSE(write_binding(bound, out).ok());
}

TEST(Bindings, OfThisHeaderAreCopiedWhole) {
  splitkv_binding bound = SPLITKV_INIT(splitkv_binding);
  bound.tensors.size = sizeof(splitkv_tensors);
  bound.tensors.params[7] = place(3);
  bound.kernel_id = 5;
  splitkv_binding copy = SPLITKV_INIT(splitkv_binding);
  ASSERT_TRUE(write_binding(bound, &copy).ok());
  EXPECT_EQ(std::memcmp(&copy, &bound, sizeof(copy)), 0);
  const auto read = read_binding(&copy);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->tensors.params[7], bound.tensors.params[7]);
}

}  // namespace
}  // namespace splitkv
