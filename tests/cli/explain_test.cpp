// explain: what is predicted and compiled, without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

namespace splitkv::cli_test {
namespace {

const std::string kProblem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";

Finished explained(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"explain", kProblem};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_splitkv(arguments);
}

TEST(Explain, SaysWhereTheTimeGoesWithoutAGpu) {
  const Finished shown = explained({"--kv-len", "8192", "--target", "cuda:sm_90a"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(line_of(shown.out, "problem"), kProblem);
  EXPECT_EQ(line_of(shown.out, "rows"), "1 of 8192 tokens");
  EXPECT_NE(line_of(shown.out, "bytes").find("33.554 MB of K and V"), std::string::npos);
  EXPECT_NE(line_of(shown.out, "floor").find("7.14 us at 4700 GB/s"), std::string::npos);
  for (const char* label :
       {"predicted", "parts", "binds", "blocks", "occupancy", "in flight", "kernel"})
    EXPECT_NE(line_of(shown.out, label), "") << label << "\n" << shown.out;
  EXPECT_EQ(line_of(shown.out, "measured"), "");
}

TEST(Explain, GivesEveryOtherPartitionAndReduceInOrder) {
  const Finished shown = explained({"--kv-len", "8192", "--target", "cuda:sm_90a", "--schedule",
                                    "partition=fixed splits=8 reduce=kernel", "--format", "json"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const auto json = nlohmann::json::parse(shown.out);
  EXPECT_EQ(json["chosen"]["kind"], "fixed, kernel");
  EXPECT_EQ(json["kv_bytes"], 33554432);
  std::vector<std::string> kinds;
  double before = 0;
  for (const auto& other : json["others"]) {
    kinds.push_back(other["kind"]);
    EXPECT_GE(other["predicted_us"].get<double>(), before);
    before = other["predicted_us"];
  }
  for (const char* kind : {"fixed, last_block", "fixed, cluster of 8", "flat, kernel",
                           "flat, last_block", "strided, kernel", "strided, cluster of 2"})
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kind), 1) << kind;
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "fixed, kernel"), 0);
  double parts = 0;
  for (const auto& [name, us] : json["chosen"]["parts_us"].items()) parts += us.get<double>();
  EXPECT_NEAR(parts, json["chosen"]["predicted_us"].get<double>(), 1e-6);
  // A split block has its stages, a reduce block has not.
  for (const auto& kernel : json["kernels"]) {
    const bool is_split = kernel["name"].get<std::string>().find("reduce") == std::string::npos;
    EXPECT_EQ(kernel["smem_bytes"].get<int64_t>() > 32768, is_split) << kernel;
  }
  // Either what the compiler says, or why it said nothing.
  EXPECT_NE(json["kernels"].empty(), !json.contains("not_compiled"));
}

TEST(Explain, OfAnOlderArchitectureHasNoClusters) {
  const Finished shown = explained({"--kv-len", "8192", "--target", "cuda:sm_80"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(shown.out.find("cluster"), std::string::npos) << shown.out;
}

TEST(Explain, TakesTheLengthsOfAllRows) {
  const Finished shown = explained({"--kv-len", "1024,1024,65536", "--target", "cuda:sm_90a"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(line_of(shown.out, "rows"), "2 of 1024, 1 of 65536 tokens");
}

#ifdef SPLITKV_TEST_FAKE_LIBCUDA
// The stand-in runs nothing: that all of --measure was walked through shows in every schedule's
// being there, none with a result.
TEST(Explain, MeasuresEveryScheduleAndTakesNoWrongResult) {
  const std::vector<std::string> arguments = {"explain",
                                              "attention q=bf16 kv=bf16 heads=4/2 dim=64",
                                              "--kv-len",
                                              "4096",
                                              "--target",
                                              "cuda:0",
                                              "--measure",
                                              "--format",
                                              "json",
                                              "--repeat",
                                              "2",
                                              "--schedule",
                                              "partition=fixed splits=8 reduce=kernel"};
  if (run_splitkv({"compile", kProblem, "--target", "cuda:sm_90a"}).status != 0)
    GTEST_SKIP() << "NVRTC is not here";
  const Finished shown =
      run_splitkv(arguments, {"SPLITKV_LIBCUDA=" + std::string(SPLITKV_TEST_FAKE_LIBCUDA)});
  ASSERT_EQ(shown.status, 1) << shown.err << "a result that was not compared is none";
  const auto json = nlohmann::json::parse(shown.out);
  EXPECT_NE(json["device"].get<std::string>().find("Stand-in"), std::string::npos);
  EXPECT_NE(json["floor_method"], "");
  EXPECT_GT(json["measured_floor_us"], 0);
  EXPECT_GE(json["others"].size(), 6u);
  EXPECT_EQ(json["chosen"]["kind"], "fixed, kernel");
  std::vector<nlohmann::json> all(json["others"].begin(), json["others"].end());
  all.push_back(json["chosen"]);
  for (const nlohmann::json& one : all) {
    EXPECT_FALSE(one.contains("measured_us")) << one;
    EXPECT_NE(one["failure"].get<std::string>().find("were compared instead of"), std::string::npos)
        << one;
  }
}
#endif

TEST(Explain, SaysWhatWouldWork) {
  const auto refused = [](std::vector<std::string> words, const std::string& says) {
    const Finished shown = explained(std::move(words));
    EXPECT_EQ(shown.status, 2) << shown.out;
    EXPECT_NE(shown.err.find(says), std::string::npos) << shown.err;
  };
  refused({"--target", "cuda:sm_90a"}, "--kv-len");
  refused({"--kv-len", "64", "--target", "cuda:sm_90a", "--format", "xml"},
          "--format=xml: text or json would work");
  refused({"--kv-len", "64", "--target", "cpu:x86-64-v3"}, "cuda:sm_90a");
  refused({"--kv-len", "64", "--target", "cuda:sm_90a", "--measure"}, "--target=cuda:sm_90a");
  refused({"--kv-len", "64", "--target", "cuda:sm_90a", "--schedule", "splits=5000"},
          "splits=5000");
}

}  // namespace
}  // namespace splitkv::cli_test
