// Every argument of a run, a bind and a prepare that is wrong, one at a time: the status, and the
// field and value in the message.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

constexpr const char* kSchedule = "partition=fixed splits=3 reduce=last_block merge=mlo";

// A prepared kernel, shared by all cases of the suite that have the same problem words.
struct Prepared {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step;

  explicit Prepared(const std::string& words = "") : step({5, 0, 130}, words) {
    const Answer answer = prepare(runtime.get(), "cpu", step.problem, kSchedule, &kernel);
    EXPECT_TRUE(answer.ok()) << answer;
    const Answer attached = step.attach(kernel.get());
    EXPECT_TRUE(attached.ok()) << attached;
  }

  Answer run(void* stream = nullptr) const {
    return answer_of([&](splitkv_message* m) {
      return splitkv_run(kernel.get(), &step.binding, &step.args, stream, m);
    });
  }
};

TEST(StateInit, RefusesWhatCannotBeAState) {
  Prepared prepared;
  ASSERT_NE(prepared.kernel, nullptr);
  alignas(16) unsigned char memory[64];
  std::fill(std::begin(memory), std::end(memory), 0xee);
  const auto init = [&](void* state, size_t bytes) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_state_init(prepared.kernel.get(), state, bytes, nullptr, m);
    });
  };
  struct Wrong {
    void* state;
    size_t bytes;
    const char* named;
  };
  const Wrong wrongs[] = {
      {memory, size_t(int64_t(-8)), "state_bytes=18446744073709551608 is a negative number"},
      {memory, 30, "state_bytes=30 is no whole number"},
      {nullptr, 32, "state is NULL with state_bytes=32"},
      {memory + 2, 32, "is not aligned to 4 bytes"},
  };
  for (const Wrong& wrong : wrongs) {
    const Answer answer = init(wrong.state, wrong.bytes);
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << wrong.named;
    EXPECT_TRUE(answer.says(wrong.named)) << answer;
    EXPECT_TRUE(answer.says("would fit")) << answer;
  }
  for (const unsigned char byte : memory) ASSERT_EQ(byte, 0xee) << "a refused call wrote";
  EXPECT_TRUE(init(memory + 4, 32).ok());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(memory[i], i >= 4 && i < 36 ? 0 : 0xee) << i;
  EXPECT_TRUE(init(nullptr, 0).ok());
}

struct WrongArgument {
  std::string name;
  std::function<void(DecodeCase&)> spoil;
  std::string expected;  // in the message
};

void PrintTo(const WrongArgument& wrong, std::ostream* out) { *out << wrong.name; }

float* shifted(float* pointer, int bytes) {
  return reinterpret_cast<float*>(reinterpret_cast<char*>(pointer) + bytes);
}

class RunRefuses : public testing::TestWithParam<WrongArgument> {};

TEST_P(RunRefuses, TheArgumentAndNamesFieldAndValue) {
  Prepared prepared;
  ASSERT_NE(prepared.kernel, nullptr);
  ASSERT_TRUE(prepared.run().ok());
  prepared.step.out.fill(NAN);
  GetParam().spoil(prepared.step);
  const Answer answer = prepared.run();
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << answer;
  EXPECT_TRUE(answer.says(GetParam().expected)) << answer;
  for (const float value : prepared.step.out.values()) {
    ASSERT_TRUE(std::isnan(value)) << "the refused run wrote";
  }
}

