// Arguments of an append, wrong ones refused by name, and what becomes of right ones in the
// argument of its kernel. Nothing is compiled or run.
#include <gtest/gtest.h>

#include <functional>

#include "compiler/text.hpp"
#include "runtime/append_launch.hpp"
#include "runtime/launch.hpp"

namespace splitkv {
namespace {

// Places in memory that nobody touches.
template <class T = void>
T* place(int64_t i, int64_t byte = 0) {
  return reinterpret_cast<T*>((i + 1) * 0x100000000 + byte);
}

struct Call {
  PreparedAppend prepared;
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  splitkv_append_args args = SPLITKV_INIT(splitkv_append_args);

  Call(const std::string& words, AppendPlaces places) {
    Problem problem = parse_problem("q=fp16 heads=4/2 dim=32/24 align=8 " + words).value();
    if (problem.checked == Checked::automatic) problem.checked = Checked::off;
    prepared.append = append_of(problem, DType::fp16, places);
    prepared.target = *parse_target("cuda:sm_90a");
    prepared.binding_id = binding.kernel_id = 7;
    binding.tensors = *dense_strides(problem, 64);
    binding.tensors.k = place(0);
    if (!problem.v_in_k) binding.tensors.v = place(1);
    if (problem.k_scale == KvScale::token) binding.tensors.k_scale = place<float>(2);
    args.tokens = 12;
    args.k_new = place(6);
    if (!problem.v_in_k) args.v_new = place(7);
    const bool paged = is_paged(problem), own = problem.separate_tables;
    if (places == AppendPlaces::slots) {
      args.slots = place<int64_t>(8);
      if (own) args.v_slots = place<int64_t>(9);
      if (!paged) args.slots_a_row = 64;
      return;
    }
    args.batch = 3;
    args.kv_len = place(10);
    if (paged) args.page_table = place<int32_t>(11), args.page_table_stride = 5;
    if (own) args.v_page_table = place<int32_t>(12), args.v_page_table_stride = 6;
  }

