// What a locked-down process may not do: compile, read or write kernels on disk, read tuning
// records of the user.
#include "tests/pack/cpu_record.hpp"
#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Folder;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";

Answer prepare_once(const LoggedRuntime& logged, KernelOwner* kernel,
                    const char* schedule = nullptr) {
  return prepare(logged.get(), "cpu", kProblem, schedule, kernel);
}

TEST(NoJit, OfTheEnvironmentIsThatOfTheFlag) {
  KernelOwner kernel;
  for (const uint32_t flags : {0u, uint32_t(SPLITKV_NO_JIT)}) {
    const Variable variable("SPLITKV_NO_JIT", flags == 0 ? "1" : "0");
    const LoggedRuntime logged(flags);
    const Answer answer = prepare_once(logged, &kernel);
    EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
    EXPECT_TRUE(answer.says("SPLITKV_NO_JIT")) << answer;
    EXPECT_TRUE(answer.says("`splitkv pack`")) << answer;
    EXPECT_EQ(statistics_of(logged.get()).compiles, 0u);
  }
  const Variable off("SPLITKV_NO_JIT", "0");
  EXPECT_TRUE(prepare_once(LoggedRuntime(), &kernel).ok());
}

TEST(NoJit, NamesTheKeyAndWhatThePacksHoldInstead) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack");
  const auto made = make_pack(path, {kProblem, "--arch", "cpu", "--schedule", "tile=32 splits=2"});
  ASSERT_EQ(made.status, 0) << made.err;
  const LoggedRuntime logged(SPLITKV_NO_JIT, nullptr, path.c_str());
  KernelOwner kernel;
  const Answer answer = prepare_once(logged, &kernel, "tile=128 splits=2");
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  EXPECT_TRUE(answer.says("the packs hold this problem for ")) << answer;
  EXPECT_TRUE(answer.says("tile=32")) << answer;
  const size_t at = answer.message.find("kernel ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(answer.message.substr(at + 7, 33).find_first_not_of("0123456789abcdef"), 32u) << answer;
}

TEST(NoTuning, LeavesTheUsersRecordsUnread) {
  const Folder folder;
  const std::string records = folder.file("tuning.txt");
  record_seven_splits(kProblem, records);
  const Variable tuned("SPLITKV_TUNING_FILE", records.c_str());

  const auto chooses_the_record = [&](uint32_t flags) {
    const LoggedRuntime logged(flags);
    KernelOwner chosen;
    const Answer answer = prepare_once(logged, &chosen);
    EXPECT_TRUE(answer.ok()) << answer;
    return answer.ok() && says(info_of(chosen.get()).schedule, "splits=7");
  };
  EXPECT_TRUE(chooses_the_record(0));
  EXPECT_FALSE(chooses_the_record(SPLITKV_NO_TUNING));
  const Variable forbidden("SPLITKV_NO_TUNING", "1");
  EXPECT_FALSE(chooses_the_record(0));
}

TEST(Flags, ThatAreUnknownAreRefusedAndTheKnownOnesNamed) {
  const LoggedRuntime logged(8);
  EXPECT_EQ(logged.opened.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(logged.opened.says("options.flags=0x8 has unknown bits 0x8")) << logged.opened;
  EXPECT_TRUE(logged.opened.says("SPLITKV_NO_TUNING=0x4")) << logged.opened;
}

}  // namespace
