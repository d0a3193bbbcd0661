// What the tests of the contracts share: one run that must be right.
#pragma once

#include <string>
#include <vector>

#include "tests/numeric/test_device.hpp"

namespace splitkv::testing_support {

Problem problem_of(const std::string& text);

// Runs on generated inputs and expects the accuracy contract; gives the execution for more
// questions.
Judged expect_right(const std::string& text, const std::string& schedule,
                    const std::vector<int32_t>& kv_len, uint64_t seed = 1,
                    const tool::StepForm& form = {});

// The same on given inputs.
Judged expect_right_on(const std::string& text, const std::string& schedule,
                       const tool::Inputs& inputs, uint64_t seed = 1);

// One of each partition and reduce, with one piece and many.
inline constexpr const char* kSchedules[] = {
    "partition=fixed splits=1",
    "partition=fixed splits=2 reduce=kernel",
    "partition=fixed splits=8 reduce=last_block",
    "partition=strided splits=3 reduce=kernel",
    "partition=strided splits=64 reduce=last_block",
    "partition=flat blocks=7 reduce=kernel",
    "partition=flat blocks=64 reduce=last_block",
};

// kSchedules, and where the device has them clusters, one or several a sequence, and programmatic
// launches of both kernels.
std::vector<const char*> schedules();

// Element `index` of a tensor of Inputs.
void set_element(std::vector<std::byte>& tensor, DType type, int64_t index, float value);

}  // namespace splitkv::testing_support
