// A decision taken by one runtime and used by others, whatever they would choose themselves.
#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";

std::string exported(const splitkv_kernel* kernel) {
  size_t bytes = 0;
  EXPECT_EQ(splitkv_export_decision(kernel, nullptr, 0, &bytes, nullptr), SPLITKV_OK);
  std::string data(bytes, '\0');
  EXPECT_EQ(splitkv_export_decision(kernel, data.data(), data.size(), &bytes, nullptr), SPLITKV_OK);
  EXPECT_EQ(bytes, data.size());
  return data;
}

Answer import(splitkv_runtime* runtime, const char* device, const char* problem,
              const std::string& data, KernelOwner* kernel) {
  splitkv_kernel* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_prepare_decided(runtime, device, problem, data.data(), data.size(), &handle, m);
  });
  kernel->reset(handle);
  return answer;
}

TEST(ADecisionElsewhere, GivesTheSameKernelWhateverWouldBeChosenHere) {
  KernelOwner first, second;
  ASSERT_TRUE(prepare(open_runtime().get(), "cpu", kProblem,
                      "tile=32 partition=fixed splits=5 reduce=kernel", &first)
                  .ok());
  const std::string data = exported(first.get());
  const Variable schedule("SPLITKV_SCHEDULE", "splits=2");
  const RuntimeOwner other = open_runtime();
  const Answer answer = import(other.get(), "cpu", kProblem, data, &second);
  ASSERT_TRUE(answer.ok()) << answer;
  const splitkv_kernel_info a = info_of(first.get()), b = info_of(second.get());
  EXPECT_STREQ(a.schedule, b.schedule);
  EXPECT_STREQ(a.key, b.key);
  EXPECT_STREQ(a.source, b.source);
  EXPECT_EQ(std::string(b.why).find("decided elsewhere: "), 0u) << b.why;
  EXPECT_EQ(exported(second.get()).find("splitkv-decision 1\n"), 0u);

  DecodeCase step({100, 0, 7, 333});
  ASSERT_TRUE(step.attach(second.get()).ok());
  ASSERT_EQ(splitkv_run(second.get(), &step.binding, &step.args, nullptr, nullptr), SPLITKV_OK);
  EXPECT_LT(errors_of(step).out, 1e-5);
}

TEST(ADecisionElsewhere, IsRefusedWhereSomethingDiffersOrIsDamaged) {
  KernelOwner first, second;
  const RuntimeOwner runtime = open_runtime();
  ASSERT_TRUE(prepare(runtime.get(), "cpu:x86-64-v2", kProblem, nullptr, &first).ok());
  const std::string data = exported(first.get());
  const auto refused = [&](const Answer& answer, const std::string& words) {
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
    EXPECT_TRUE(answer.says(words)) << answer;
    EXPECT_EQ(second, nullptr);
  };
  refused(import(runtime.get(), "cpu:x86-64-v2", "attention q=fp32 kv=fp32 heads=4/2 dim=64", data,
                 &second),
          "the decision is for problem=attention q=fp32");
  refused(import(runtime.get(), "cpu:x86-64-v2:256", kProblem, data, &second), "arch=");
  refused(import(runtime.get(), "cpu:x86-64-v2", kProblem, data.substr(1), &second),
          "no decision of this format");
  refused(
      import(runtime.get(), "cpu:x86-64-v2", kProblem, data.substr(0, data.size() - 3), &second),
      "damaged or cut");
  std::string old = data;
  old[old.find("splitkv=") + 8] = '9';
  refused(import(runtime.get(), "cpu:x86-64-v2", kProblem, old, &second), "damaged or cut");
  EXPECT_TRUE(import(runtime.get(), "cpu:x86-64-v2", kProblem, data, &second).ok());
}

TEST(ADecisionElsewhere, IsExportedOnlyWhereItFits) {
  KernelOwner kernel;
  ASSERT_TRUE(prepare(open_runtime().get(), "cpu", kProblem, nullptr, &kernel).ok());
  const std::string data = exported(kernel.get());
  std::string small(data.size() - 1, '?');
  size_t bytes = 0;
  EXPECT_EQ(splitkv_export_decision(kernel.get(), small.data(), small.size(), &bytes, nullptr),
            SPLITKV_OK);
  EXPECT_EQ(bytes, data.size());
  EXPECT_EQ(small, std::string(data.size() - 1, '?'));
  const Answer none = answer_of([&](splitkv_message* m) {
    return splitkv_export_decision(kernel.get(), nullptr, 0, nullptr, m);
  });
  EXPECT_EQ(none.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(none.says("bytes is NULL")) << none;
}

}  // namespace
