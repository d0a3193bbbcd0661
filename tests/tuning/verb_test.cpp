// splitkv tune, and what run and show say afterwards.
#include <gtest/gtest.h>

#include "compiler/text.hpp"
#include "tests/cli/process.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::line_of;
using splitkv::cli_test::run_splitkv;

namespace {

constexpr const char* kSmall = "attention q=fp32 kv=fp32 heads=4/2 dim=32";

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::vector<KeptRecord> records_of(const std::string& path) {
  return read_records(contents(path), path, [](const std::string& line) { ADD_FAILURE() << line; });
}

TEST(TuneVerb, BadInputNamesTheOptionItsValueAndWhatWouldWork) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"tune"}, "a problem is missing"},
      {{"tune", "attention q=bf17 heads=4 dim=64"}, "bf17"},
      {{"tune", kSmall, "--batch", "0"}, "--batch=0: 1 to"},
      {{"tune", kSmall, "--kv-len", "-5"}, "--kv-len=-5: 1 to"},
      {{"tune", kSmall, "--rows", "some"}, "--rows=some: equal, ragged or all"},
      {{"tune", kSmall, "--budget", "-1"}, "--budget=-1: seconds"},
      {{"tune", kSmall, "--candidates", "0"}, "--candidates=0: 1 to"},
      {{"tune", "--file", "/no/such/file"}, "--file=/no/such/file: cannot be read"},
      {{"tune", kSmall, "--target", "tpu"}, "--target=tpu"},
      {{"tune", kSmall, "--batch", "x"}, "x"},
      {{"tune", kSmall, "--devices", "tpu"}, "--devices=tpu"},
      {{"tune", kSmall, "--devices", "all,cuda:0"}, "--devices=all: beside others"},
      {{"tune", kSmall, "--devices", "cpu", "--target", "cpu"}, "--devices=cpu: --target names"},
      {{"tune", kSmall, "--dry-run", "--report", "r.html"}, "--report=r.html: nothing is measured"},
  };
  for (const auto& one : cases) {
    const Finished finished = run_splitkv(one.arguments);
    EXPECT_EQ(finished.status, 2) << one.message << "\n" << finished.err;
    EXPECT_TRUE(says(finished.err, one.message)) << finished.err;
  }
}

TEST(TuneVerb, APlanIsPrintedWithoutADeviceAndNothingIsWritten) {
  const TempFolder folder;
  const std::string out = folder / "out.txt";
  const Finished plan =
      run_splitkv({"tune", kProblem, "--target", "cuda:sm_90a", "--batch", "1,8", "--kv-len",
                   "8192", "--dry-run", "--budget", "12", "--out", out});
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_TRUE(says(plan.out, "cuda:sm_90a sms=132")) << plan.out;
  EXPECT_TRUE(says(plan.out, "bucket    batch=1 kv_len=8192 rows=equal: measured at 1x8192\n"));
  EXPECT_TRUE(says(plan.out,
                   "bucket    batch=8 kv_len=8192 rows=any: measured at 8x8192, 8x8192 ragged\n"));
  EXPECT_TRUE(says(plan.out, "at most 12 s"));
  EXPECT_TRUE(says(plan.out, "candidate schedule family=mma"));
  EXPECT_EQ(contents(out), "");
}

