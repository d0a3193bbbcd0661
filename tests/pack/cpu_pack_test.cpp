// CPU kernels from packs: taken before anything else, right, and only where they fit this machine.
#include <filesystem>

#include "runtime/splitkv_append.h"
#include "tests/pack/cpu_record.hpp"
#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Finished;
using splitkv::cli_test::Folder;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";
constexpr const char* kSchedule = "partition=fixed splits=3 reduce=kernel";

void expect_right(const splitkv_kernel* kernel) {
  DecodeCase step({100, 0, 7, 333});
  ASSERT_TRUE(step.attach(kernel).ok());
  const Answer ran = answer_of([&](splitkv_message* m) {
    return splitkv_run(kernel, &step.binding, &step.args, nullptr, m);
  });
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_LT(errors_of(step).out, 1e-5);
  EXPECT_LT(errors_of(step).lse, 1e-5);
}

class CpuPack : public testing::Test {
 protected:
  // Builds the pack of kProblem with kSchedule for `arch`.
  void build(const std::string& arch = "cpu", std::vector<std::string> more = {}) {
    more.insert(more.begin(), {kProblem, "--arch", arch, "--schedule", kSchedule});
    const Finished made = make_pack(path, more);
    ASSERT_EQ(made.status, 0) << made.err;
  }

  Folder folder;
  const std::string path = folder.file("kernels.pack");
};

TEST_F(CpuPack, IsTakenWithoutACompileAndWithoutTheDisk) {
  build();
  const Variable disk_on("SPLITKV_NO_DISK", nullptr);
  const std::string cache = folder.file("cache");
  LoggedRuntime logged(0, cache.c_str());
  ASSERT_TRUE(logged.open_pack(path).ok());
  KernelOwner kernel, again;
  ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "pack");
  EXPECT_EQ(info_of(kernel.get()).from_memory, 0);
  expect_right(kernel.get());
  ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &again).ok());
  EXPECT_STREQ(info_of(again.get()).origin, "memory");
  const splitkv_statistics statistics = statistics_of(logged.get());
  EXPECT_EQ(statistics.compiles, 0u);
  EXPECT_EQ(statistics.disk_hits, 0u);
  EXPECT_EQ(statistics.pack_hits, 1u);
  EXPECT_EQ(statistics.memory_hits, 1u);
  EXPECT_FALSE(std::filesystem::exists(cache));
}

// Launch-time values are no part of a key: one kernel serves them all.
TEST_F(CpuPack, ServesEveryNumberOfSplits) {
  build();
  LoggedRuntime logged(SPLITKV_NO_JIT);
  ASSERT_TRUE(logged.open_pack(path).ok());
  for (const char* schedule :
       {"partition=fixed splits=1 reduce=kernel", "partition=fixed splits=64 reduce=kernel"}) {
    KernelOwner kernel;
    const Answer answer = prepare(logged.get(), "cpu", kProblem, schedule, &kernel);
    ASSERT_TRUE(answer.ok()) << answer;
    expect_right(kernel.get());
  }
}

TEST_F(CpuPack, FromMemoryAndFromTheOptionsAndTheEnvironmentIsTheSame) {
  build();
  KernelOwner kernel;
  {
    std::string bytes = contents(path);
    LoggedRuntime logged(SPLITKV_NO_JIT);
    ASSERT_EQ(splitkv_open_pack_memory(logged.get(), bytes.data(), bytes.size(), nullptr),
              SPLITKV_OK);
    bytes.assign(bytes.size(), 'x');  // it was copied
    ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).ok());
    expect_right(kernel.get());
  }
  {
    LoggedRuntime logged(SPLITKV_NO_JIT, nullptr, path.c_str());
    ASSERT_TRUE(logged.opened.ok()) << logged.opened;
    ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).ok());
  }
  const Variable variable("SPLITKV_PACK", path.c_str());
  LoggedRuntime logged(SPLITKV_NO_JIT);
  ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "pack");
  logged.runtime.reset();
  expect_right(kernel.get());  // kernels outlive their runtime
}

