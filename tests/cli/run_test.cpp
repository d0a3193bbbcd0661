// `splitkv run --check` on the CPU.
#include <gtest/gtest.h>

#include "tests/cli/process.hpp"

namespace splitkv::cli_test {
namespace {

#ifdef SPLITKV_HAS_CPU

Finished check(const std::string& problem, const std::string& kv_len,
               std::vector<std::string> rest = {}) {
  std::vector<std::string> arguments = {"run", problem,   "--kv-len", kv_len, "--target",
                                        "cpu", "--check", "--repeat", "2"};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return run_splitkv(arguments);
}

void expect_ok(const Finished& finished, size_t runs = 1) {
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_EQ(finished.err, "");
  size_t ok = 0;
  for (size_t at = 0; (at = finished.out.find("\ncheck     ok", at)) != std::string::npos; ++at) {
    ++ok;
  }
  EXPECT_EQ(ok, runs) << finished.out;
}

TEST(Run, AgreesWithTheReferenceOnEveryLayoutAndType) {
  expect_ok(check("attention q=fp32 kv=fp32 heads=4/2 dim=64 lse=natural", "300,0,1,17"));
  expect_ok(check("attention q=fp16 kv=fp16 heads=7/1 dim=80 kv_layout=bthd lse=base2", "100,33"));
  expect_ok(check("attention q=bf16 kv=bf16 heads=8/2 dim=128 kv_layout=paged:16:nhd lse=natural",
                  "200,15,16,17"));
  expect_ok(
      check("attention q=fp32 k=bf16 v=fp16 out=fp16 heads=6/3 dim=64/40 "
            "kv_layout=paged:3:hnd window=50 softcap=20 scale=0.2 lse=natural",
            "120,49,50,51,0"));
}

TEST(Run, AgreesWithTheReferenceWhateverThePartition) {
  const std::string problem = "attention q=fp32 kv=fp32 heads=4/2 dim=64 lse=natural";
  for (const char* schedule :
       {"partition=fixed splits=3 tile=16", "partition=strided splits=7 tile=16",
        "partition=flat blocks=5 tile=16", "partition=flat blocks=40 tile=16 reduce=last_block"}) {
    const Finished finished =
        check(problem, "100,0,257", {"--schedule", schedule, "--merge", "mlo,lse"});
    SCOPED_TRACE(schedule);
    expect_ok(finished, 2);
    const std::string partials = line_of(finished.out, "partials");
    EXPECT_EQ(partials.find("none"), std::string::npos) << partials;
  }
}

TEST(Run, SaysWhatItDid) {
  const Finished finished = check("attention q=bf16 kv=bf16 heads=8/2 dim=64 lse=natural", "128",
                                  {"--batch", "2", "--seed", "9"});
  expect_ok(finished);
  EXPECT_NE(line_of(finished.out, "inputs").find("seed 9, batch 2, kv_len 128, digest "),
            std::string::npos);
  EXPECT_EQ(line_of(finished.out, "target").substr(0, 4), "cpu:");
  EXPECT_EQ(line_of(finished.out, "problem"),
            "attention q=bf16 kv=bf16 heads=8/2 dim=64 lse=natural");
  EXPECT_EQ(line_of(finished.out, "schedule").substr(0, 22), "schedule family=vector");
  EXPECT_NE(line_of(finished.out, "why"), "");
  EXPECT_NE(line_of(finished.out, "compile").find(" ms"), std::string::npos);
  EXPECT_NE(line_of(finished.out, "run").find("median of 2 runs"), std::string::npos);
  // 2 rows of 128 tokens, 2 kv heads, 64 + 64 numbers of 2 bytes.
  EXPECT_EQ(line_of(finished.out, "kv").substr(0, 13), "131072 bytes,") << finished.out;
  EXPECT_NE(line_of(finished.out, "partials"), "");
  EXPECT_NE(line_of(finished.out, "check").find("tolerance 4.00e-03"), std::string::npos);
  EXPECT_NE(line_of(finished.out, "check").find("lse: error"), std::string::npos);
}

TEST(Run, MakesTheSameInputsEveryTime) {
  const std::string problem = "attention q=fp32 kv=fp32 heads=2/1 dim=32";
  const std::string once = line_of(check(problem, "40,7", {"--seed", "3"}).out, "inputs");
  EXPECT_EQ(once, line_of(check(problem, "40,7", {"--seed", "3"}).out, "inputs"));
  EXPECT_NE(once, line_of(check(problem, "40,7", {"--seed", "4"}).out, "inputs"));
  EXPECT_NE(once, "");
}

TEST(Run, RunsEveryProblemOfAModel) {
  const Finished finished =
      run_splitkv({"run", "q=bf16 kv=bf16 kv_layout=paged:16:nhd", "--model",
                   std::string(SPLITKV_TEST_MODELS) + "/gemma-2-9b.json", "--kv-len", "70",
                   "--target", "cpu", "--check", "--repeat", "1"});
  EXPECT_EQ(finished.out.rfind("layers    21 (sliding)\n", 0), 0u) << finished.out;
  EXPECT_NE(finished.out.find("\nlayers    21 (full)\n"), std::string::npos);
  expect_ok(finished, 2);
}

#endif

}  // namespace
}  // namespace splitkv::cli_test
