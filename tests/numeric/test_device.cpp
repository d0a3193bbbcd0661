#include "tests/numeric/test_device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/text.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/symbols.hpp"
#endif
#include "runtime/splitkv.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/partials.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::testing_support {

std::string test_device() {
  const char* device = std::getenv("SPLITKV_TEST_DEVICE");
  return device != nullptr ? device : "cpu";
}

bool is_emulated() {
#ifdef SPLITKV_HAS_CUDA
  if (!test_device().starts_with("cuda")) return false;
  const auto driver = cuda::driver();
  char name[64] = "";
  const bool named = driver && (*driver)->cuDeviceGetName(name, sizeof(name), 0) == cuda::kSuccess;
  return named && std::string_view(name).starts_with("emulated");
#else
  return false;
#endif
}

std::string test_device_name() { return (is_emulated() ? "emulated " : "") + test_device(); }

Target test_target() {
  if (test_device().starts_with("cpu")) return *parse_target("cpu:x86-64-v3");
  const auto target = tool::chosen_target(test_device());
  EXPECT_TRUE(target.ok()) << (target.ok() ? "" : target.error().message);
  return target.ok() ? *target : Target{};
}

bool has_clusters(const Target& target) { return compute_capability(target) >= kFirstWithClusters; }

Judged run_and_judge(const std::string& device, const Problem& problem, const std::string& schedule,
                     const std::vector<int32_t>& kv_len, uint64_t seed) {
  return judge_inputs(device, problem, schedule, tool::generate_inputs(problem, kv_len, seed),
                      seed);
}

Judged judge_inputs(const std::string& device, const Problem& problem, const std::string& schedule,
                    const tool::Inputs& inputs, uint64_t seed) {
  Judged judged;
  static Runtime runtime;  // kernels of equal code are compiled once
  auto execution = tool::execute(runtime, {device, schedule, 1, seed}, problem, inputs);
  if (!execution) {
    judged.failure = execution.error().message;
    return judged;
  }
  judged.execution = std::move(*execution);
  const auto chosen = parse_schedule(judged.execution.schedule);
  if (!chosen) {
    judged.failure = "the kernel's schedule does not parse: " + chosen.error().message;
    return judged;
  }
  const tool::PartialCount partials =
      tool::count_partials(problem, *chosen, tool::rows_of(problem, inputs));
  const tool::Expected expected = tool::expect_from_reference(problem, inputs);
  judged.accuracy = tool::judge(problem, judged.execution, expected,
                                tool::tolerance_of(problem, *chosen, partials));
  return judged;
}

}  // namespace splitkv::testing_support