TEST_F(CpuPack, ThatIsDamagedIsRefusedWhole) {
  build();
  std::string bytes = contents(path);
  bytes[bytes.size() / 2] ^= 4;
  overwrite(path, bytes);
  LoggedRuntime logged(SPLITKV_NO_JIT);
  const Answer answer = logged.open_pack(path);
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says(path + " has bytes that its digest does not know")) << answer;
  KernelOwner kernel;
  EXPECT_EQ(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).status,
            SPLITKV_NOT_PREPARED);
  // As part of opening a runtime it fails that.
  LoggedRuntime none(0, nullptr, path.c_str());
  EXPECT_EQ(none.opened.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_EQ(none.get(), nullptr);
  const Variable variable("SPLITKV_PACK", "/nowhere/kernels.pack");
  const LoggedRuntime missing;
  EXPECT_EQ(missing.opened.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(missing.opened.says("/nowhere/kernels.pack")) << missing.opened;
}

TEST_F(CpuPack, OfOtherInstructionsIsNotUsedAndTheLogSaysSo) {
  build("cpu:x86-64-v2");
  LoggedRuntime logged;
  ASSERT_TRUE(logged.open_pack(path).ok());
  KernelOwner kernel;
  ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "compiled");
  EXPECT_TRUE(logged.logged("the packs hold this problem for other instructions, [x86-64-v2"));
  ASSERT_TRUE(prepare(logged.get(), "cpu:x86-64-v2", kProblem, kSchedule, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "pack");
  expect_right(kernel.get());
}

TEST_F(CpuPack, WithMergesHasThemToo) {
  build("cpu", {"--merges"});
  LoggedRuntime logged(SPLITKV_NO_JIT);
  ASSERT_TRUE(logged.open_pack(path).ok());
  for (const char* form : {"mlo", "lse"}) {
    for (const char* base : {"natural", "base2"}) {
      splitkv_merger* merger = nullptr;
      EXPECT_EQ(splitkv_prepare_merge(logged.get(), "cpu", form, base, &merger, nullptr),
                SPLITKV_OK);
      splitkv_release_merger(merger);
    }
  }
  EXPECT_EQ(statistics_of(logged.get()).pack_hits, 4u);
}

TEST_F(CpuPack, WithAppendersHasTheWritersOfItsProblems) {
  build("cpu", {"--appenders"});
  LoggedRuntime logged(SPLITKV_NO_JIT);
  ASSERT_TRUE(logged.open_pack(path).ok());
  const auto prepared = [&](const char* type, const char* places) {
    splitkv_appender* appender = nullptr;
    const Answer answer = answer_of([&](splitkv_message* m) {
      return splitkv_prepare_append(logged.get(), "cpu", kProblem, type, places, &appender, m);
    });
    splitkv_release_appender(appender);
    return answer;
  };
  EXPECT_TRUE(prepared(nullptr, "slots").ok()) << prepared(nullptr, "slots");
  EXPECT_TRUE(prepared("fp32", "rows").ok()) << prepared("fp32", "rows");
  EXPECT_EQ(statistics_of(logged.get()).pack_hits, 2u);
  EXPECT_EQ(statistics_of(logged.get()).compiles, 0u);
  EXPECT_EQ(prepared("bf16", "slots").status, SPLITKV_NOT_PREPARED);  // not of q's type
  const Finished listed = cli_test::run_splitkv({"pack", "--list", path});
  EXPECT_TRUE(says(listed.out, "append new=fp32 places=rows")) << listed.out;
}

// A pack of writers of positions that rows cannot say has the one that there is.
TEST_F(CpuPack, OfStridedPositionsHasTheAppenderOfSlotsAlone) {
  const std::string strided = std::string(kProblem) + " positions=strided";
  const Finished made =
      make_pack(path, {strided, "--arch", "cpu", "--schedule", kSchedule, "--appenders"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(says(made.out, "2 kernels")) << made.out;
}

// A record with a schedule that nobody would choose: the pack has its kernel, and a prepare
// elsewhere chooses it.
TEST_F(CpuPack, BringsItsTuningRecordsAndTheirKernels) {
  const std::string records = folder.file("records.txt");
  const std::string schedule = record_seven_splits(kProblem, records);
  const Finished made = make_pack(path, {kProblem, "--arch", "cpu", "--records", records});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(says(made.out, "1 tuning records")) << made.out;

  const Variable nothing_tuned("SPLITKV_TUNING_FILE", "/nowhere/tuning.txt");
  LoggedRuntime logged(SPLITKV_NO_JIT);
  ASSERT_TRUE(logged.open_pack(path).ok());
  splitkv_kernel* found = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_prepare(logged.get(), "cpu", kProblem, nullptr, nullptr, &found, m);
  });
  ASSERT_TRUE(answer.ok()) << answer;
  const KernelOwner owner(found);
  EXPECT_EQ(info_of(found).schedule, schedule);
  EXPECT_TRUE(says(info_of(found).why, path + ":1")) << info_of(found).why;
}

TEST(OpenPackArguments, ThatAreMissingAreNamed) {
  const RuntimeOwner runtime = open_runtime();
  const auto refused = [&](const Answer& answer, const std::string& words) {
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
    EXPECT_TRUE(answer.says(words)) << answer;
  };
  refused(answer_of([&](splitkv_message* m) { return splitkv_open_pack(nullptr, "x", m); }),
          "runtime is NULL");
  refused(
      answer_of([&](splitkv_message* m) { return splitkv_open_pack(runtime.get(), nullptr, m); }),
      "path is NULL");
  refused(answer_of([&](splitkv_message* m) {
            return splitkv_open_pack_memory(runtime.get(), nullptr, 5, m);
          }),
          "data is NULL");
  refused(answer_of([&](splitkv_message* m) {
            return splitkv_open_pack_memory(runtime.get(), "abc", 3, m);
          }),
          "the pack in memory has only 3 bytes");
  const LoggedRuntime empty(0, nullptr, "");
  refused(empty.opened, "options.pack is empty");
}

}  // namespace
