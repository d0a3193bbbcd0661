// What kernels and runtimes tell about themselves, and what is written down for a report.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

// A folder of its own, removed at the end.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/splitkv-inside-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(KernelInfo, NamesOfKernelsCanBeReadAndTellKernelsApart) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner two, one, other;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", "q=fp32 kv=int8 kv_scale=head heads=8/2 dim=32",
                      "partition=fixed splits=5 reduce=kernel", &two)
                  .ok());
  ASSERT_TRUE(prepare(runtime.get(), "cpu", "q=fp32 kv=int8 kv_scale=head heads=8/2 dim=32",
                      "partition=fixed splits=5 reduce=last_block", &one)
                  .ok());
  ASSERT_TRUE(prepare(runtime.get(), "cpu",
                      "q=fp32 kv=int8 kv_scale=head heads=8/2 dim=32 window=9",
                      "partition=fixed splits=5 reduce=last_block", &other)
                  .ok());
  const std::string split = info_of(two.get()).split_name, reduce = info_of(two.get()).reduce_name;
  const std::string shape = "_fp32_int8_h8x2_d32_";
  ASSERT_EQ(split.rfind("splitkv_split" + shape, 0), 0u) << split;
  ASSERT_EQ(reduce.rfind("splitkv_reduce" + shape, 0), 0u) << reduce;
  EXPECT_EQ(split.size(), std::string("splitkv_split").size() + shape.size() + 8);
  EXPECT_EQ(split.substr(split.size() - 8), reduce.substr(reduce.size() - 8));
  EXPECT_TRUE(has(info_of(two.get()).source, "@" + split + "("));
  EXPECT_STREQ(info_of(one.get()).reduce_name, "");
  EXPECT_STRNE(info_of(one.get()).split_name, info_of(other.get()).split_name);
  EXPECT_STREQ(info_of(one.get()).device, "cpu");
}

TEST(KernelInfo, SaysWhoDecidedTheSchedule) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const char* problem = "q=fp32 heads=4/2 dim=32";
  ASSERT_TRUE(prepare(runtime.get(), "cpu", problem, nullptr, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).decided_by, "cost model");
  ASSERT_TRUE(prepare(runtime.get(), "cpu", problem, "splits=3", &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).decided_by, "argument");
  setenv("SPLITKV_SCHEDULE", "splits=4", 1);
  const Answer prepared = prepare(runtime.get(), "cpu", problem, nullptr, &kernel);
  unsetenv("SPLITKV_SCHEDULE");
  ASSERT_TRUE(prepared.ok()) << prepared;
  EXPECT_STREQ(info_of(kernel.get()).decided_by, "environment");
}

TEST(Statistics, CountWhatWasFoundNowhere) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  const char* problem = "q=fp32 heads=4/2 dim=32";
  ASSERT_TRUE(prepare(runtime.get(), "cpu", problem, "splits=1", &kernel).ok());
  ASSERT_TRUE(prepare(runtime.get(), "cpu", problem, "splits=1", &kernel).ok());
  splitkv_statistics counted = statistics_of(runtime.get());
  EXPECT_EQ(counted.misses, 1u);
  EXPECT_EQ(counted.compiles, 1u);
  EXPECT_EQ(counted.memory_hits, 1u);
  EXPECT_EQ(counted.evictions, 0u);

  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.flags = SPLITKV_NO_JIT;
  Folder folder;  // an empty cache: the disk is looked at
  options.cache_dir = folder.path.c_str();
  unsetenv("SPLITKV_NO_DISK");
  runtime = open_runtime(&options);
  EXPECT_EQ(prepare(runtime.get(), "cpu", problem, "splits=1", &kernel).status,
            SPLITKV_NOT_PREPARED);
  setenv("SPLITKV_NO_DISK", "1", 1);
  counted = statistics_of(runtime.get());
  EXPECT_EQ(counted.misses, 1u);
  EXPECT_EQ(counted.compiles, 0u);
}

