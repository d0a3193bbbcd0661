// Prepared CPU kernels from disk: what they say of themselves, and that they compute the same.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "runtime/splitkv.hpp"
#include "tests/api/decode_case.hpp"
#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;
using namespace splitkv::testing_support;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";

RuntimeOwner open_at(const std::string& folder, uint32_t flags = 0) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.cache_dir = folder.c_str();
  options.flags = flags;
  options.threads = 1;
  return open_runtime(&options);
}

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

TEST(CpuKernelsOnDisk, ComputeTheSameAndSayWhereTheyCameFrom) {
  const TempFolder folder;
  for (const char* schedule :
       {"partition=fixed splits=3 reduce=kernel", "partition=flat blocks=3 reduce=last_block"}) {
    RuntimeOwner first = open_at(folder.path()), second = open_at(folder.path());
    KernelOwner compiled, kept, again;
    ASSERT_TRUE(prepare(first.get(), "cpu", kProblem, schedule, &compiled).ok());
    ASSERT_TRUE(prepare(second.get(), "cpu", kProblem, schedule, &kept).ok());
    ASSERT_TRUE(prepare(second.get(), "cpu", kProblem, schedule, &again).ok());
    const splitkv_kernel_info a = info_of(compiled.get()), b = info_of(kept.get()),
                              c = info_of(again.get());
    EXPECT_STREQ(a.origin, "compiled");
    EXPECT_STREQ(b.origin, "disk");
    EXPECT_STREQ(c.origin, "memory");
    EXPECT_EQ(a.from_memory + b.from_memory, 0);
    EXPECT_EQ(c.from_memory, 1);
    EXPECT_EQ(a.compile_ms, b.compile_ms);  // of the compile that made it
    EXPECT_EQ(a.disk_ms, 0);
    EXPECT_GT(b.disk_ms, 0);
    EXPECT_EQ(a.module_bytes, b.module_bytes);
    EXPECT_EQ(statistics_of(first.get()).compiles, 1u);
    EXPECT_EQ(statistics_of(first.get()).disk_hits, 0u);
    EXPECT_EQ(statistics_of(second.get()).compiles, 0u);
    EXPECT_EQ(statistics_of(second.get()).disk_hits, 1u);
    EXPECT_EQ(statistics_of(second.get()).memory_hits, 1u);
    EXPECT_EQ(statistics_of(second.get()).disk_ms_total, b.disk_ms);
    expect_right(kept.get());
  }
}

TEST(CpuKernelsOnDisk, OfMergesAreKeptToo) {
  const TempFolder folder;
  for (const uint64_t expected : {1u, 0u}) {
    RuntimeOwner runtime = open_at(folder.path());
    splitkv_merger* merger = nullptr;
    ASSERT_EQ(splitkv_prepare_merge(runtime.get(), "cpu", "mlo", "natural", &merger, nullptr),
              SPLITKV_OK);
    splitkv_release_merger(merger);
    EXPECT_EQ(statistics_of(runtime.get()).compiles, expected);
  }
}

TEST(CpuKernelsOnDisk, WithoutJitWhatIsKeptIsTakenAndWhatIsNotIsAStatus) {
  const TempFolder folder;
  KernelOwner kernel;
  ASSERT_TRUE(prepare(open_at(folder.path()).get(), "cpu", kProblem, "splits=2", &kernel).ok());
  RuntimeOwner runtime = open_at(folder.path(), SPLITKV_NO_JIT);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, "splits=2", &kernel).ok());
  expect_right(kernel.get());
  const Answer other = prepare(runtime.get(), "cpu", kProblem, "tile=32 splits=2", &kernel);
  EXPECT_EQ(other.status, SPLITKV_NOT_PREPARED) << other;
  EXPECT_TRUE(other.says("neither in a pack nor in memory nor on disk")) << other;
}

TEST(CpuKernelsOnDisk, NoDiskNeitherReadsNorWrites) {
  const TempFolder folder;
  KernelOwner kernel;
  ASSERT_TRUE(
      prepare(open_at(folder.path(), SPLITKV_NO_DISK).get(), "cpu", kProblem, nullptr, &kernel)
          .ok());
  EXPECT_TRUE(names_in(folder.path()).empty());
  ASSERT_TRUE(prepare(open_at(folder.path()).get(), "cpu", kProblem, nullptr, &kernel).ok());
  RuntimeOwner runtime = open_at(folder.path(), SPLITKV_NO_DISK);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, nullptr, &kernel).ok());
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  setenv("SPLITKV_NO_DISK", "1", 1);
  runtime = open_at(folder.path());
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, nullptr, &kernel).ok());
  unsetenv("SPLITKV_NO_DISK");
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
}

