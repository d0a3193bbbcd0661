#include "tests/cpu/kernel_case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/cpu/host.hpp"
#include "runtime/cpu/workers.hpp"
#include "tests/cpu/case_inputs.hpp"

namespace splitkv::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kOutPadding = 8;  // elements after each row of out that must stay as they are

template <class T>
T checked(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

struct Outputs {
  std::vector<char> out;
  std::vector<float> lse, partial_l, scratch;
  std::vector<uint32_t> arrivals;
  ErrorRecord errors;
};

void set_tensors(const Inputs& inputs, Outputs& outputs, LaunchArgs& args) {
  const Problem& problem = inputs.compiled.problem;
  const KernelCase& test = inputs.test;
  args.q = inputs.q.data();
  args.q_rope = inputs.q_rope.data();
  args.k = inputs.k.memory->data();
  args.v = problem.v_in_k ? args.k : inputs.v.memory->data();
  args.out = outputs.out.data();
  if (!outputs.lse.empty()) args.lse = outputs.lse.data();
  args.partial_l = outputs.partial_l.data();
  args.kv_len_bytes = test.kv_len_bytes;
  if (test.kv_len_bytes == 4) args.kv_len = inputs.kv_lens.data();
  if (test.kv_len_bytes == 8) args.kv_len = inputs.wide_kv_lens.data();
  if (test.kv_len_bytes == 0) args.kv_len_host = inputs.kv_lens[0];
  if (!test.kv_begins.empty()) args.kv_begin = inputs.kv_begins.data();
  if (!test.q_offsets.empty()) args.q_offset = inputs.q_offsets.data();
  args.total_len = inputs.total_lens.data();
  args.page_table = inputs.k.page_table.data();
  args.page_offset = test.page_offsets ? inputs.page_offsets.data() : nullptr;
  args.page_table_stride = inputs.table_stride;
  if (problem.separate_tables) {
    args.v_page_table = inputs.v.page_table.data();
    args.v_page_offset = args.page_offset;
    args.v_page_table_stride = inputs.table_stride;
  }
  args.k_scale = inputs.k.scales.data();
  args.v_scale = inputs.v.scales.data();
  args.sink = inputs.sinks.data();
  args.bias = inputs.bias.data();
  args.tree = inputs.tree.data();
  args.partials = outputs.scratch.data();
  args.arrivals = outputs.arrivals.data();
  if (test.with_errors) args.errors = &outputs.errors;
  for (size_t i = 0; i < inputs.params.size(); ++i) args.params[i] = inputs.params[i].data();
}

void set_strides(const Inputs& inputs, LaunchArgs& args) {
  const Problem& problem = inputs.compiled.problem;
  const int64_t heads = problem.q_heads, queries = problem.query_len;
  const bool ragged = !inputs.q_offsets.empty();
  // Ragged queries have no batch stride: one that is far off must not be used.
  const auto batch = [&](int64_t stride) { return ragged ? int64_t(1) << 40 : stride * queries; };
  args.q_stride_head = problem.dim_qk - problem.dim_rope;
  args.q_stride_query = heads * args.q_stride_head;
  args.q_stride_batch = batch(args.q_stride_query);
  args.q_rope_stride_head = problem.dim_rope;
  args.q_rope_stride_query = heads * problem.dim_rope;
  args.q_rope_stride_batch = batch(args.q_rope_stride_query);
  args.out_stride_head = problem.dim_v + kOutPadding;
  args.out_stride_query = heads * args.out_stride_head;
  args.out_stride_batch = batch(args.out_stride_query);
  args.lse_stride_head = 1;
  args.lse_stride_query = heads;
  args.lse_stride_batch = batch(heads);
  args.k_stride_block = inputs.k.stride_block;
  args.k_stride_head = inputs.k.stride_head;
  args.k_stride_token = inputs.k.stride_token;
  args.v_stride_block = inputs.v.stride_block;
  args.v_stride_head = inputs.v.stride_head;
  args.v_stride_token = inputs.v.stride_token;
  args.k_scale_stride_block = inputs.k.scale_stride_block;
  args.k_scale_stride_head = 1;
  args.k_scale_stride_token = inputs.k.scale_stride_token;
  args.v_scale_stride_block = inputs.v.scale_stride_block;
  args.v_scale_stride_head = 1;
  args.v_scale_stride_token = inputs.v.scale_stride_token;
  args.bias_stride_key = 1;
  args.bias_stride_query = inputs.longest;
  args.bias_stride_head = args.bias_stride_query * queries;
  args.bias_stride_batch = args.bias_stride_head * heads;
  args.tree_stride_query = inputs.tree_row_bytes;
  args.tree_stride_batch = args.tree_stride_query * queries;
}

LaunchArgs launch_args(const Inputs& inputs, Outputs& outputs) {
  const Schedule& schedule = inputs.compiled.schedule;
  LaunchArgs args;
  set_tensors(inputs, outputs, args);
  set_strides(inputs, args);
  args.pos0 = inputs.test.pos0;
  args.pos_step = inputs.test.pos_step;
  args.query_rows = inputs.token_rows;
  args.page_count = inputs.pages;
  args.kv_capacity = inputs.test.kv_capacity;
  args.batch = inputs.batch;
  args.splits = schedule.splits;
  args.blocks = schedule.blocks;
  args.partial_o_offset =
      buffer_sizes(inputs.compiled.problem, schedule, inputs.batch).partial_o_offset;
  return args;
}

void compare_out(const Problem& problem, CaseOutcome& outcome) {
  const int dim = problem.dim_v;
  const Answer &expected = outcome.expected, &actual = outcome.actual;
  for (size_t row = 0; row < expected.out.size() / dim; ++row) {
    double difference = 0, size = 0;
    bool is_nan = false, was_written = false;
    for (int d = 0; d < dim; ++d) {
      const double e = expected.out[row * dim + d], a = actual.out[row * dim + d];
      is_nan |= std::isnan(e);
      was_written |= !std::isnan(a);
      difference += (e - a) * (e - a);
      size += e * e;
    }
    if (is_nan) {
      if (was_written) outcome.fault = "out was written where no row is";
      continue;
    }
    const double error =
        size == 0 ? (difference == 0 ? 0 : kInfinity) : std::sqrt(difference / size);
    outcome.out_error = error <= outcome.out_error ? outcome.out_error : error;  // NaN wins
  }
}

// Where K is narrower than fp32 scores are fp32, and the contract is wider.
void compare_lse(const Problem& problem, CaseOutcome& outcome) {
  const double tolerance = problem.k_dtype == DType::fp32 ? 1e-5 : 1e-3;
  for (size_t row = 0; row < outcome.expected.lse.size(); ++row) {
    const double e = outcome.expected.lse[row], a = outcome.actual.lse[row];
    if (std::isnan(e)) {
      if (!std::isnan(a)) outcome.fault = "lse was written where no row is";
      continue;
    }
    if (e == -kInfinity) {
      if (a != e) outcome.fault = "lse of an empty row is not -inf";
      continue;
    }
    const float size = std::fabs(float(e));
    const double ulp = double(size) - std::nextafter(size, 0.0f);
    const double error = std::fabs(e - a) / std::max(tolerance, 4 * ulp);
    outcome.lse_error = error <= outcome.lse_error ? outcome.lse_error : error;
  }
}

// The log-sum-exp of each row; of (m, l) partials what they stand for.
std::vector<double> sums_of(const Problem& problem, const Outputs& outputs) {
  std::vector<double> sums(outputs.lse.begin(), outputs.lse.end());
  if (!problem.out_partial || problem.merge != Merge::mlo) return sums;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double l = outputs.partial_l[i];
    sums[i] += problem.lse == LseOutput::base2 ? std::log2(l) : std::log(l);
  }
  return sums;
}

