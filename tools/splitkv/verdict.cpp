#include "tools/splitkv/verdict.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "tools/reference/attention.hpp"
#include "tools/splitkv/npy.hpp"

namespace splitkv::tool {
namespace {

reference::Element element_of(DType type) {
  switch (type) {
    case DType::fp32:
      return reference::Element::fp32;
    case DType::fp16:
      return reference::Element::fp16;
    case DType::bf16:
      break;
  }
  return reference::Element::bf16;
}

// Both bases of a natural lse: what the problem puts out, and the natural one.
void set_lse(const Problem& problem, std::vector<double> natural, Expected& expected) {
  expected.lse_natural = natural;
  if (problem.lse == LseOutput::none) return;
  expected.lse = std::move(natural);
  if (problem.lse == LseOutput::natural) return;
  for (double& value : expected.lse) value *= std::numbers::log2e;
}

Result<std::vector<double>> read_expected(const char* option, const std::string& path,
                                          const std::vector<int64_t>& wanted) {
  const Result<FloatArray> array = read_npy_floats(path);
  if (!array) return array.error();
  if (array->shape != wanted) {
    return invalid_argument(fmt::format("{}={} has shape {}; {} would fit", option, path,
                                        print_shape(array->shape), print_shape(wanted)));
  }
  return std::vector<double>(array->values.begin(), array->values.end());
}

}  // namespace

Expected expect_from_reference(const Problem& problem, const Inputs& inputs) {
  reference::Attention attention;
  attention.q_heads = problem.q_heads;
  attention.kv_heads = problem.kv_heads;
  attention.dim_qk = problem.dim_qk;
  attention.dim_v = problem.dim_v;
  attention.scale = scale_of(problem);
  attention.softcap = problem.softcap;
  attention.window = problem.window;
  attention.q = reference::dense(element_of(problem.q_dtype), inputs.q.data(), problem.q_heads, 1,
                                 problem.dim_qk);
  attention.k = reference::dense(element_of(problem.k_dtype), inputs.k.data(), problem.kv_heads,
                                 inputs.capacity, problem.dim_qk);
  attention.v = reference::dense(element_of(problem.v_dtype), inputs.v.data(), problem.kv_heads,
                                 inputs.capacity, problem.dim_v);
  attention.kv_len.assign(inputs.kv_len.begin(), inputs.kv_len.end());
  reference::Answer answer = reference::attend(attention);
  Expected expected;
  expected.origin = "fp64 reference";
  expected.out = std::move(answer.out);
  set_lse(problem, std::move(answer.lse), expected);
  return expected;
}

Result<Expected> expect_from_files(const Problem& problem, int64_t batch,
                                   const std::string& out_path, const std::string& lse_path) {
  Expected expected;
  if (!out_path.empty()) {
    const auto out =
        read_expected("--expect-out", out_path, {batch, problem.q_heads, problem.dim_v});
    if (!out) return out.error();
    expected.origin = out_path;
    expected.out = *out;
  }
  if (!lse_path.empty()) {
    const auto lse = read_expected("--expect-lse", lse_path, {batch, problem.q_heads});
    if (!lse) return lse.error();
    expected.origin += (expected.origin.empty() ? "" : ", ") + lse_path;
    expected.lse = expected.lse_natural = *lse;
    if (problem.lse == LseOutput::base2) {
      for (double& value : expected.lse_natural) value *= std::numbers::ln2;
    }
  }
  return expected;
}

reference::Tolerance tolerance_of(const Problem& problem, bool exchanged_lse_partials) {
  const std::array types = {element_of(problem.q_dtype), element_of(problem.k_dtype),
                            element_of(problem.v_dtype), element_of(problem.out_dtype)};
  const reference::Tolerance tolerance = reference::tolerance_for(types);
  if (!exchanged_lse_partials) return tolerance;
  return reference::widened_for_lse_partials(tolerance);
}

reference::Accuracy judge(const Problem& problem, const Execution& execution,
                          const Expected& expected, const reference::Tolerance& tolerance) {
  const std::vector<double> out(execution.out.begin(), execution.out.end());
  const std::vector<double> lse(execution.lse.begin(), execution.lse.end());
  reference::Comparison comparison;
  comparison.dim = problem.dim_v;
  if (!expected.out.empty()) {
    comparison.out = out;
    comparison.expected_out = expected.out;
  }
  comparison.lse_natural = expected.lse_natural;
  if (!expected.lse.empty()) {
    comparison.lse = lse;
    comparison.expected_lse = expected.lse;
  }
  return reference::compare(comparison, tolerance);
}

}  // namespace splitkv::tool