using C = DecodeCase;
INSTANTIATE_TEST_SUITE_P(
    Arguments, RunRefuses,
    testing::Values(
        WrongArgument{"negative batch", [](C& c) { c.args.batch = -2; }, "args.batch=-2"},
        WrongArgument{"huge batch", [](C& c) { c.args.batch = int64_t(1) << 31; },
                      "args.batch=2147483648"},
        WrongArgument{"no q", [](C& c) { c.args.q = nullptr; }, "args.q is NULL"},
        WrongArgument{"no out", [](C& c) { c.args.out = nullptr; }, "args.out is NULL"},
        WrongArgument{"no lse", [](C& c) { c.args.lse = nullptr; }, "args.lse is NULL"},
        WrongArgument{"a negative scalar length",
                      [](C& c) {
                        c.args.kv_len = nullptr;
                        c.args.kv_len_host = -1;
                      },
                      "args.kv_len_host=-1"},
        WrongArgument{"out over q", [](C& c) { c.args.out = c.q.data(); }, "overlaps args.q="},
        WrongArgument{"odd q", [](C& c) { c.args.q = shifted(c.q.data(), 2); },
                      "is not aligned to 4 bytes"},
        WrongArgument{"odd out", [](C& c) { c.args.out = shifted(c.out.data(), 1); }, "args.out="},
        WrongArgument{"a page table", [](C& c) { c.args.page_table = c.kv_len.data(); },
                      "args.page_table="},
        WrongArgument{"overlapping heads",
                      [](C& c) {
                        c.args.out_stride_batch = 128;
                        c.args.out_stride_head = 31;
                      },
                      "args.out_stride_head=31"},
        WrongArgument{"overlapping rows", [](C& c) { c.args.out_stride_head = 32; },
                      "args.out_stride_batch=0"},
        WrongArgument{"overlapping lse", [](C& c) { c.args.lse_stride_head = 1; },
                      "args.lse_stride_batch=0"},
        WrongArgument{"no scratch", [](C& c) { c.args.scratch = nullptr; },
                      "args.scratch is NULL for batch=3"},
        WrongArgument{"small scratch", [](C& c) { c.args.scratch_bytes -= 1; },
                      "args.scratch_bytes="},
        WrongArgument{"odd scratch",
                      [](C& c) { c.args.scratch = static_cast<char*>(c.args.scratch) + 8; },
                      "is not aligned to 16 bytes"},
        WrongArgument{"no state", [](C& c) { c.args.state = nullptr; }, "args.state is NULL"},
        WrongArgument{"small state", [](C& c) { c.args.state_bytes = 20; },
                      "args.state_bytes=20 is too small for batch=3; state_bytes=24"},
        WrongArgument{"another binding", [](C& c) { c.binding.kernel_id += 1; },
                      "binding.kernel_id="},
        WrongArgument{"unset args", [](C& c) { c.args.size = 0; }, "args.size=0"},
        WrongArgument{"unset binding", [](C& c) { c.binding.size = 0; }, "binding.size=0"}));

TEST(RunArguments, NeededScratchIsNamedInBytesAndSuffices) {
  Prepared prepared;
  const size_t needed = prepared.step.args.scratch_bytes;
  ASSERT_GT(needed, 0u);
  prepared.step.args.scratch_bytes = needed - 1;
  EXPECT_TRUE(prepared.run().says("scratch_bytes=" + std::to_string(needed) + " or more"));
  prepared.step.args.scratch_bytes = needed;
  EXPECT_TRUE(prepared.run().ok());
}

TEST(RunArguments, NullHandlesAreNamed) {
  Prepared prepared;
  const C& step = prepared.step;
  splitkv_kernel* kernel = prepared.kernel.get();
  const auto run = [](const splitkv_kernel* k, const splitkv_binding* b, const splitkv_args* a) {
    return answer_of([&](splitkv_message* m) { return splitkv_run(k, b, a, nullptr, m); });
  };
  EXPECT_TRUE(run(nullptr, &step.binding, &step.args).says("kernel is NULL"));
  EXPECT_TRUE(run(kernel, nullptr, &step.args).says("binding is NULL"));
  EXPECT_TRUE(run(kernel, &step.binding, nullptr).says("args is NULL"));
}

TEST(RunArguments, AStreamIsRefusedOnTheCpu) {
  Prepared prepared;
  const Answer answer = prepared.run(&prepared);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("stream=")) << answer;
}

TEST(RunArguments, AnEmptyBatchIsDoneWithoutPointers) {
  Prepared prepared;
  prepared.step.args = SPLITKV_INIT(splitkv_args);
  EXPECT_TRUE(prepared.run().ok());
}