  Result<AppendArgs> make() const { return make_append(prepared, binding, args); }
  std::string refusal() const {
    const auto made = make();
    return made ? "" : made.error().message;
  }
};

using A = splitkv_append_args;
struct Wrong {
  std::function<void(A&)> spoil;
  const char* message;
};

void expect_refused(const Call& right, const std::vector<Wrong>& wrongs) {
  ASSERT_EQ(right.refusal(), "");
  for (const Wrong& wrong : wrongs) {
    Call call = right;
    wrong.spoil(call.args);
    const std::string message = call.refusal();
    EXPECT_NE(message.find(wrong.message), std::string::npos)
        << "wanted: " << wrong.message << " | got: " << message;
    EXPECT_NE(message.find("would fit"), std::string::npos) << message;
  }
}

TEST(AppendArguments, OfSlots) {
  expect_refused(Call("", AppendPlaces::slots),
                 {{[](A& a) { a.tokens = int64_t(1) << 31; }, "args.tokens=2147483648"},
                  {[](A& a) { a.k_new = nullptr; }, "args.k_new is NULL"},
                  {[](A& a) { a.k_new = place(6, 1); }, "is not aligned to 2 bytes"},
                  {[](A& a) { a.v_new = nullptr; }, "args.v_new is NULL"},
                  {[](A& a) { a.slots = nullptr; }, "args.slots is NULL"},
                  {[](A& a) { a.slots = place<int64_t>(8, 4); }, "is not aligned to 8 bytes"},
                  {[](A& a) { a.v_slots = place<int64_t>(9); }, "page_tables=separate"},
                  {[](A& a) { a.slots_a_row = 0; }, "args.slots_a_row=0"},
                  {[](A& a) { a.slot_count = -1; }, "args.slot_count=-1"},
                  {[](A& a) { a.token_count = place<int32_t>(9, 2); }, "args.token_count"},
                  {[](A& a) { a.q_offset = place<int32_t>(9); }, "args.q_offset"},
                  {[](A& a) { a.kv_len = place(9); }, "the appender has places=slots"},
                  {[](A& a) { a.page_table = place<int32_t>(9); }, "args.page_table"},
                  {[](A& a) { a.batch = 3; }, "args.batch=3"},
                  {[](A& a) { a.kv_capacity = 3; }, "args.kv_capacity=3"}});
  expect_refused(Call("kv_layout=paged:16:nhd page_tables=separate", AppendPlaces::slots),
                 {{[](A& a) { a.v_slots = nullptr; }, "args.v_slots is NULL"},
                  {[](A& a) { a.slots_a_row = 16; }, "slots are counted by pages"}});
  expect_refused(Call("v_in_k=on", AppendPlaces::slots),
                 {{[](A& a) { a.v_new = place(7); }, "the problem has v_in_k=on"},
                  {[](A& a) { a.v_new_stride_head = 4; }, "v_new_stride_head=4"}});
}

TEST(AppendArguments, OfRows) {
  expect_refused(Call("kv_layout=paged:16:nhd page_tables=separate", AppendPlaces::rows),
                 {{[](A& a) { a.batch = 0; }, "args.batch=0"},
                  {[](A& a) { a.batch = 5; }, "args.tokens=12 is no multiple of batch=5; 15"},
                  {[](A& a) { a.q_offset = place<int32_t>(9, 1); }, "args.q_offset"},
                  {[](A& a) { a.kv_len_is_int64 = 2; }, "args.kv_len_is_int64=2"},
                  {[](A& a) { a.kv_len = place(10, 2); }, "int32 [batch]"},
                  {[](A& a) { a.kv_len = place(10, 4), a.kv_len_is_int64 = 1; }, "int64 [batch]"},
                  {[](A& a) { a.kv_len_host = 4; }, "args.kv_len_host=4"},
                  {[](A& a) { a.kv_len = nullptr, a.kv_len_host = -1; }, "kv_len_host=-1"},
                  {[](A& a) { a.kv_len = nullptr; }, "args.kv_len is NULL with kv_len_host=0"},
                  {[](A& a) { a.page_table = nullptr; }, "args.page_table is NULL"},
                  {[](A& a) { a.page_table_stride = 0; }, "args.page_table_stride=0"},
                  {[](A& a) { a.page_offset = place<int64_t>(9, 4); }, "args.page_offset"},
                  {[](A& a) { a.v_page_table = nullptr; }, "args.v_page_table is NULL"},
                  {[](A& a) { a.slots = place<int64_t>(9); }, "the appender has places=rows"},
                  {[](A& a) { a.slots_a_row = 9; }, "args.slots_a_row=9"},
                  {[](A& a) { a.page_count = -1; }, "args.page_count=-1"},
                  {[](A& a) { a.kv_capacity = -2; }, "args.kv_capacity=-2"}});
  expect_refused(Call("", AppendPlaces::rows),
                 {{[](A& a) { a.page_table = place<int32_t>(9); }, "has no pages"},
                  {[](A& a) { a.v_page_table = place<int32_t>(9); }, "page_tables=shared"}});
}

TEST(AppendArguments, ABindingOfAnotherProblemIsRefused) {
  Call call("", AppendPlaces::slots);
  call.binding.kernel_id = 8;
  EXPECT_NE(call.refusal().find("binding.kernel_id=0x8 is of another problem"), std::string::npos)
      << call.refusal();
}

TEST(AppendArguments, AGridThatNoLaunchHoldsIsRefused) {
  Call call("", AppendPlaces::slots);
  call.prepared.append.kv_heads = 65536;
  call.args.tokens = 1 << 20;
  EXPECT_NE(call.refusal().find("blocks, above 2147483647"), std::string::npos) << call.refusal();
}

TEST(AppendArguments, BecomeThoseOfTheKernel) {
  Call call("kv=e4m3 kv_layout=paged:16:nhd k_scale=token", AppendPlaces::rows);
  call.args.token_count = place<int32_t>(13);
  call.args.v_new_stride_token = 1000;
  call.args.v_new_stride_head = 100;
  const auto made = call.make();
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->k_new, place(6));
  EXPECT_EQ(made->v, place(1));
  EXPECT_EQ(made->k_scale, place(2));
  EXPECT_EQ(made->k_new_stride_token, 2 * 32);  // dense
  EXPECT_EQ(made->k_new_stride_head, 32);
  EXPECT_EQ(made->v_new_stride_token, 1000);
  EXPECT_EQ(made->v_new_stride_head, 100);
  EXPECT_EQ(made->k_stride_block, 16 * 2 * 32);
  EXPECT_EQ(made->v_stride_token, 2 * 24);
  EXPECT_EQ(made->k_scale_stride_block, 32);
  EXPECT_EQ(made->tokens, 12);
  EXPECT_EQ(made->tokens_a_row, 4);
  EXPECT_EQ(made->batch, 3);
  EXPECT_EQ(made->kv_len_bytes, 4);
  EXPECT_EQ(made->page_table_stride, 5);
  EXPECT_EQ(made->token_count, place(13));
  EXPECT_EQ(made->errors, nullptr);
}

}  // namespace
}  // namespace splitkv