void collect(const Inputs& inputs, const Outputs& outputs, const LaunchArgs& args,
             CaseOutcome& outcome) {
  const Problem& problem = inputs.compiled.problem;
  const int64_t rows = int64_t(inputs.token_rows) * problem.q_heads;
  for (int64_t row = 0; row < rows; ++row) {
    for (int d = 0; d < problem.dim_v + kOutPadding; ++d) {
      const int64_t at = row * args.out_stride_head + d;
      const float value = load_element(problem.out_dtype, outputs.out.data(), at);
      if (d < problem.dim_v) outcome.actual.out.push_back(value);
      if (d >= problem.dim_v && !std::isnan(value)) outcome.fault = "out was written past a row";
    }
  }
  outcome.expected = reference_answer(inputs);
  if (args.lse != nullptr) outcome.actual.lse = sums_of(problem, outputs);
  for (uint32_t arrivals : outputs.arrivals) {
    if (arrivals != 0) outcome.fault = "an arrival counter was left above zero";
  }
  const bool pairs = exchanged_merge(problem, inputs.compiled.schedule) == Merge::mlo;
  const int64_t a_slot = inputs.compiled.schedule.rows * (pairs ? 2 : 1);
  for (int64_t slot = 0; (slot + 1) * a_slot <= args.partial_o_offset; ++slot) {
    if (!outputs.scratch.empty() && !std::isnan(outputs.scratch[slot * a_slot])) ++outcome.partials;
  }
  outcome.errors = outputs.errors;
  compare_out(problem, outcome);
  compare_lse(problem, outcome);
}