TEST(RunArguments, AnLseThatTheProblemDoesNotHaveIsRefused) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step({5});
  ASSERT_TRUE(
      prepare(runtime.get(), "cpu", "attention q=fp32 heads=4/2 dim=32", nullptr, &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  const auto run = [&] {
    return answer_of([&](splitkv_message* m) {
      return splitkv_run(kernel.get(), &step.binding, &step.args, nullptr, m);
    });
  };
  EXPECT_TRUE(run().says("lse=none")) << run();
  step.args.lse = nullptr;
  EXPECT_TRUE(run().ok()) << run();
}

TEST(RunArguments, PagesNeedATableWithAStride) {
  Prepared prepared("kv_layout=paged:16:nhd");
  ASSERT_NE(prepared.kernel, nullptr);
  EXPECT_TRUE(prepared.run().says("args.page_table is NULL"));
  std::vector<int32_t> pages(3 * 9, 0);
  prepared.step.args.page_table = pages.data();
  EXPECT_TRUE(prepared.run().says("args.page_table_stride=0"));
}

struct WrongTensor {
  std::string name;
  std::function<void(splitkv_tensors&)> spoil;
  std::string expected;
};

void PrintTo(const WrongTensor& wrong, std::ostream* out) { *out << wrong.name; }

class BindRefuses : public testing::TestWithParam<WrongTensor> {};

TEST_P(BindRefuses, TheTensorAndNamesFieldAndValue) {
  Prepared prepared;
  splitkv_tensors tensors = prepared.step.tensors;
  GetParam().spoil(tensors);
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_bind(prepared.kernel.get(), &tensors, &binding, m);
  });
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << answer;
  EXPECT_TRUE(answer.says(GetParam().expected)) << answer;
}

using T = splitkv_tensors;
INSTANTIATE_TEST_SUITE_P(
    Tensors, BindRefuses,
    testing::Values(
        WrongTensor{"no k", [](T& t) { t.k = nullptr; }, "tensors.k is NULL"},
        WrongTensor{"no v", [](T& t) { t.v = nullptr; }, "tensors.v is NULL"},
        WrongTensor{"odd k", [](T& t) { t.k = static_cast<const char*>(t.k) + 8; },
                    "align=16 bytes"},
        WrongTensor{"odd v", [](T& t) { t.v = static_cast<const char*>(t.v) + 4; }, "tensors.v="},
        WrongTensor{"k block", [](T& t) { t.k_stride_block += 2; }, "tensors.k_stride_block="},
        WrongTensor{"k head", [](T& t) { t.k_stride_head = 35; }, "tensors.k_stride_head=35"},
        WrongTensor{"k token", [](T& t) { t.k_stride_token = 33; }, "tensors.k_stride_token=33"},
        WrongTensor{"v block", [](T& t) { t.v_stride_block += 1; }, "tensors.v_stride_block="},
        WrongTensor{"v head", [](T& t) { t.v_stride_head = 34; }, "tensors.v_stride_head=34"},
        WrongTensor{"v token", [](T& t) { t.v_stride_token = -3; }, "tensors.v_stride_token=-3"},
        WrongTensor{"unset", [](T& t) { t.size = 0; }, "tensors.size=0"}));

TEST(BindArguments, AWeakerAlignmentClassTakesWhatAStrongerRefuses) {
  Prepared prepared("align=4");
  splitkv_tensors tensors = prepared.step.tensors;
  tensors.k = static_cast<const char*>(tensors.k) + 4;
  tensors.k_stride_token = 33;
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_bind(prepared.kernel.get(), &tensors, &binding, m);
  });
  EXPECT_TRUE(answer.ok()) << answer;
}

struct WrongRequest {
  std::string device, problem, schedule;
  splitkv_status status;
  std::string expected;
};

void PrintTo(const WrongRequest& wrong, std::ostream* out) { *out << wrong.expected; }

class PrepareRefuses : public testing::TestWithParam<WrongRequest> {};

TEST_P(PrepareRefuses, TheTextAndSaysWhatWouldFit) {
  const WrongRequest& wrong = GetParam();
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const Answer answer =
      prepare(runtime.get(), wrong.device, wrong.problem, wrong.schedule.c_str(), &kernel);
  EXPECT_EQ(answer.status, wrong.status) << answer;
  EXPECT_TRUE(answer.says(wrong.expected)) << answer;
  EXPECT_EQ(kernel, nullptr);
}

