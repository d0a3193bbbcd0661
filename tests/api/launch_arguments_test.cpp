// Every field of tensors and arguments against the problem that wants it or does not, and what
// becomes of them in the argument of kernels. Nothing is compiled or run: bind and make_launch look
// at values only.
#include <gtest/gtest.h>

#include <functional>

#include "compiler/score.hpp"
#include "compiler/text.hpp"
#include "runtime/launch.hpp"

namespace splitkv {
namespace {

// Places in memory that nobody touches, far apart; 0 is the first.
template <class T = void>
T* place(int64_t i, int64_t byte = 0) {
  return reinterpret_cast<T*>((i + 1) * 0x100000000 + byte);
}

class FakeErrors final : public ErrorMemory {
 public:
  ErrorRecord* host() const override { return place<ErrorRecord>(30); }
  ErrorRecord* device() const override { return place<ErrorRecord>(31); }
};

// A step with everything that its problem wants, on made-up addresses.
struct Step {
  PreparedKernel kernel;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  splitkv_args args = SPLITKV_INIT(splitkv_args);

  explicit Step(const std::string& words) {
    kernel.problem = *parse_problem("q=fp16 heads=4/2 dim=32 " + words);
    kernel.schedule = *parse_schedule(
        "schedule family=simt tile=64 rows=4 partition=fixed splits=2 reduce=last_block");
    kernel.target = *parse_target("cuda:sm_90a");
    kernel.binding_id = 7;
    if (kernel.problem.checked == Checked::on) kernel.errors = std::make_shared<FakeErrors>();
    fill_tensors();
    fill_args();
  }

  void fill_tensors() {
    const Problem& p = kernel.problem;
    tensors = *dense_strides(p, 64);
    tensors.k = place(0);
    if (!p.v_in_k) tensors.v = place(1);
    const auto has_array = [](KvScale scale) {
      return scale == KvScale::tensor || scale == KvScale::head || scale == KvScale::token;
    };
    if (has_array(p.k_scale)) tensors.k_scale = place<float>(2);
    if (has_array(p.v_scale) && !p.v_in_k) tensors.v_scale = place<float>(3);
    if (p.alibi) tensors.alibi_slopes = place<float>(4);
    if (p.sink) tensors.sink = place<float>(5);
    for (size_t i = 0; i < p.params.size(); ++i) tensors.params[i] = place<float>(20 + int(i));
  }

  void fill_args() {
    const Problem& p = kernel.problem;
    args.batch = 3;
    args.q = place(6);
    if (p.dim_rope > 0) args.q_rope = place(7);
    args.out = place(8);
    if (p.lse != LseOutput::none || p.out_partial) args.lse = place<float>(9);
    if (p.out_partial && p.merge == Merge::mlo) args.partial_l = place<float>(10);
    args.kv_len = place(11);
    if (p.ragged) {
      args.q_offset = place<int32_t>(19);
      args.query_rows = 6;
    }
    if (is_paged(p)) {
      args.page_table = place<int32_t>(12);
      args.page_table_stride = 5;
    }
    if (p.separate_tables) {
      args.v_page_table = place<int32_t>(13);
      args.v_page_table_stride = 6;
    }
    if (p.strided_positions) {
      args.total_len = place<int32_t>(14);
      args.pos_step = 4;
      args.pos0 = 1;
    }
    if (p.bias) args.bias = place(15);
    if (p.mask == Mask::tree) {
      args.tree = place<uint8_t>(16);
      args.tree_stride_query = 8;
    }
    args.scratch = place(17);
    args.scratch_bytes = 1 << 24;
    args.state = place(18);
    args.state_bytes = 1 << 20;
  }

