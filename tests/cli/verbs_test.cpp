// show, emit, compile and doctor.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/cli/process.hpp"

namespace splitkv::cli_test {
namespace {

const std::string kProblem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";

TEST(Show, PrintsCanonicalTextScheduleAndResources) {
  const Finished shown = run_splitkv({"show", "dim=128 heads=32/8 q=bf16 merge=auto", "--target",
                                      "cuda:sm_90a", "--batch", "4", "--kv-len", "8192"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(line_of(shown.out, "problem"), kProblem);
  EXPECT_EQ(line_of(shown.out, "target"), "cuda:sm_90a");
  EXPECT_EQ(line_of(shown.out, "schedule").substr(0, 19), "schedule family=mma");
  EXPECT_NE(line_of(shown.out, "why"), "");
  EXPECT_NE(line_of(shown.out, "resources").find("threads a block"), std::string::npos);
  EXPECT_NE(line_of(shown.out, "grid").find("split blocks"), std::string::npos);
}

TEST(Show, HonoursWordsOfASchedule) {
  const Finished shown = run_splitkv(
      {"show", kProblem, "--target", "cuda:sm_90a", "--schedule", "partition=strided splits=7"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(line_of(shown.out, "schedule").find("partition=strided splits=7"), std::string::npos);
}

TEST(Show, PrintsTheProblemsOfAModel) {
  const Finished shown =
      run_splitkv({"show", "--model", std::string(SPLITKV_TEST_MODELS) + "/gemma-2-27b.json",
                   "--target", "cuda:sm_90a"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("layers    23 (sliding)\nproblem   attention q=fp32 kv=fp32 heads=32/16 "
                           "dim=128 scale=0.08333333333333333 softcap=50 window=4096\n"),
            std::string::npos)
      << shown.out;
}

TEST(Show, PrintsARefusalAndEndsWithStatus2) {
  const Finished shown = run_splitkv(
      {"show", "attention q=bf16 kv=bf16 heads=32/8 dim=584", "--target", "cuda:sm_90a"});
  EXPECT_EQ(shown.status, 2);
  EXPECT_NE(line_of(shown.out, "refused").find("dim=584"), std::string::npos) << shown.out;
}

TEST(Emit, WritesSourceWhoseFirstLineIsTheProblem) {
  const Folder folder;
  const std::string file = folder.file("kernel.cu");
  const Finished printed = run_splitkv({"emit", kProblem, "--target", "cuda:sm_80"});
  ASSERT_EQ(printed.status, 0) << printed.err;
  EXPECT_NE(printed.out.substr(0, printed.out.find('\n')).find(kProblem), std::string::npos);
  const Finished written = run_splitkv({"emit", kProblem, "--target", "cuda:sm_80", "-o", file});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, "");
  std::ifstream stream(file, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), printed.out);
}

TEST(Emit, WritesLlvmIrForACpu) {
  const Finished printed = run_splitkv({"emit", kProblem, "--target", "cpu:x86-64-v3"});
#ifdef SPLITKV_HAS_CPU
  ASSERT_EQ(printed.status, 0) << printed.err;
  EXPECT_NE(printed.out.find("define "), std::string::npos);
#else
  EXPECT_EQ(printed.status, 0) << printed.err;
#endif
}

#ifdef SPLITKV_HAS_CPU
TEST(Compile, ForTheCpuNeedsNoGpu) {
  const Finished compiled = run_splitkv({"compile", kProblem, "--target", "cpu"});
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_NE(line_of(compiled.out, "compile").find("bytes of code"), std::string::npos);
}
#endif

#ifdef SPLITKV_HAS_CUDA
TEST(Compile, ForCudaNeedsNoGpuButNvrtc) {
  const Finished compiled = run_splitkv({"compile", kProblem, "--target", "cuda:sm_90a"});
  if (compiled.status == 3) GTEST_SKIP() << "NVRTC is not here: " << compiled.err;
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_NE(line_of(compiled.out, "compile").find("cubin of"), std::string::npos);
  const std::string kernel = line_of(compiled.out, "kernel");
  EXPECT_NE(kernel.find(" registers, 0 bytes spilled"), std::string::npos) << compiled.out;
}

TEST(Doctor, NamesEveryLibraryTriedAndTheCommandThatMends) {
  const Finished asked = run_splitkv(
      {"doctor"}, {"SPLITKV_LIBNVRTC=/nowhere/libnvrtc.so", "SPLITKV_LIBCUDA=/nowhere/libcuda.so"});
  EXPECT_NE(line_of(asked.out, "libcuda").find("/nowhere/libcuda.so"), std::string::npos)
      << asked.out;
  EXPECT_NE(line_of(asked.out, "libnvrtc").find("/nowhere/libnvrtc.so"), std::string::npos);
  EXPECT_NE(line_of(asked.out, "libnvrtc").find("pip install nvidia-cuda-nvrtc"),
            std::string::npos);
#ifdef SPLITKV_HAS_CPU
  EXPECT_EQ(asked.status, 0) << asked.out;
#else
  EXPECT_EQ(asked.status, 3) << asked.out;
#endif
}

TEST(Run, WithoutADriverSaysWhichLibrariesItTried) {
  const Finished ran = run_splitkv({"run", kProblem, "--kv-len", "9", "--target", "cuda"},
                                   {"SPLITKV_LIBCUDA=/nowhere/libcuda.so"});
  EXPECT_EQ(ran.status, 3) << ran.out;
  EXPECT_NE(ran.err.find("/nowhere/libcuda.so"), std::string::npos) << ran.err;
}
#endif

#ifdef SPLITKV_HAS_CPU
TEST(Doctor, NamesTheCpuAndItsVectorWidth) {
  const Finished asked = run_splitkv({"doctor"});
  EXPECT_EQ(asked.status, 0) << asked.out << asked.err;
  EXPECT_NE(line_of(asked.out, "cpu").find("vectors of"), std::string::npos) << asked.out;
  EXPECT_EQ(line_of(asked.out, "cpu compiler").substr(0, 2), "ok") << asked.out;
}
#endif

TEST(Version, IsPrinted) {
  const Finished printed = run_splitkv({"--version"});
  EXPECT_EQ(printed.status, 0);
  EXPECT_EQ(printed.out.substr(0, 2), "0.");
}

}  // namespace
}  // namespace splitkv::cli_test