constexpr const char* kProblem = "attention q=fp32 heads=4/2 dim=32";
INSTANTIATE_TEST_SUITE_P(
    Texts, PrepareRefuses,
    testing::Values(
        WrongRequest{"gpu", kProblem, "", SPLITKV_INVALID_ARGUMENT, "device=gpu"},
        WrongRequest{"cpu:no-such-cpu", kProblem, "", SPLITKV_INVALID_ARGUMENT, "no-such-cpu"},
        WrongRequest{"cpu", "attention q=fp99 heads=4 dim=32", "", SPLITKV_INVALID_ARGUMENT,
                     "q=fp99"},
        WrongRequest{"cpu", "attention q=fp32 heads=4/3 dim=32", "", SPLITKV_UNSUPPORTED,
                     "heads=4/3"},
        WrongRequest{"cpu", kProblem, "splits=many", SPLITKV_INVALID_ARGUMENT,
                     "in the schedule argument: splits=many"},
        WrongRequest{"cpu", kProblem, "family=simt", SPLITKV_UNSUPPORTED, "family=simt"}));

TEST(PrepareArguments, NullsAndNegativeHintsAreNamed) {
  RuntimeOwner runtime = open_runtime();
  splitkv_kernel* kernel = nullptr;
  splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
  const auto prepare_with = [&](splitkv_runtime* r, const char* device, const char* problem,
                                splitkv_kernel** out) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_prepare(r, device, problem, &workload, nullptr, out, m);
    });
  };
  EXPECT_TRUE(prepare_with(nullptr, "cpu", kProblem, &kernel).says("runtime is NULL"));
  EXPECT_TRUE(prepare_with(runtime.get(), nullptr, kProblem, &kernel).says("device is NULL"));
  EXPECT_TRUE(prepare_with(runtime.get(), "cpu", nullptr, &kernel).says("problem is NULL"));
  EXPECT_TRUE(prepare_with(runtime.get(), "cpu", kProblem, nullptr).says("kernel is NULL"));
  workload.batch = -1;
  EXPECT_TRUE(prepare_with(runtime.get(), "cpu", kProblem, &kernel).says("workload.batch=-1"));
  workload.batch = 0;
  workload.kv_len = -7;
  EXPECT_TRUE(prepare_with(runtime.get(), "cpu", kProblem, &kernel).says("workload.kv_len=-7"));
  EXPECT_EQ(kernel, nullptr);
}

TEST(RunPartArguments, PartsThatDoNotExistAndSecondPassesAreRefused) {
  Prepared prepared;
  const auto part = [&](const splitkv_kernel* kernel, int64_t part, int64_t parts) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_run_part(kernel, &prepared.step.binding, &prepared.step.args, part, parts, m);
    });
  };
  EXPECT_TRUE(part(prepared.kernel.get(), 2, 2).says("part=2 of parts=2"));
  EXPECT_TRUE(part(prepared.kernel.get(), -1, 2).says("part=-1 of parts=2"));
  EXPECT_TRUE(part(prepared.kernel.get(), 0, 0).says("part=0 of parts=0"));
  KernelOwner two_passes;
  ASSERT_TRUE(prepare(prepared.runtime.get(), "cpu", prepared.step.problem,
                      "partition=fixed splits=3 reduce=kernel", &two_passes)
                  .ok());
  const Answer refused = part(two_passes.get(), 0, 1);
  EXPECT_EQ(refused.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(refused.says("reduce=last_block would fit")) << refused;
}

TEST(SizesArguments, ANegativeBatchIsRefusedAndZeroNeedsNothing) {
  Prepared prepared;
  splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
  const auto ask = [&](int64_t batch) {
    return answer_of(
        [&](splitkv_message* m) { return splitkv_sizes(prepared.kernel.get(), batch, &sizes, m); });
  };
  EXPECT_TRUE(ask(-1).says("max_batch=-1"));
  ASSERT_TRUE(ask(0).ok());
  EXPECT_EQ(sizes.scratch_bytes, 0u);
  EXPECT_EQ(sizes.state_bytes, 0u);
  EXPECT_GT(sizes.module_bytes, 0u);
}

}  // namespace