TEST(TuneVerb, FilesAndModelsGiveProblemsEachOnce) {
  const TempFolder folder;
  overwrite(folder / "problems.txt",
            "# two lines of one problem\n\nattention q=bf16 heads=32/8 dim=128\n" +
                std::string(kProblem) + "\n");
  const Finished plan = run_splitkv({"tune", "--file", folder / "problems.txt", "--target",
                                     "cuda:sm_90a", "--dry-run", "--candidates", "2"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan.out.find("problem "), plan.out.rfind("problem ")) << plan.out;
}

#ifdef SPLITKV_TEST_FAKE_LIBCUDA

const std::vector<std::string> kFakeDriver = {std::string("SPLITKV_LIBCUDA=") +
                                              SPLITKV_TEST_FAKE_LIBCUDA};

TEST(TuneVerb, SeveralDevicesOfOneModelShareWhatThereIsToDo) {
  const TempFolder folder;
  const std::vector<std::string> arguments = {
      "tune",      kProblem,   "--devices", "all",   "--batch",         "1,64",
      "--kv-len",  "4096",     "--rows",    "equal", "--candidates",    "2",
      "--dry-run", "--budget", "30",        "--out", folder / "out.txt"};
  const Finished plan = run_splitkv(arguments, kFakeDriver);
  ASSERT_EQ(plan.status, 0) << plan.err;
  // One problem, two devices: a workload each, and all the time for both.
  const size_t second = plan.out.find("devices   cuda:0, cuda:1", 1);
  ASSERT_NE(second, std::string::npos) << plan.out;
  EXPECT_TRUE(says(plan.out.substr(0, second), "measured at 64x4096\n")) << plan.out;
  EXPECT_FALSE(says(plan.out.substr(0, second), "measured at 1x4096\n")) << plan.out;
  EXPECT_TRUE(says(plan.out.substr(second), "measured at 1x4096\n")) << plan.out;
  EXPECT_TRUE(says(plan.out.substr(second), "at most 30 s")) << plan.out;
}

TEST(TuneVerb, DevicesThatCannotBeAreNamed) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"tune", kSmall, "--devices", "cuda:1,cuda:1"}, "--devices=cuda:1: named twice"},
      {{"tune", kSmall, "--devices", "cuda,cuda:0"}, "--devices=cuda:0: named twice"},
      {{"tune", kSmall, "--devices", "cuda:0,cuda:7"}, "7"},
      {{"tune", kSmall, "--devices", "cuda:0,cpu"}, "--devices=cpu: "},
      {{"tune", kSmall, "--devices", "all", "--in-process"}, "--in-process: several"},
  };
  for (const auto& one : cases) {
    const Finished finished = run_splitkv(one.arguments, kFakeDriver);
    EXPECT_NE(finished.status, 0) << one.message;
    EXPECT_TRUE(says(finished.err, one.message)) << finished.err;
  }
}

// The stand-in computes nothing, so that no candidate passes its check.
TEST(TuneVerb, EveryDeviceMeasuresInAProcessOfItsOwnAndWhatStaysUntunedIsSaid) {
  const TempFolder folder;
  const std::string report = folder / "report.html";
  const Finished tuned = run_splitkv(
      {"tune", "attention q=bf16 kv=bf16 heads=8/2 dim=64", "--devices", "cuda:0,cuda:1", "--batch",
       "1,8", "--kv-len", "256", "--rows", "equal", "--candidates", "1", "--budget", "120", "--out",
       folder / "out.txt", "--report", report},
      kFakeDriver);
  if (tuned.status == 3) GTEST_SKIP() << "needs NVRTC: " << tuned.err;
  EXPECT_EQ(tuned.status, 1) << tuned.out << tuned.err;
  EXPECT_TRUE(says(tuned.err, "1/2: ")) << tuned.err;
  EXPECT_TRUE(says(tuned.err, "2/2: ")) << tuned.err;
  EXPECT_TRUE(says(tuned.out, "cuda:0: attention")) << tuned.out;
  EXPECT_TRUE(says(tuned.out, "cuda:1: attention")) << tuned.out;
  EXPECT_TRUE(says(tuned.out, "untuned   batch=1 kv_len=256 rows=equal")) << tuned.out;
  EXPECT_TRUE(says(contents(folder / "out.txt"), "# failed: ")) << contents(folder / "out.txt");
  EXPECT_TRUE(says(contents(report), "untuned: batch=8 kv_len=256 rows=equal"));
}

#endif

#ifdef SPLITKV_TEST_CPU

std::vector<std::string> tune_arguments(const std::string& out) {
  return {"tune",   kSmall,  "--target",     "cpu", "--batch",  "1,2", "--kv-len", "256",
          "--rows", "equal", "--candidates", "4",   "--budget", "60",  "--out",    out};
}

