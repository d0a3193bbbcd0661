// Plants faults, one at a time, in the emitted code of each target: in merge, masks, tails,
// partition and the rest. Every planted fault must be caught, and the code without one must pass on
// the same inputs. The CUDA half needs a GPU (SPLITKV_TEST_DEVICE=cuda:0).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/mutation/planted.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv {
namespace {

using testing_support::Mutant;
using testing_support::Planter;

void expect_all_caught(const std::string& device, std::span<const Mutant> mutants) {
  Planter planter(device);
  std::set<std::string> sound, parts;
  for (const Mutant& mutant : mutants) {
    SCOPED_TRACE(mutant.name);
    const auto& setting = mutant.setting;
    if (!planter.suits(setting)) {
      std::printf("  left out: %s is not of the architecture for %s\n", device.c_str(),
                  mutant.name);
      continue;
    }
    if (sound.insert(std::string(setting.problem) + setting.schedule).second) {
      const auto clean = planter.run(setting, "", "");
      EXPECT_EQ(clean.failure, "");
      EXPECT_TRUE(clean.right) << "wrong without a planted fault: " << setting.problem << " | "
                               << setting.schedule;
    }
    const auto planted = planter.run(setting, mutant.from, mutant.to);
    EXPECT_EQ(planted.failure, "") << "a planted fault must compile and run to prove anything";
    EXPECT_FALSE(planted.right) << "not caught: " << mutant.name;
    parts.insert(mutant.part);
    std::printf("  %s  %-9s %s\n", planted.right ? "MISSED" : "caught", mutant.part, mutant.name);
    std::fflush(stdout);
  }
  for (const char* part : {"merge", "mask", "tail", "partition"})
    EXPECT_TRUE(parts.contains(part)) << part;
  EXPECT_GE(mutants.size(), 12u);
  const bool is_test_device = device == testing_support::test_device();
  std::printf("%zu faults planted on %s\n", mutants.size(),
              is_test_device ? testing_support::test_device_name().c_str() : device.c_str());
}

void expect_to_fit(std::span<const Mutant> mutants) {
  const Target target = *parse_target("cuda:sm_90a");
  for (const Mutant& mutant : mutants) {
    SCOPED_TRACE(mutant.name);
    const auto problem = parse_problem(mutant.setting.problem);
    const auto schedule = parse_schedule(mutant.setting.schedule);
    ASSERT_TRUE(problem.ok() && schedule.ok());
    const auto refusal = verify(*problem, *schedule, target);
    ASSERT_FALSE(refusal) << to_string(*refusal);
    KernelSource source = emit(*problem, *schedule, target);
    const Outcome planted = testing_support::plant(source, mutant.from, mutant.to);
    EXPECT_TRUE(planted.ok()) << planted.error().message;
  }
}

// Needs no GPU: an edit of a template that a fault no longer fits shows here.
TEST(Mutation, EveryFaultOfCudaFitsOnePlaceOfTheEmittedSource) {
  expect_to_fit(testing_support::cuda_mutants());
  expect_to_fit(testing_support::race_mutants());
}

TEST(Mutation, EveryFaultPlantedInLlvmIrIsCaught) {
#ifndef SPLITKV_HAS_CPU
  GTEST_SKIP() << "built without the CPU target";
#else
  expect_all_caught("cpu", testing_support::llvm_mutants());
#endif
}

TEST(Mutation, EveryFaultPlantedInCudaSourceIsCaught) {
  const char* device = std::getenv("SPLITKV_TEST_DEVICE");
  if (device == nullptr || std::string(device).rfind("cuda", 0) != 0) {
    GTEST_SKIP() << "SPLITKV_TEST_DEVICE names no GPU";
  }
  expect_all_caught(device, testing_support::cuda_mutants());
}

// What the emulated device reports, a deadlock perhaps, is noticed too; what its compiler refuses
// proves nothing.
TEST(Mutation, EveryRacePlantedInCudaSourceIsNoticed) {
  const std::string device = testing_support::test_device_name();
  if (!device.starts_with("emulated")) {
    GTEST_SKIP() << "on " << device << " a race may give the right result";
  }
  Planter planter(testing_support::test_device());
  for (const Mutant& mutant : testing_support::race_mutants()) {
    SCOPED_TRACE(mutant.name);
    const auto planted = planter.run(mutant.setting, mutant.from, mutant.to);
    EXPECT_EQ(planted.failure.find("refused the source"), std::string::npos) << planted.failure;
    EXPECT_FALSE(planted.right) << "not noticed";
    std::printf("  %s  %-9s %s\n", planted.right ? "MISSED" : "caught", mutant.part, mutant.name);
  }
  std::printf("%zu races planted on %s\n", testing_support::race_mutants().size(), device.c_str());
}

}  // namespace
}  // namespace splitkv
