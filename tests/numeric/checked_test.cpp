// checked=on: faults in device data are recorded with row and slot, and nothing is read where they
// point; unused slots are nobody's business.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/splitkv.hpp"
#include "tests/numeric/contract.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/step_memory.hpp"

namespace splitkv {
namespace {

using testing_support::kSchedules;
using testing_support::problem_of;
using testing_support::schedules;
using testing_support::test_device;

constexpr const char* kPaged =
    "q=bf16 heads=4/2 dim=64 kv_layout=paged:16:nhd lse=natural checked=on";

struct Outcome {
  splitkv_fault fault = sized<splitkv_fault>();
  splitkv_status status = SPLITKV_OK;
  std::string message;
  std::vector<float> lse;
};

// One run whose inputs, image and arguments the test may spoil.
class CheckedStep {
 public:
  CheckedStep(const std::string& text, const std::string& schedule,
              const std::vector<int32_t>& kv_len, const tool::StepForm& form = {})
      : problem_(problem_of(text)),
        inputs_(tool::generate_inputs(problem_, kv_len, 5, form)),
        image_(tool::lay_out(problem_, inputs_, 5)),
        memory_(std::move(*tool::open_device_memory(test_device()))),
        kernel_(runtime_.prepare(test_device(), text, {}, schedule)) {}

  tool::Inputs& inputs() { return inputs_; }
  tool::KvImage& image() { return image_; }
  int32_t& slot(int64_t row, int64_t slot) {
    return image_.page_table[size_t(row * image_.page_table_stride + slot)];
  }

  template <class Spoil>
  Outcome run(const Spoil& spoil) {
    auto placed =
        tool::StepMemory::place(*memory_, problem_, inputs_, image_, kernel_.sizes(inputs_.batch));
    EXPECT_TRUE(placed.ok());
    splitkv_args args = placed->args();
    spoil(args);
    if (args.state_bytes > 0) kernel_.state_init(args.state, args.state_bytes);
    kernel_.run(kernel_.bind(placed->tensors()), args);
    Outcome outcome;
    // Waits for the run.
    outcome.lse.resize(placed->lse().bytes() / sizeof(float));
    EXPECT_TRUE(memory_->copy_out(outcome.lse.data(), placed->lse(), placed->lse().bytes()).ok());
    char text[512] = "";
    auto message = sized<splitkv_message>();
    message.text = text;
    message.capacity = sizeof(text);
    outcome.status = splitkv_poll_fault(kernel_.get(), &outcome.fault, &message);
    outcome.message = text;
    return outcome;
  }
  Outcome run() {
    return run([](splitkv_args&) {});
  }

 private:
  Runtime runtime_;
  Problem problem_;
  tool::Inputs inputs_;
  tool::KvImage image_;
  std::unique_ptr<tool::DeviceMemory> memory_;
  Kernel kernel_;
};

TEST(Checked, APageIdOutOfRangeIsReportedWithRowAndSlot) {
  for (const char* schedule : schedules()) {
    for (const bool beyond : {true, false}) {
      CheckedStep step(kPaged, schedule, {100, 33, 0});
      const int32_t bad = beyond ? int32_t(step.image().page_count) : -1;
      step.slot(1, 2) = bad;
      const Outcome outcome = step.run();
      EXPECT_EQ(outcome.status, SPLITKV_DEVICE_ERROR) << schedule;
      EXPECT_EQ(outcome.fault.code, 1);
      EXPECT_EQ(outcome.fault.row, 1);
      EXPECT_EQ(outcome.fault.slot, 2);
      EXPECT_EQ(outcome.fault.value, bad);
      EXPECT_NE(outcome.message.find("row=1 slot=2"), std::string::npos) << outcome.message;
      // The record was taken; the run after it is clean.
      step.slot(1, 2) = 0;
      EXPECT_EQ(step.run().status, SPLITKV_OK);
    }
  }
}

TEST(Checked, TheLargestIdIsNeverReadAndItsKeysCountAsMasked) {
  CheckedStep step(kPaged, kSchedules[1], {16, 16});
  step.slot(0, 0) = std::numeric_limits<int32_t>::max();
  const Outcome outcome = step.run();
  EXPECT_EQ(outcome.fault.code, 1);
  EXPECT_EQ(outcome.fault.value, std::numeric_limits<int32_t>::max());
  for (size_t head = 0; head < 4; ++head) {
    EXPECT_EQ(outcome.lse[head], -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isfinite(outcome.lse[4 + head]));
  }
}

TEST(Checked, UnusedSlotsMayHoldAnything) {
  for (const char* words : {"", " window=20", " query_len=3 window=20"}) {
    CheckedStep step(kPaged + std::string(words), kSchedules[2], {100, 33, 0});
    EXPECT_EQ(step.run().status, SPLITKV_OK) << words;  // they hold 0x7fffffff already
  }
}

TEST(Checked, ALengthBeyondTheCapacityIsReportedAndCut) {
  for (const char* layout : {"bhtd", "paged:16:nhd"}) {
    CheckedStep step(
        fmt::format("q=bf16 heads=4/2 dim=64 kv_layout={} lse=natural checked=on", layout),
        kSchedules[3], {40, 64});
    step.inputs().kv_len[1] = 1000;
    const Outcome outcome = step.run([](splitkv_args& args) { args.kv_capacity = 64; });
    EXPECT_EQ(outcome.status, SPLITKV_DEVICE_ERROR);
    EXPECT_EQ(outcome.fault.code, 2);
    EXPECT_EQ(outcome.fault.row, 1);
    EXPECT_EQ(outcome.fault.value, 1000);
    // Cut at 64, the row has the keys that it was made with.
    step.inputs().kv_len[1] = 64;
    const Outcome right = step.run([](splitkv_args& args) { args.kv_capacity = 64; });
    EXPECT_EQ(right.status, SPLITKV_OK);
    EXPECT_EQ(outcome.lse, right.lse);
  }
}

TEST(Checked, MoreQueriesThanTheKernelHasAreReportedAndCut) {
  tool::StepForm form;
  form.queries = {2, 1};
  form.spare_rows = 4;
  CheckedStep step("q=bf16 heads=4/2 dim=64 query_len=2 ragged=on lse=natural checked=on",
                   kSchedules[1], {40, 20}, form);
  step.inputs().q_offset = {0, 2, 6};
  const Outcome outcome = step.run();
  EXPECT_EQ(outcome.status, SPLITKV_DEVICE_ERROR);
  EXPECT_EQ(outcome.fault.code, 3);
  EXPECT_EQ(outcome.fault.row, 1);
  EXPECT_EQ(outcome.fault.value, 4);
}

TEST(Checked, OffRecordsNothing) {
  CheckedStep step("q=bf16 heads=4/2 dim=64 lse=natural checked=off", kSchedules[1], {40});
  const Outcome outcome = step.run([](splitkv_args& args) { args.kv_capacity = 10; });
  EXPECT_EQ(outcome.status, SPLITKV_OK);
  EXPECT_EQ(outcome.fault.code, 0);
}

}  // namespace
}  // namespace splitkv
