#include "tools/splitkv/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "compiler/text.hpp"
#include "tools/reference/attention.hpp"
#include "tools/splitkv/npy.hpp"
#include "tools/splitkv/step_memory.hpp"

namespace splitkv::tool {
namespace {

reference::Element element_of(DType type) {
  switch (type) {
    case DType::fp32:
      return reference::Element::fp32;
    case DType::fp16:
      return reference::Element::fp16;
    case DType::e4m3:
      return reference::Element::e4m3;
    case DType::e5m2:
      return reference::Element::e5m2;
    case DType::int8:
      return reference::Element::int8;
    case DType::bf16:
      break;
  }
  return reference::Element::bf16;
}

// The text behind `key` among the words of a problem; empty where it has no such word.
std::string word_of(const Problem& problem, const std::string& key) {
  const std::string text = print(problem);
  const std::string start = " " + key + "=";
  const size_t at = text.find(start);
  if (at == std::string::npos) return "";
  const size_t first = at + start.size();
  return text.substr(first, text.find(' ', first) - first);
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

reference::ReadScale scale_reader(const Problem& problem, const Inputs& inputs, KvScale kind,
                                  const std::vector<float>& values) {
  if (kind == KvScale::none) return nullptr;
  const int64_t heads = problem.kv_heads, capacity = inputs.capacity;
  return [=, &values](int64_t row, int64_t head, int64_t key) -> double {
    if (kind == KvScale::tensor) return values[0];
    if (kind == KvScale::head) return values[size_t(head)];
    return values[size_t((row * heads + head) * capacity + key)];
  };
}

reference::Param param_of(const Param& param, const std::vector<float>& values) {
  using Per = reference::Param::Per;
  const Per per = param.scope == ParamScope::scalar ? Per::all
                  : param.scope == ParamScope::head ? Per::head
                                                    : Per::row;
  return {param.name, per, doubles(values)};
}

// K, V and q of the reference; the readers refer to `inputs`.
void set_tensors(const Problem& problem, const Inputs& inputs, reference::Attention& attention) {
  const auto element = element_of(problem.q_dtype);
  attention.q = [=, &problem, &inputs](int64_t row, int64_t head, int64_t query, double* values) {
    const int64_t first =
        (token_row(problem, inputs, row, query) * problem.q_heads + head) * problem.dim_qk;
    for (int64_t i = 0; i < problem.dim_qk; ++i) {
      values[i] = reference::value_at(element, inputs.q.data(), first + i);
    }
  };
  attention.k = reference::dense(element_of(problem.k_dtype), inputs.k.data(), problem.kv_heads,
                                 inputs.capacity, problem.dim_qk);
  attention.k_scale = scale_reader(problem, inputs, problem.k_scale, inputs.k_scale);
  if (!problem.v_in_k) {
    attention.v = reference::dense(element_of(problem.v_dtype), inputs.v.data(), problem.kv_heads,
                                   inputs.capacity, problem.dim_v);
    attention.v_scale = scale_reader(problem, inputs, problem.v_scale, inputs.v_scale);
    return;
  }
  attention.v = [&problem, k = attention.k](int64_t row, int64_t head, int64_t token,
                                            double* values) {
    std::vector<double> whole(size_t(problem.dim_qk));
    k(row, head, token, whole.data());
    std::copy_n(whole.begin(), problem.dim_v, values);
  };
  attention.v_scale = attention.k_scale;
}

void set_score_and_mask(const Problem& problem, const Inputs& inputs,
                        reference::Attention& attention) {
  attention.scale = scale_of(problem);
  attention.softcap = problem.softcap;
  attention.alibi_slopes = doubles(inputs.alibi_slopes);
  attention.score = word_of(problem, "score");
  attention.predicate = word_of(problem, "where");
  for (size_t i = 0; i < problem.params.size(); ++i) {
    attention.params.push_back(param_of(problem.params[i], inputs.params[i]));
  }
  attention.mask = problem.mask == Mask::causal ? reference::Mask::causal
                   : problem.mask == Mask::tree ? reference::Mask::tree
                                                : reference::Mask::none;
  attention.window = problem.window;
  attention.chunk = problem.chunk;
  attention.sinks = doubles(inputs.sink);
  if (problem.bias) {
    attention.bias = [&problem, &inputs](int64_t row, int64_t head, int64_t query, int64_t key) {
      const int64_t list =
          (row * inputs.bias_heads + (inputs.bias_heads > 1 ? head : 0)) * inputs.bias_queries +
          (inputs.bias_queries > 1 ? query : 0);
      return reference::value_at(element_of(*problem.bias), inputs.bias.data(),
                                 list * inputs.capacity + key);
    };
  }
  attention.tree = [&problem, &inputs](int64_t row, int64_t query, int64_t bit) {
    const int64_t at = (row * problem.query_len + query) * tree_row_bytes(problem) + bit / 8;
    return (uint8_t(inputs.tree[size_t(at)]) >> (bit % 8) & 1) != 0;
  };
}

void set_rows(const Problem& problem, const Inputs& inputs, reference::Attention& attention) {
  attention.kv_len.assign(inputs.kv_len.begin(), inputs.kv_len.end());
  attention.kv_begin.assign(inputs.form.kv_begin.begin(), inputs.form.kv_begin.end());
  attention.queries.assign(inputs.form.queries.begin(), inputs.form.queries.end());
  if (!problem.strided_positions) return;
  attention.total_len.assign(inputs.total_len.begin(), inputs.total_len.end());
  attention.pos0 = inputs.form.pos0;
  attention.pos_step = inputs.form.pos_step;
}

// From [batch, query_len, q_heads, row] to the token rows of the outputs; the rest is `otherwise`.
std::vector<double> by_token(const Problem& problem, const Inputs& inputs, int64_t row,
                             const std::vector<double>& values, double otherwise) {
  const int64_t token_size = problem.q_heads * row;
  std::vector<double> tokens(size_t(inputs.query_rows * token_size), otherwise);
  const Rows rows = rows_of(problem, inputs);
  for (int64_t r = 0; r < inputs.batch; ++r) {
    for (int32_t query = 0; query < queries_of(problem, rows, r); ++query) {
      std::copy_n(values.begin() + (r * problem.query_len + query) * token_size, token_size,
                  tokens.begin() + token_row(problem, inputs, r, query) * token_size);
    }
  }
  return tokens;
}

// Both bases of a natural lse: what the problem puts out, and the natural one.
void set_lse(const Problem& problem, std::vector<double> natural, Expected& expected) {
  expected.lse_natural = natural;
  if (written_lse(problem) == LseOutput::none) return;
  expected.lse = std::move(natural);
  const LseOutput base = written_lse(problem);
  if (base == LseOutput::natural) return;
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

std::vector<int64_t> output_shape(const Problem& problem, int64_t batch, int64_t row) {
  std::vector<int64_t> shape = {batch};
  if (problem.query_len > 1) shape.push_back(problem.query_len);
  shape.push_back(problem.q_heads);
  if (row > 0) shape.push_back(row);
  return shape;
}

Expected expect_from_reference(const Problem& problem, const Inputs& inputs) {
  reference::Attention attention;
  attention.q_heads = problem.q_heads;
  attention.kv_heads = problem.kv_heads;
  attention.dim_qk = problem.dim_qk;
  attention.dim_v = problem.dim_v;
  attention.query_len = problem.query_len;
  set_tensors(problem, inputs, attention);
  set_score_and_mask(problem, inputs, attention);
  set_rows(problem, inputs, attention);
  const reference::Answer answer = reference::attend(attention);
  Expected expected;
  expected.origin = "fp64 reference";
  expected.out = by_token(problem, inputs, problem.dim_v, answer.out, 0);
  set_lse(problem,
          by_token(problem, inputs, 1, answer.lse, -std::numeric_limits<double>::infinity()),
          expected);
  return expected;
}

Result<Expected> expect_from_files(const Problem& problem, int64_t batch,
                                   const std::string& out_path, const std::string& lse_path) {
  Expected expected;
  if (!out_path.empty()) {
    const auto out =
        read_expected("--expect-out", out_path, output_shape(problem, batch, problem.dim_v));
    if (!out) return out.error();
    expected.origin = out_path;
    expected.out = *out;
  }
  if (!lse_path.empty()) {
    const auto lse = read_expected("--expect-lse", lse_path, output_shape(problem, batch, 0));
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
  reference::Tolerance tolerance = reference::tolerance_for(types);
  if (problem.out_dtype == DType::fp16) tolerance.out_absolute = 0x1p-25;
  if (!exchanged_lse_partials) return tolerance;
  return reference::widened_for_lse_partials(tolerance);
}

reference::Tolerance tolerance_of(const Problem& problem, const Schedule& schedule,
                                  const PartialCount& partials) {
  const bool exchanged = partials.pieces > 0;
  reference::Tolerance tolerance =
      tolerance_of(problem, exchanged && exchanged_merge(problem, schedule) == Merge::lse);
  if (exchanged && schedule.partial_dtype == DType::bf16) tolerance.out_relative_l2 *= 3;
  return tolerance;
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
