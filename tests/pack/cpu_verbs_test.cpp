// splitkv pack and splitkv compile --plan, as a user calls them.
#include <filesystem>

#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::Folder;
using splitkv::cli_test::line_of;
using splitkv::cli_test::run_splitkv;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32";
constexpr const char* kWide = "attention q=fp32 kv=fp32 heads=4/2 dim=64";

TEST(PackVerb, ListsWhatItBuilt) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack"), problems = folder.file("problems.txt");
  overwrite(problems, std::string("# two\n") + kProblem + "\n\n" + kWide + "\n");
  const Finished made = make_pack(
      path, {"--file", problems, "--arch", "cpu,cpu:x86-64-v2", "--schedule", "tile=32 splits=2"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(says(line_of(made.out, "pack"), ": 4 kernels, 0 tuning records, ")) << made.out;
  const Finished listed = run_splitkv({"pack", "--list", path});
  ASSERT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(says(line_of(listed.out, "pack"), ": 4 kernels, 0 tuning records")) << listed.out;
  size_t kernels = 0;
  for (size_t at = 0; (at = listed.out.find("\nkernel ", at)) != std::string::npos; ++at) ++kernels;
  EXPECT_EQ(kernels, 4u);
  EXPECT_TRUE(says(listed.out, kWide)) << listed.out;
  EXPECT_TRUE(says(listed.out, "x86-64-v2")) << listed.out;
  EXPECT_TRUE(says(listed.out, "LLVM ")) << listed.out;
  EXPECT_TRUE(says(listed.out, "tile=32")) << listed.out;
}

TEST(PackVerb, HasEveryScheduleThatItsWorkloadsChoose) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack");
  const Finished made =
      make_pack(path, {kProblem, "--arch", "cpu", "--batch", "1,64", "--kv-len", "128,65536"});
  ASSERT_EQ(made.status, 0) << made.err;
  const LoggedRuntime logged(SPLITKV_NO_JIT, nullptr, path.c_str());
  for (const int64_t batch : {1, 64}) {
    for (const int64_t kv_len : {128, 65536}) {
      for (const int64_t mean : {int64_t(0), kv_len}) {
        splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
        workload.batch = batch, workload.kv_len = kv_len, workload.kv_len_mean = mean;
        splitkv_kernel* kernel = nullptr;
        const auto answer = testing_support::answer_of([&](splitkv_message* m) {
          return splitkv_prepare(logged.get(), "cpu", kProblem, &workload, nullptr, &kernel, m);
        });
        EXPECT_TRUE(answer.ok()) << answer;
        splitkv_release(kernel);
      }
    }
  }
}

TEST(PackVerb, LeavesNothingBehindButThePack) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack");
  overwrite(path, "an older one");
  ASSERT_EQ(make_pack(path, {kProblem, "--arch", "cpu"}).status, 0);
  size_t files = 0;
  for (const auto& item :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    EXPECT_EQ(item.path().string(), path);
    ++files;
  }
  EXPECT_EQ(files, 1u);
  EXPECT_EQ(run_splitkv({"pack", "--list", path}).status, 0);
}

TEST(PackVerb, BadInputIsNamedAndNothingIsWritten) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& words) {
    const Finished finished = make_pack(path, arguments);
    EXPECT_EQ(finished.status, 2) << finished.out;
    EXPECT_TRUE(says(finished.err, words)) << finished.err;
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refused({kProblem}, "--arch is missing");
  refused({"--arch", "cpu"}, "a problem is missing");
  refused({kProblem, "--arch", "sm_90a,pentium"}, "--arch=pentium is no architecture");
  refused({kProblem, "--arch", "sm_12"}, "sm_12");
  refused({"attention q=fp32 dim=32", "--arch", "cpu"}, "heads");
  refused({kProblem, "--arch", "cpu", "--schedule", "tile=3"}, "tile=3");
  refused({kProblem, "--arch", "cpu", "--schedule", "family=mma"}, "for cpu:");
  refused({kProblem, "--arch", "cpu", "--batch", "0"}, "--batch=0");
  refused({kProblem, "--arch", "cpu", "--kv-len", "-5"}, "--kv-len=-5");
  refused({"--file", folder.file("none"), "--arch", "cpu"}, "--file=");
  refused({kProblem, "--arch", "cpu", "--records", folder.file("none")}, "--records=");
  EXPECT_EQ(run_splitkv({"pack", kProblem, "--arch", "cpu"}).status, 2);
  const Finished nowhere =
      run_splitkv({"pack", kProblem, "--arch", "cpu", "--out", "/nowhere/kernels.pack"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_TRUE(says(nowhere.err, "--out=/nowhere/kernels.pack cannot be written")) << nowhere.err;
  overwrite(path, "no pack");
  const Finished listed = run_splitkv({"pack", "--list", path});
  EXPECT_EQ(listed.status, 2);
  EXPECT_TRUE(says(listed.err, "--list=" + path + " has only 7 bytes")) << listed.err;
  EXPECT_EQ(run_splitkv({"pack", "--list", "/nowhere/kernels.pack"}).status, 2);
}

TEST(PackVerb, MakesWhatRunTakes) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack");
  ASSERT_EQ(make_pack(path, {kProblem, "--arch", "cpu", "--schedule", "splits=2"}).status, 0);
  const std::vector<std::string> run = {"run",      kProblem,     "--target", "cpu",
                                        "--kv-len", "64",         "--repeat", "1",
                                        "--check",  "--schedule", "splits=2"};
  const Finished ran = run_splitkv(run, {"SPLITKV_PACK=" + path, "SPLITKV_NO_JIT=1"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const Finished without = run_splitkv(run, {"SPLITKV_NO_JIT=1"});
  EXPECT_EQ(without.status, 3);
  EXPECT_TRUE(says(without.err, "`splitkv pack`")) << without.err;
}

TEST(CompilePlan, SaysWhatThereIsToCompile) {
  const Folder folder;
  const std::string problems = folder.file("problems.txt");
  overwrite(problems, std::string(kProblem) + "\n" + kWide + "\n" + kProblem + "\n");
  const std::vector<std::string> on = {"SPLITKV_NO_DISK=0",
                                       "SPLITKV_CACHE_DIR=" + folder.file("c")};
  std::vector<std::string> plan = {"compile", "--file", problems, "--target", "cpu", "--plan"};
  const Finished planned = run_splitkv(plan, on);
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_EQ(line_of(planned.out, "plan"),
            "2 problems, 0 refused: 2 kernels, 0 on disk, 2 to compile");
  EXPECT_TRUE(says(line_of(planned.out, "estimate"), " s by ")) << planned.out;
  plan.pop_back();
  ASSERT_EQ(run_splitkv(plan, on).status, 0);
  plan.push_back("--plan");
  EXPECT_EQ(line_of(run_splitkv(plan, on).out, "plan"),
            "2 problems, 0 refused: 2 kernels, 2 on disk, 0 to compile");
  const Finished refused =
      run_splitkv({"compile", kProblem, "--target", "cpu", "--plan", "--schedule", "tile=3"}, on);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(says(line_of(refused.out, "plan"), "1 problems, 1 refused: 0 kernels"));
}

}  // namespace