  // The message of whichever of the two refuses; empty: neither does.
  std::string refusal() const {
    const auto binding = bind(kernel, tensors);
    if (!binding) return binding.error().message;
    const auto launch = make_launch(kernel, *binding, args);
    return launch ? "" : launch.error().message;
  }
  LaunchArgs launch() const {
    const auto binding = bind(kernel, tensors);
    EXPECT_TRUE(binding.ok()) << binding.error().message;
    const auto launch = make_launch(kernel, *binding, args);
    EXPECT_TRUE(launch.ok()) << launch.error().message;
    return launch->args;
  }
};

struct Wrong {
  const char* words;
  std::function<void(splitkv_tensors&, splitkv_args&)> spoil;
  const char* message;
};

using T = splitkv_tensors;
using A = splitkv_args;
const Wrong kWrong[] = {
    {"", [](T& t, A&) { t.k_scale = place<float>(2); }, "tensors.k_scale="},
    {"", [](T& t, A&) { t.v_scale_stride_token = 1; }, "tensors.v_scale_stride_token=1"},
    {"kv_scale=head", [](T& t, A&) { t.k_scale = nullptr; }, "tensors.k_scale is NULL"},
    {"kv_scale=head", [](T& t, A&) { t.v_scale = place<float>(2, 2); },
     "is not aligned to 4 bytes; float [kv_heads]"},
    {"kv_scale=head", [](T& t, A&) { t.k_scale_stride_head = 1; },
     "tensors.k_scale_stride_head=1 is given, but only scales of tokens have strides"},
    {"kv_scale=inline align=4", [](T& t, A&) { t.k_scale = place<float>(2); },
     "inline scales lie in the rows"},
    {"v_in_k=on", [](T& t, A&) { t.v = place(1); }, "the problem has v_in_k=on; NULL"},
    {"v_in_k=on", [](T& t, A&) { t.v_stride_block = 4; }, "tensors.v_stride_block=4"},
    {"v_in_k=on kv_scale=head", [](T& t, A&) { t.v_scale = place<float>(3); },
     "V is part of K and has K's scale"},
    {"", [](T& t, A&) { t.alibi_slopes = place<float>(4); }, "alibi=on, would fit"},
    {"alibi=on", [](T& t, A&) { t.alibi_slopes = nullptr; }, "tensors.alibi_slopes is NULL"},
    {"", [](T& t, A&) { t.sink = place<float>(4); }, "sink=on, would fit"},
    {"sink=on", [](T& t, A&) { t.sink = nullptr; }, "tensors.sink is NULL; float [q_heads]"},
    {"", [](T& t, A&) { t.params[0] = place<float>(4); }, "tensors.params[0]="},
    {"params=w:row score=score*w", [](T& t, A&) { t.params[0] = nullptr; },
     "tensors.params[0] is NULL; the value of w, float [batch]"},
    {"params=w:row score=score*w", [](T& t, A&) { t.params[1] = place<float>(4); },
     "tensors.params[1]="},
    {"kv_scale=inline align=4 kv=e4m3", [](T& t, A&) { t.k_stride_token = 35; },
     "tensors.k_stride_token=35 elements of 1 bytes is no multiple of the problem's align=4"},
    {"", [](T&, A& a) { a.q_rope = place(7); }, "args.q_rope="},
    {"q_rope=8", [](T&, A& a) { a.q_rope = nullptr; }, "args.q_rope is NULL"},
    {"", [](T&, A& a) { a.query_rows = 4; }, "args.query_rows=4 is given without q_offset"},
    {"", [](T&, A& a) { a.q_offset = place<int32_t>(19); }, "args.q_offset="},
    {"ragged=on", [](T&, A& a) { a.q_offset = nullptr; }, "args.q_offset is NULL"},
    {"ragged=on", [](T&, A& a) { a.q_offset = place<int32_t>(19, 2); }, "args.q_offset="},
    {"ragged=on",
     [](T&, A& a) {
       a.q_offset = place<int32_t>(19);
       a.query_rows = -1;
     },
     "args.query_rows=-1"},
    {"", [](T&, A& a) { a.lse = place<float>(9); }, "the problem has lse=none"},
    {"out=partial", [](T&, A& a) { a.lse = nullptr; }, "args.lse is NULL"},
    {"out=partial merge=lse", [](T&, A& a) { a.partial_l = place<float>(10); }, "args.partial_l="},
    {"out=partial merge=mlo", [](T&, A& a) { a.partial_l = nullptr; }, "args.partial_l is NULL"},
    {"", [](T&, A& a) { a.kv_len_is_int64 = 2; }, "args.kv_len_is_int64=2"},
    {"",
     [](T&, A& a) {
       a.kv_len_is_int64 = 1;
       a.kv_len = place(11, 4);
     },
     "is not aligned to 8 bytes; int64 [batch]"},
    {"", [](T&, A& a) { a.kv_len_host = 5; }, "args.kv_len_host=5 is given beside kv_len"},
    {"",
     [](T&, A& a) {
       a.kv_len = nullptr;
       a.kv_len_host = -1;
     },
     "args.kv_len_host=-1 is negative"},
    {"",
     [](T&, A& a) {
       a.kv_len = nullptr;
       a.kv_len_is_int64 = 1;
     },
     "args.kv_len is NULL, but kv_len_is_int64=1"},
    {"", [](T&, A& a) { a.kv_begin = place<int32_t>(19, 1); }, "args.kv_begin="},
    {"", [](T&, A& a) { a.total_len = place<int32_t>(14); }, "positions=contiguous"},
    {"", [](T&, A& a) { a.pos_step = 1; }, "args.pos0=0 and pos_step=1"},
    {"positions=strided", [](T&, A& a) { a.total_len = nullptr; }, "args.total_len is NULL"},
    {"positions=strided", [](T&, A& a) { a.pos_step = 0; }, "args.pos_step=0"},
    {"positions=strided", [](T&, A& a) { a.pos0 = -1; }, "args.pos0=-1"},
    {"kv_layout=paged:16:nhd", [](T&, A& a) { a.v_page_table = place<int32_t>(13); },
     "args.v_page_table="},
    {"kv_layout=paged:16:nhd page_tables=separate", [](T&, A& a) { a.v_page_table = nullptr; },
     "args.v_page_table is NULL"},
    {"kv_layout=paged:16:nhd page_tables=separate", [](T&, A& a) { a.v_page_table_stride = 0; },
     "args.v_page_table_stride=0 gives all rows one page list"},
    {"", [](T&, A& a) { a.bias = place(15); }, "args.bias="},
    {"bias=fp32", [](T&, A& a) { a.bias = nullptr; }, "args.bias is NULL"},
    {"bias=fp32", [](T&, A& a) { a.bias = place(15, 2); }, "is not aligned to 4 bytes"},
    {"query_len=2", [](T&, A& a) { a.tree = place<uint8_t>(16); }, "args.tree="},
    {"query_len=2 mask=tree", [](T&, A& a) { a.tree = nullptr; }, "args.tree is NULL"},
    {"query_len=9 mask=tree", [](T&, A& a) { a.tree_stride_query = 1; },
     "args.tree_stride_query=1 bytes is less than the 2"},
    {"", [](T&, A& a) { a.page_count = -1; }, "args.page_count=-1"},
    {"", [](T&, A& a) { a.kv_capacity = -5; }, "args.kv_capacity=-5"},
    {"query_len=2",
     [](T&, A& a) {
       a.out_stride_batch = 4 * 32;
       a.out_stride_head = 32;
     },
     "args.out_stride_batch=128"},
    {"query_len=2 lse=natural", [](T&, A& a) { a.lse_stride_query = 3; },
     "args.lse_stride_query=3"},
    {"", [](T&, A& a) { a.out = const_cast<void*>(a.q); }, "overlaps args.q="},
    {"lse=natural", [](T&, A& a) { a.lse = static_cast<float*>(a.out) + 4; }, "overlaps args.lse="},
    {"", [](T&, A& a) { a.out = const_cast<void*>(a.kv_len); }, "overlaps args.kv_len="},
    {"", [](T& t, A& a) { a.out = const_cast<void*>(t.k); }, "overlaps tensors.k="},
    {"", [](T&, A& a) { a.state = static_cast<char*>(a.scratch) + 64; }, "overlaps args.state="},
};

TEST(LaunchArguments, EachWrongOneIsRefusedByNameAndValue) {
  for (const Wrong& wrong : kWrong) {
    Step step(wrong.words);
    ASSERT_EQ(step.refusal(), "") << wrong.words;
    wrong.spoil(step.tensors, step.args);
    const std::string message = step.refusal();
    EXPECT_NE(message.find(wrong.message), std::string::npos)
        << wrong.words << " | wanted: " << wrong.message << " | got: " << message;
    EXPECT_NE(message.find("would fit"), std::string::npos) << message;
  }
}

TEST(LaunchArguments, CarryEveryPointer) {
  const Step step(
      "k=e4m3 v=int8 k_scale=token v_scale=head q_rope=8 query_len=3 alibi=on sink=on bias=fp16 "
      "params=a:scalar,b:head score=score*a+b kv_layout=paged:16:nhd page_tables=separate "
      "lse=natural checked=on");
  const LaunchArgs launch = step.launch();
  EXPECT_EQ(launch.k, place(0));
  EXPECT_EQ(launch.v, place(1));
  EXPECT_EQ(launch.k_scale, place<float>(2));
  EXPECT_EQ(launch.v_scale, place<float>(3));
  EXPECT_EQ(launch.k_scale_stride_block, 16 * 2);
  EXPECT_EQ(launch.k_scale_stride_token, 2);
  EXPECT_EQ(launch.k_scale_stride_head, 1);
  EXPECT_EQ(launch.params[0], place<float>(20));
  EXPECT_EQ(launch.params[1], place<float>(21));
  EXPECT_EQ(launch.params[alibi_param(step.kernel.problem)], place<float>(4));
  EXPECT_EQ(launch.sink, place<float>(5));
  EXPECT_EQ(launch.q, place(6));
  EXPECT_EQ(launch.q_rope, place(7));
  EXPECT_EQ(launch.out, place(8));
  EXPECT_EQ(launch.lse, place<float>(9));
  EXPECT_EQ(launch.kv_len, place(11));
  EXPECT_EQ(launch.kv_len_bytes, 4);
  EXPECT_EQ(launch.page_table, place<int32_t>(12));
  EXPECT_EQ(launch.page_table_stride, 5);
  EXPECT_EQ(launch.v_page_table, place<int32_t>(13));
  EXPECT_EQ(launch.v_page_table_stride, 6);
  EXPECT_EQ(launch.bias, place(15));
  EXPECT_EQ(launch.errors, place<ErrorRecord>(31));
  EXPECT_EQ(launch.partials, place<float>(17));
  EXPECT_EQ(launch.arrivals, place<uint32_t>(18));
  EXPECT_EQ(launch.batch, 3);
  EXPECT_EQ(launch.splits, 2);
}

TEST(LaunchArguments, StridesOfZeroAreDense) {
  const LaunchArgs launch = Step("query_len=3 q_rope=8 lse=natural").launch();
  EXPECT_EQ(launch.q_stride_head, 24);
  EXPECT_EQ(launch.q_stride_query, 4 * 24);
  EXPECT_EQ(launch.q_stride_batch, 3 * 4 * 24);
  EXPECT_EQ(launch.q_rope_stride_head, 8);
  EXPECT_EQ(launch.q_rope_stride_batch, 3 * 4 * 8);
  EXPECT_EQ(launch.out_stride_head, 32);
  EXPECT_EQ(launch.out_stride_query, 4 * 32);
  EXPECT_EQ(launch.out_stride_batch, 3 * 4 * 32);
  EXPECT_EQ(launch.lse_stride_head, 1);
  EXPECT_EQ(launch.lse_stride_query, 4);
  EXPECT_EQ(launch.lse_stride_batch, 12);
}

TEST(LaunchArguments, SequencesAreNumberedIn32Bits) {
  Step step("");
  step.kernel.schedule = *parse_schedule(
      "schedule family=simt tile=64 rows=1 partition=flat blocks=4 reduce=last_block");
  step.args.batch = 1 << 30;  // x 2 kv heads x 2 row blocks
  EXPECT_NE(step.refusal().find("args.batch=1073741824 makes 4294967296 sequences"),
            std::string::npos)
      << step.refusal();
}

TEST(LaunchArguments, RaggedRowsHaveNoBatchStride) {
  Step step("query_len=3 ragged=on lse=natural");
  step.args.q_offset = place<int32_t>(19);
  step.args.query_rows = 7;
  step.args.out_stride_head = 40;
  step.args.lse_stride_query = 9;
  const LaunchArgs launch = step.launch();
  EXPECT_EQ(launch.q_offset, place<int32_t>(19));
  EXPECT_EQ(launch.query_rows, 7);
  EXPECT_EQ(launch.q_stride_batch, 0);
  EXPECT_EQ(launch.q_stride_query, 4 * 32);
  EXPECT_EQ(launch.out_stride_head, 40);
  EXPECT_EQ(launch.out_stride_query, 160);
  EXPECT_EQ(launch.lse_stride_head, 1);
  EXPECT_EQ(launch.lse_stride_query, 9);
}

TEST(LaunchArguments, VWithinKIsKWithKsStridesAndScale) {
  const LaunchArgs launch = Step("kv=e4m3 v_in_k=on kv_scale=token").launch();
  EXPECT_EQ(launch.v, launch.k);
  EXPECT_EQ(launch.v_scale, launch.k_scale);
  EXPECT_NE(launch.k_scale, nullptr);
  EXPECT_EQ(launch.v_stride_block, launch.k_stride_block);
  EXPECT_EQ(launch.v_stride_token, 32);
  EXPECT_EQ(launch.v_scale_stride_block, launch.k_scale_stride_block);
  EXPECT_GT(launch.v_scale_stride_block, 0);
}

TEST(LaunchArguments, RowsWithAnInlineScaleAreFilledUpToTheAlignment) {
  const auto strides = [](const char* words) {
    return *dense_strides(
        *parse_problem(std::string("q=fp16 kv=e4m3 heads=2 dim=128 kv_layout=bthd ") + words), 10);
  };
  EXPECT_EQ(strides("kv_scale=inline align=4").k_stride_head, 132);
  EXPECT_EQ(strides("kv_scale=inline align=16").k_stride_head, 144);
  EXPECT_EQ(strides("v_scale=inline align=4").k_stride_head, 128);
  EXPECT_EQ(strides("v_scale=inline align=4").v_stride_token, 264);
}

TEST(LaunchArguments, LengthsMayBe64BitsWideOrAScalar) {
  Step step("");
  step.args.kv_len_is_int64 = 1;
  EXPECT_EQ(step.launch().kv_len_bytes, 8);
  step.args.kv_len_is_int64 = 0;
  step.args.kv_len = nullptr;
  step.args.kv_len_host = 33;
  EXPECT_EQ(step.launch().kv_len, nullptr);
  EXPECT_EQ(step.launch().kv_len_host, 33);
  step.args.kv_len_host = 0;
  EXPECT_EQ(step.refusal(), "");
}

// Rows of out and of its log-sum-exps in one buffer, and q beside out in one row of all heads: the
// ranges overlap, the rows do not.
TEST(LaunchArguments, TensorsMayLieBetweenEachOthersRows) {
  Step step("out=fp32 lse=natural");
  step.args.out = place(8);
  step.args.out_stride_head = 33;
  step.args.out_stride_batch = 4 * 33;
  step.args.lse = place<float>(8, 32 * 4);
  step.args.lse_stride_head = 33;
  step.args.lse_stride_batch = 4 * 33;
  EXPECT_EQ(step.refusal(), "");
  step.args.lse = place<float>(8, 31 * 4);
  EXPECT_NE(step.refusal().find("overlaps args.lse="), std::string::npos) << step.refusal();

  Step fused("");
  fused.args.q = place(8);
  fused.args.q_stride_head = fused.args.out_stride_head = 32;
  fused.args.q_stride_batch = fused.args.out_stride_batch = 300;
  fused.args.out = place(8, 4 * 32 * 2);
  EXPECT_EQ(fused.refusal(), "");
  fused.args.out = place(8, 4 * 32 * 2 - 2);
  EXPECT_NE(fused.refusal().find("overlaps args.q="), std::string::npos);
}

}  // namespace
}  // namespace splitkv
