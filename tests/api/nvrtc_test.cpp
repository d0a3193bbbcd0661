// NVRTC without a GPU: cubins, logs and refusals.
#include "runtime/cuda/nvrtc.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

using namespace splitkv;

namespace {

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    const auto version = nvrtc_version();
    if (!version) GTEST_SKIP() << "needs NVRTC: " << version.error().message;
  }
};

const KernelSource kGood{SourceLanguage::cuda,
                         "extern \"C\" __global__ void twice(float* x) {\n"
                         "  __shared__ float y[32];\n"
                         "  y[threadIdx.x] = x[threadIdx.x];\n"
                         "  __syncthreads();\n"
                         "  x[threadIdx.x] = 2 * y[31 - threadIdx.x];\n"
                         "}\n",
                         "twice", ""};

TEST_F(Nvrtc, CompilesToAnElfImageWithRegistersInTheLog) {
  const auto cubin = compile_cuda(kGood, "sm_90a");
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  for (const std::string& image : cubin->images) EXPECT_EQ(image.substr(0, 4), "\177ELF");
  EXPECT_GT(cubin->compile_ms, 0);
  EXPECT_EQ(cubin->nvrtc_version, *nvrtc_version());
  const auto entries = parse_ptxas_log(cubin->log);
  ASSERT_EQ(entries.size(), 1u) << cubin->log;
  EXPECT_EQ(entries[0].name, "twice");
  EXPECT_GT(entries[0].registers, 0);
  EXPECT_EQ(entries[0].smem_bytes, 128);
  EXPECT_EQ(entries[0].spill_store_bytes, 0);
}

TEST_F(Nvrtc, ARefusedSourceIsSavedAndNamedWithOptionsAndLog) {
  KernelSource bad = kGood;
  bad.text = "extern \"C\" __global__ void twice() { undeclared_name; }\n";
  const auto cubin = compile_cuda(bad, "sm_80");
  ASSERT_FALSE(cubin.ok());
  EXPECT_EQ(cubin.error().status, Status::compile_failed);
  const std::string& message = cubin.error().message;
  EXPECT_NE(message.find("undeclared_name"), std::string::npos) << message;
  EXPECT_NE(message.find("options: -arch=sm_80 -std=c++20"), std::string::npos) << message;
  const size_t begin = message.find("\nsource: ") + 9;
  const std::string path = message.substr(begin, message.find('\n', begin) - begin);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), bad.text) << path;
  unlink(path.c_str());
}

TEST_F(Nvrtc, AnArchitectureItDoesNotKnowNamesBothVersions) {
  const auto cubin = compile_cuda(kGood, "sm_999a");
  ASSERT_FALSE(cubin.ok());
  EXPECT_EQ(cubin.error().status, Status::unsupported);
  const std::string& message = cubin.error().message;
  EXPECT_NE(message.find("arch=sm_999a is unknown to NVRTC " + *nvrtc_version()), std::string::npos)
      << message;
  EXPECT_NE(message.find("sm_90"), std::string::npos) << message;
}

TEST_F(Nvrtc, AnArchitectureThatIsNoneIsAnInvalidArgument) {
  for (const char* arch : {"", "90a", "sm_", "compute_90"}) {
    const auto cubin = compile_cuda(kGood, arch);
    ASSERT_FALSE(cubin.ok());
    EXPECT_EQ(cubin.error().status, Status::invalid_argument) << arch;
  }
}

TEST(PtxasLog, EachEntryHasItsOwnFiguresAndDeviceFunctionsAreLeftOut) {
  const auto entries = parse_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'reduce' for 'sm_90a'\n"
      "ptxas info    : Function properties for reduce\n"
      "    16 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 16 bytes stack\n"
      "ptxas info    : Function properties for helper\n"
      "    512 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads\n"
      "ptxas info    : Compiling entry function 'split' for 'sm_90a'\n"
      "ptxas info    : Function properties for split\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 128 registers, used 1 barriers, 2048 bytes smem, 232 bytes cmem[0]\n");
  EXPECT_EQ(entries, (std::vector<PtxasEntry>{{.name = "reduce",
                                               .registers = 40,
                                               .stack_bytes = 16,
                                               .spill_store_bytes = 24,
                                               .spill_load_bytes = 28,
                                               .smem_bytes = 0},
                                              {.name = "split",
                                               .registers = 128,
                                               .stack_bytes = 0,
                                               .spill_store_bytes = 0,
                                               .spill_load_bytes = 0,
                                               .smem_bytes = 2048}}));
  EXPECT_TRUE(parse_ptxas_log("").empty());
  EXPECT_TRUE(parse_ptxas_log("warning: something else\n").empty());
}

}  // namespace
