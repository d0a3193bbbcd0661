// Which device the numeric tests run on, and one run of a problem there, judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/target.hpp"
#include "tools/reference/accuracy.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::testing_support {

// SPLITKV_TEST_DEVICE: "cpu" (default), "cpu:x86-64-v2", "cuda:0", ...
std::string test_device();

// Whether tests/emulator stands in for the GPU.
bool is_emulated();

// The same for what tests print: "emulated cuda:0" where no GPU is behind it.
std::string test_device_name();

// A target to draw schedules for: legal on it is legal on the device. A GPU's own; without the
// device it names, the test fails. On the CPU one that every host has.
Target test_target();

// Whether clusters and programmatic launches are legal on a target: CUDA from sm_90 up.
bool has_clusters(const Target& target);

struct Judged {
  std::string failure;  // empty: the run happened
  tool::Execution execution;
  reference::Accuracy accuracy;
};

// Generated inputs (poisoned outside every row's keys), run, compared with the fp64 reference.
Judged run_and_judge(const std::string& device, const Problem& problem, const std::string& schedule,
                     const std::vector<int32_t>& kv_len, uint64_t seed);

// The same on given inputs.
Judged judge_inputs(const std::string& device, const Problem& problem, const std::string& schedule,
                    const tool::Inputs& inputs, uint64_t seed);

}  // namespace splitkv::testing_support