TEST(CpuKernelsOnDisk, ObjectsThatLlvmDoesNotLoadAreCompiledAnew) {
  const TempFolder folder;
  KernelOwner kernel;
  ASSERT_TRUE(prepare(open_at(folder.path()).get(), "cpu", kProblem, nullptr, &kernel).ok());
  const std::string path = folder / "kernels/" + entry_name(info_of(kernel.get()).key);
  const Result<CacheEntry> entry = decode_entry(contents(path));
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->source, info_of(kernel.get()).source);
  StoredCode broken = entry->code;
  broken.images = {"no object file"};  // with a digest that is right
  overwrite(path, encode_entry(entry->key, entry->source, broken));

  CacheCase heard("");
  heard.options.cache_dir = folder.path();
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.cache_dir = folder.path().c_str();
  options.log = heard.options.log;
  options.log_user = &heard;
  RuntimeOwner runtime = open_runtime(&options);
  ASSERT_TRUE(prepare(runtime.get(), "cpu", kProblem, nullptr, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "compiled");
  EXPECT_EQ(heard.warnings(), 1);
  EXPECT_NE(heard.warning().find("is not taken"), std::string::npos) << heard.warning();
  expect_right(kernel.get());
  ASSERT_TRUE(prepare(open_at(folder.path()).get(), "cpu", kProblem, nullptr, &kernel).ok());
  EXPECT_STREQ(info_of(kernel.get()).origin, "disk");
  expect_right(kernel.get());
}

TEST(CpuKernelsOnDisk, TheCppLayerPassesItsOptionsOn) {
  const TempFolder folder;
  splitkv::Options options;
  options.cache_dir = folder.path();
  EXPECT_STREQ(splitkv::Runtime(options).prepare("cpu", kProblem).info().origin, "compiled");
  EXPECT_STREQ(splitkv::Runtime(options).prepare("cpu", kProblem).info().origin, "disk");
  options.no_disk = true;
  EXPECT_STREQ(splitkv::Runtime(options).prepare("cpu", kProblem).info().origin, "compiled");
  options.no_disk = false;
  options.cache_dir = folder / "small";
  options.cache_limit_bytes = 10;
  EXPECT_STREQ(splitkv::Runtime(options).prepare("cpu", kProblem).info().origin, "compiled");
  EXPECT_STREQ(splitkv::Runtime(options).prepare("cpu", kProblem).info().origin, "compiled");
}

TEST(CpuKernelsOnDisk, AnEmptyFolderNameIsRefused) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.cache_dir = "";
  splitkv_runtime* runtime = nullptr;
  const Answer answer =
      answer_of([&](splitkv_message* m) { return splitkv_open(&options, &runtime, m); });
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_TRUE(answer.says("options.cache_dir is empty")) << answer;
}

// The compiler itself, not a stand-in: sixteen processes, four problems.
TEST(CpuKernelsOnDisk, SixteenColdProcessesCompileFourProblemsOnceEach) {
  constexpr int kRounds = 2, kProcesses = 16;
  const char* problems[] = {
      "attention q=fp32 kv=fp32 heads=4/2 dim=8", "attention q=fp32 kv=fp32 heads=4/2 dim=16",
      "attention q=fp32 kv=fp32 heads=4/2 dim=24", "attention q=fp32 kv=fp32 heads=4/2 dim=32"};
  for (int round = 0; round < kRounds; ++round) {
    const TempFolder folder;
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p) {
      children.push_back(start([&] {
        RuntimeOwner runtime = open_at(folder.path());
        for (int i = 0; i < 4; ++i) {
          KernelOwner kernel;
          if (!prepare(runtime.get(), "cpu", problems[(p + i) % 4], nullptr, &kernel).ok())
            return 99;
        }
        return int(statistics_of(runtime.get()).compiles);
      }));
    }
    int compiles = 0;
    for (const pid_t child : children) {
      const int status = status_of(child);
      EXPECT_LE(status, 4);
      compiles += status;
    }
    EXPECT_EQ(compiles, 4) << "in round " << round;
    EXPECT_EQ(names_in(folder / "kernels").size(), 4u);
  }
}

}  // namespace
