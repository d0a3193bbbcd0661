#include "tests/numeric/contract.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>

#include "compiler/text.hpp"

namespace splitkv::testing_support {

Problem problem_of(const std::string& text) {
  const auto problem = parse_problem(text);
  EXPECT_TRUE(problem.ok()) << (problem ? "" : problem.error().message);
  return *problem;
}

Judged expect_right(const std::string& text, const std::string& schedule,
                    const std::vector<int32_t>& kv_len, uint64_t seed, const tool::StepForm& form) {
  const Problem problem = problem_of(text);
  return expect_right_on(text, schedule, tool::generate_inputs(problem, kv_len, seed, form), seed);
}

Judged expect_right_on(const std::string& text, const std::string& schedule,
                       const tool::Inputs& inputs, uint64_t seed) {
  SCOPED_TRACE(text + " | " + schedule + " | " + fmt::format("{} rows", inputs.batch));
  Judged judged = judge_inputs(test_device(), problem_of(text), schedule, inputs, seed);
  EXPECT_EQ(judged.failure, "");
  EXPECT_TRUE(judged.accuracy.out_ok)
      << judged.accuracy.out_relative_l2 << " above " << judged.accuracy.out_limit << " in row "
      << judged.accuracy.out_worst_row;
  EXPECT_TRUE(judged.accuracy.lse_ok)
      << judged.accuracy.lse_error << " above " << judged.accuracy.lse_limit << " in row "
      << judged.accuracy.lse_worst_row;
  return judged;
}

std::vector<const char*> schedules() {
  std::vector<const char*> all(std::begin(kSchedules), std::end(kSchedules));
  if (has_clusters(test_target())) {
    all.insert(all.end(), {"partition=fixed splits=4 reduce=cluster cluster=4",
                           "partition=strided splits=12 reduce=cluster cluster=4 pdl=on",
                           "partition=fixed splits=8 reduce=kernel pdl=on"});
  }
  return all;
}

void set_element(std::vector<std::byte>& tensor, DType type, int64_t index, float value) {
  store_element(type, tensor.data(), index, value);
}

}  // namespace splitkv::testing_support
