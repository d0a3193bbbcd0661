#include "compiler/target.hpp"

#include <gtest/gtest.h>

#include "compiler/problem.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

TEST(Target, EveryKnownArchitectureReadsBackAndRunsAPlainProblem) {
  ASSERT_EQ(known_cuda_targets().size(), 7u);
  for (const Target& target : known_cuda_targets()) {
    EXPECT_EQ(parse_target(print(target)).value(), target);
    EXPECT_FALSE(verify(Problem{}, target)) << target.arch;
    EXPECT_LT(target.smem_per_block_bytes, target.smem_per_sm_bytes);
  }
}

TEST(Target, HasTheComputeCapabilityThatItsNameSays) {
  const auto capability = [](std::string_view text) {
    return compute_capability(parse_target(text).value());
  };
  EXPECT_EQ(capability("cuda:sm_80"), 80);
  EXPECT_EQ(capability("cuda:sm_90a"), 90);
  EXPECT_EQ(capability("cuda:sm_103a"), 103);
  EXPECT_EQ(capability("cpu:x86-64-v3"), 0);
  EXPECT_EQ(compute_capability(Target{}), 0);
}

TEST(Target, OfACpuTakesTheVectorWidthFromTheNameOrFromTheOverride) {
  const auto bits = [](std::string_view text) { return parse_target(text).value().vector_bits; };
  EXPECT_EQ(bits("cpu:x86-64-v2"), 128);
  EXPECT_EQ(bits("cpu:x86-64-v3"), 256);
  EXPECT_EQ(bits("cpu:x86-64-v4"), 512);
  EXPECT_EQ(bits("cpu:x86-64-v3:128"), 128);
  EXPECT_EQ(bits("cpu:neoverse-n1:128"), 128);
  EXPECT_EQ(parse_target("cpu:x86-64-v3").value().arch, "x86-64-v3");
}

TEST(Target, OfACpuPrintsTheWidthOnlyWhereItIsNotTheNamesOwn) {
  for (const char* text : {"cpu:x86-64-v3", "cpu:x86-64-v3:128", "cpu:host:512"})
    EXPECT_EQ(print(parse_target(text).value()), text);
  EXPECT_EQ(print(parse_target("cpu:x86-64-v3:256").value()), "cpu:x86-64-v3");
}

}  // namespace
}  // namespace splitkv