TEST(TuneVerb, TunesOnTheCpuOnceAndRunsUseIt) {
  const TempFolder folder;
  const std::string out = folder / "new/tuning.txt";
  const Finished tuned = run_splitkv(tune_arguments(out));
  ASSERT_EQ(tuned.status, 0) << tuned.out << tuned.err;
  EXPECT_TRUE(says(tuned.out, "2 records added to " + out)) << tuned.out;
  EXPECT_TRUE(says(tuned.out, "batch=2 kv_len=256 rows=equal")) << tuned.out;
  EXPECT_FALSE(says(tuned.out, "failed ")) << tuned.out;
  EXPECT_FALSE(says(tuned.err, "\r")) << "plain lines where nobody looks at a terminal";
  EXPECT_TRUE(says(tuned.err, "1/1: measuring 1x256")) << tuned.err;
  const auto records = records_of(out);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].record.problem, tuned_problem(*parse_problem(kSmall)));
  EXPECT_GT(records[0].record.best.us, 0);
  EXPECT_GT(records[0].record.best.ratio, 0);

  const std::string before = contents(out);
  const Finished again = run_splitkv(tune_arguments(out));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(says(again.out, "known ")) << again.out;
  EXPECT_EQ(contents(out), before);

  const Finished ran = run_splitkv({"run", kSmall, "--target", "cpu", "--batch", "2", "--kv-len",
                                    "200", "--check", "--repeat", "1"},
                                   {"SPLITKV_TUNING_FILE=" + out});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_TRUE(says(line_of(ran.out, "why"), "tuned, exact match: " + out + ":2")) << ran.out;
  EXPECT_TRUE(says(ran.out, print(records[1].record.best.schedule))) << ran.out;
  const Finished shown =
      run_splitkv({"show", kSmall, "--target", "cpu", "--batch", "1", "--kv-len", "500"},
                  {"SPLITKV_TUNING_FILE=" + out});
  EXPECT_TRUE(says(line_of(shown.out, "why"), "tuned, near bucket match: " + out + ":1"))
      << shown.out;
}

TEST(TuneVerb, AResumedRunMeasuresOnlyWhatIsMissingAndRetuneAll) {
  const TempFolder folder;
  const std::string out = folder / "tuning.txt";
  auto arguments = tune_arguments(out);
  arguments[5] = "1";
  ASSERT_EQ(run_splitkv(arguments).status, 0);
  const std::string first = contents(out);
  const Finished resumed = run_splitkv(tune_arguments(out));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(says(resumed.out, "1 records added")) << resumed.out;
  EXPECT_FALSE(says(resumed.err, "measuring 1x256")) << resumed.err;
  EXPECT_EQ(contents(out).find(first), 0u);
  EXPECT_EQ(records_of(out).size(), 2u);
  auto all = tune_arguments(out);
  all.push_back("--retune");
  ASSERT_EQ(run_splitkv(all).status, 0);
  EXPECT_EQ(records_of(out).size(), 4u);
}

TEST(TuneVerb, EveryKindOfProblemThatTheTargetTakesCanBeTuned) {
  const TempFolder folder;
  const std::string out = folder / "tuning.txt";
  const Finished tuned = run_splitkv(
      {"tune",
       "attention q=fp32 kv=fp16 heads=4/2 dim=32 kv_layout=paged:8:nhd alibi=on sink=on "
       "lse=natural params=a:head score=score*a query_len=2",
       "--target", "cpu", "--batch", "2", "--kv-len", "128", "--candidates", "2", "--budget", "60",
       "--in-process", "--out", out});
  ASSERT_EQ(tuned.status, 0) << tuned.out << tuned.err;
  EXPECT_EQ(records_of(out).size(), 3u);
}

TEST(TuneVerb, AReportThatCannotBeWrittenIsNamedBeforeAnythingIsMeasured) {
  const TempFolder folder;
  auto arguments = tune_arguments(folder / "tuning.txt");
  arguments.insert(arguments.end(), {"--report", folder / "none/report.html"});
  const Finished tuned = run_splitkv(arguments);
  EXPECT_EQ(tuned.status, 2);
  EXPECT_TRUE(says(tuned.err, "none/report.html: cannot be written")) << tuned.err;
  EXPECT_EQ(contents(folder / "tuning.txt"), "");
}

TEST(TuneVerb, AFileThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  overwrite(folder / "plain", "");
  auto arguments = tune_arguments(folder / "plain/tuning.txt");
  const Finished tuned = run_splitkv(arguments);
  EXPECT_EQ(tuned.status, 2);
  EXPECT_TRUE(says(tuned.err, "plain/tuning.txt")) << tuned.err;
}

#endif

}  // namespace