// Splits and blocks are launch values: sources that differ in their first line alone are one code.
std::shared_ptr<const CpuModule> compiled_once(const KernelSource& source, const Target& target) {
  static std::map<std::string, std::shared_ptr<const CpuModule>> modules;
  auto& module = modules[target.arch + source.text.substr(source.text.find('\n'))];
  if (module == nullptr) {
    module = std::make_shared<const CpuModule>(checked(compile_cpu(source, target)));
  }
  return module;
}

// One thread runs blocks backwards: slot order must not depend on the order of arrival.
void run_split(const CompiledCase& compiled, const LaunchArgs& args, int64_t blocks, int threads) {
  struct Launch {
    CpuModule::Entry split;
    const LaunchArgs* args;
    int64_t last;
  } launch{compiled.module->split(), &args, blocks - 1};
  Workers workers(threads);
  workers.parallel_for(
      blocks,
      [](void* context, int64_t i) {
        const auto* of = static_cast<const Launch*>(context);
        of->split(of->args, of->last - i);
      },
      &launch);
}

}  // namespace

GuardedMemory::GuardedMemory(size_t bytes) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  mapped_bytes_ = whole + page;
  mapping_ =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::runtime_error("mmap failed");
  if (mprotect(static_cast<char*>(mapping_) + whole, page, PROT_NONE) != 0) {
    throw std::runtime_error("mprotect failed");
  }
  data_ = static_cast<char*>(mapping_) + (whole - bytes);
}

GuardedMemory::~GuardedMemory() { munmap(mapping_, mapped_bytes_); }

CompiledCase compile_case(const KernelCase& test) {
  CompiledCase compiled;
  compiled.problem = checked(parse_problem(test.problem));
  compiled.schedule = checked(parse_schedule(test.schedule));
  compiled.target = checked(resolve_cpu_target(test.target, 1));
  const auto refusal = verify(compiled.problem, compiled.schedule, compiled.target);
  if (refusal) throw std::runtime_error(to_string(*refusal));
  compiled.module = compiled_once(emit_llvm(compiled.problem, compiled.schedule, compiled.target),
                                  compiled.target);
  return compiled;
}

CaseOutcome run_case(const KernelCase& test, const CompiledCase& compiled) {
  const Problem& problem = compiled.problem;
  const Inputs inputs = make_inputs(test, compiled);
  const LaunchShape shape = launch_shape(problem, compiled.schedule, inputs.batch);
  const BufferSizes sizes = buffer_sizes(problem, compiled.schedule, inputs.batch);
  Outputs outputs;
  const int64_t rows = int64_t(inputs.token_rows) * problem.q_heads;
  const int64_t out_elements = rows * (problem.dim_v + kOutPadding);
  outputs.out.resize(size_t(out_elements) * size_bytes(problem.out_dtype));
  for (int64_t i = 0; i < out_elements; ++i) {
    store_element(problem.out_dtype, outputs.out.data(), i, kNan);
  }
  if (problem.lse != LseOutput::none || problem.out_partial) outputs.lse.assign(rows, kNan);
  if (problem.out_partial && problem.merge == Merge::mlo) outputs.partial_l.assign(rows, kNan);
  outputs.scratch.assign(size_t(sizes.scratch_bytes) / sizeof(float), kNan);
  outputs.arrivals.assign(size_t(sizes.state_bytes) / sizeof(uint32_t), 0);
  const LaunchArgs args = launch_args(inputs, outputs);
  run_split(compiled, args, shape.split_blocks, test.threads);
  for (int64_t block = 0; block < shape.reduce_blocks; ++block) {
    compiled.module->reduce()(&args, block);
  }
  CaseOutcome outcome;
  collect(inputs, outputs, args, outcome);
  return outcome;
}

CaseOutcome run_case(const KernelCase& test) { return run_case(test, compile_case(test)); }

void expect_right(const KernelCase& test, double tolerance) {
  SCOPED_TRACE(test.problem + " | " + test.schedule + " | " + test.target);
  const CompiledCase compiled = compile_case(test);
  const CaseOutcome outcome = run_case(test, compiled);
  const DType out = compiled.problem.out_dtype;
  if (tolerance == 0) tolerance = out == DType::fp32 ? 1e-5 : out == DType::fp16 ? 1e-3 : 4e-3;
  EXPECT_LE(outcome.out_error, tolerance);
  EXPECT_LE(outcome.lse_error, 1.0);
  EXPECT_EQ(outcome.fault, "");
}

}  // namespace splitkv::test