TEST(Repro, HoldsProblemScheduleSourceShapesAndACommandLine) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step({5, 0, 17});
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, "splits=2", &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  Folder folder;
  const std::string path = folder.path + "/a/b";
  setenv("SPLITKV_WHATEVER", "seen", 1);
  const Answer dumped = answer_of([&](splitkv_message* m) {
    return splitkv_dump_repro(kernel.get(), &step.binding, &step.args, path.c_str(), m);
  });
  unsetenv("SPLITKV_WHATEVER");
  ASSERT_TRUE(dumped.ok()) << dumped;
  const splitkv_kernel_info info = info_of(kernel.get());
  const std::string report = text_of(path + "/repro.txt"), command = text_of(path + "/run.sh");
  EXPECT_EQ(text_of(path + "/kernel.ll"), info.source);
  EXPECT_TRUE(has(text_of(path + "/key.txt"), "compiler=LLVM"));
  for (const std::string& words :
       {std::string(info.problem), std::string(info.schedule), std::string(info.target),
        std::string(splitkv_version()), std::string(info.split_name),
        std::string("SPLITKV_WHATEVER=seen"), std::string("strides block=1152 head=576 token=32"),
        std::string("[3, 1, 4 heads, 32]")}) {
    EXPECT_TRUE(has(report, words)) << words << "\n" << report;
  }
  EXPECT_TRUE(has(command, "run '" + step.problem.substr(0, 16))) << command;
  EXPECT_TRUE(has(command, "--target cpu --batch 3 --kv-len 18")) << command;
  EXPECT_TRUE(has(command, std::string("--schedule '") + info.schedule + "' --check")) << command;
  using std::filesystem::perms;
  EXPECT_NE(std::filesystem::status(path + "/run.sh").permissions() & perms::owner_exec,
            perms::none);
}

TEST(Repro, TakesNoLengthFromTheHostThatNoRowCanHave) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  DecodeCase step({5, 0, 17});
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, "splits=2", &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  Folder folder;
  const auto command_of = [&](int32_t length) {
    step.args.kv_len = nullptr;
    step.args.kv_len_host = length;
    EXPECT_EQ(
        splitkv_dump_repro(kernel.get(), &step.binding, &step.args, folder.path.c_str(), nullptr),
        SPLITKV_OK);
    return text_of(folder.path + "/run.sh");
  };
  EXPECT_TRUE(has(command_of(9), "--kv-len 9 ")) << command_of(9);
  for (const int32_t length : {0, -5}) {  // what the strides allow
    EXPECT_TRUE(has(command_of(length), "--kv-len 18 ")) << command_of(length);
  }
}

TEST(Repro, OfAProblemCompilesNothing) {
  RuntimeOwner runtime = open_runtime();
  Folder folder;
  splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
  workload.batch = 7;
  workload.kv_len = 777;
  const auto dump = [&](const char* problem) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_dump_problem(runtime.get(), "cpu", problem, &workload, "splits=3",
                                  folder.path.c_str(), m);
    });
  };
  const Answer dumped = dump("q=fp32 heads=4/2 dim=32");
  ASSERT_TRUE(dumped.ok()) << dumped;
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 0u);
  EXPECT_TRUE(has(text_of(folder.path + "/kernel.ll"), "define void @splitkv_split_fp32_h4x2_d32"));
  EXPECT_TRUE(has(text_of(folder.path + "/run.sh"), "--batch 7 --kv-len 777"));
  EXPECT_TRUE(has(text_of(folder.path + "/repro.txt"), "not loaded"));
  EXPECT_EQ(dump("q=fp32 heads=4/3 dim=32").status, SPLITKV_UNSUPPORTED);
}

TEST(Repro, WithoutACallHasTheKernelAloneAndAFolderThatCannotBeIsRefusedByItsPath) {
  RuntimeOwner runtime = open_runtime();
  KernelOwner kernel;
  ASSERT_TRUE(prepare(runtime.get(), "cpu", "q=fp32 heads=4/2 dim=32", nullptr, &kernel).ok());
  Folder folder;
  const auto dump = [&](const std::string& path) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_dump_repro(kernel.get(), nullptr, nullptr, path.c_str(), m);
    });
  };
  ASSERT_TRUE(dump(folder.path).ok());
  EXPECT_FALSE(has(text_of(folder.path + "/repro.txt"), "strides"));
  EXPECT_TRUE(has(text_of(folder.path + "/run.sh"), "--batch 1 --kv-len 4096"));
  const std::string blocked = folder.path + "/run.sh/below";
  EXPECT_EQ(dump(blocked).status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(dump(blocked).says(blocked)) << dump(blocked);
}

}  // namespace
