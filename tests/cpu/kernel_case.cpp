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

int first_visible(const Problem& problem, int kv_len) {
  return problem.window == 0 ? 0 : std::max(0, kv_len - problem.window);
}

// K or V: guarded memory, NaN all over but for the keys that rows see.
struct CacheSide {
  DType dtype;
  int dim = 0;
  int64_t stride_block = 0, stride_head = 0, stride_token = 0;
  std::unique_ptr<GuardedMemory> memory;

  float at(int64_t block, int64_t head, int64_t token, int64_t d) const {
    return load_element(dtype, memory->data(), index(block, head, token) + d);
  }
  int64_t index(int64_t block, int64_t head, int64_t token) const {
    return block * stride_block + head * stride_head + token * stride_token;
  }
};

struct Inputs {
  const KernelCase& test;
  const CompiledCase& compiled;
  std::vector<char> q;
  CacheSide k, v;
  std::vector<int32_t> kv_lens;
  std::vector<int32_t> page_table;
  std::vector<int64_t> page_offsets;
  int64_t table_stride = 0;

  // Block and token inside it of key `key` of batch row `row`.
  std::pair<int64_t, int64_t> place(int row, int key) const {
    if (!is_paged(compiled.problem)) return {row, key};
    const int size = compiled.problem.kv_layout.page_size;
    return {page_table[page_offsets[row] + key / size], key % size};
  }
};

CacheSide make_side(const Problem& problem, DType dtype, int dim, int64_t blocks, int64_t tokens) {
  CacheSide side{dtype, dim};
  const bool head_major = is_paged(problem) ? problem.kv_layout.page_order == PageOrder::hnd
                                            : problem.kv_layout.kind == KvLayoutKind::bhtd;
  const int64_t token = dim + (dim % 16 == 0 ? 0 : 8);  // odd dims: a padded token stride
  side.stride_token = head_major ? token : token * problem.kv_heads;
  side.stride_head = head_major ? token * tokens : token;
  side.stride_block = token * tokens * problem.kv_heads;
  const int64_t elements = std::max<int64_t>(8, blocks * side.stride_block);
  side.memory = std::make_unique<GuardedMemory>(size_t(elements) * size_bytes(dtype));
  for (int64_t i = 0; i < elements; ++i) store_element(dtype, side.memory->data(), i, kNan);
  return side;
}

void make_pages(Inputs& inputs, std::mt19937& random, int64_t& pages) {
  const Problem& problem = inputs.compiled.problem;
  const int size = problem.kv_layout.page_size;
  int64_t longest = 0;
  for (int len : inputs.kv_lens) longest = std::max<int64_t>(longest, (len + size - 1) / size);
  inputs.table_stride = longest + 1;
  std::vector<int32_t> ids(inputs.kv_lens.size() * longest + 3);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i);
  std::shuffle(ids.begin(), ids.end(), random);
  pages = int64_t(ids.size());
  // Ids that no visible key needs would lead far out of memory.
  inputs.page_table.assign(inputs.kv_lens.size() * inputs.table_stride, 0x7fffffff);
  size_t used = 0;
  for (size_t row = 0; row < inputs.kv_lens.size(); ++row) {
    inputs.page_offsets.push_back(int64_t(row) * inputs.table_stride);
    const int len = inputs.kv_lens[row];
    for (int page = first_visible(problem, len) / size; page * size < len; ++page) {
      inputs.page_table[inputs.page_offsets[row] + page] = ids[used++];
    }
  }
}

Inputs make_inputs(const KernelCase& test, const CompiledCase& compiled) {
  const Problem& problem = compiled.problem;
  Inputs inputs{test, compiled};
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  inputs.kv_lens.assign(test.kv_lens.begin(), test.kv_lens.end());
  int64_t blocks = int64_t(test.kv_lens.size());
  int64_t tokens = std::max(1, *std::max_element(test.kv_lens.begin(), test.kv_lens.end()));
  if (is_paged(problem)) {
    make_pages(inputs, random, blocks);
    tokens = problem.kv_layout.page_size;
  }
  inputs.k = make_side(problem, problem.k_dtype, problem.dim_qk, blocks, tokens);
  inputs.v = make_side(problem, problem.v_dtype, problem.dim_v, blocks, tokens);
  for (size_t row = 0; row < test.kv_lens.size(); ++row) {
    for (int key = first_visible(problem, test.kv_lens[row]); key < test.kv_lens[row]; ++key) {
      const auto [block, token] = inputs.place(int(row), key);
      for (int head = 0; head < problem.kv_heads; ++head) {
        for (CacheSide* side : {&inputs.k, &inputs.v}) {
          for (int d = 0; d < side->dim; ++d) {
            store_element(side->dtype, side->memory->data(), side->index(block, head, token) + d,
                          uniform(random));
          }
        }
      }
    }
  }
  const int64_t q_elements = int64_t(test.kv_lens.size()) * problem.q_heads * problem.dim_qk;
  inputs.q.resize(size_t(q_elements) * size_bytes(problem.q_dtype));
  for (int64_t i = 0; i < q_elements; ++i) {
    store_element(problem.q_dtype, inputs.q.data(), i, float(test.q_size) * uniform(random));
  }
  return inputs;
}

// softmax(score) V in two passes of doubles, one query head at a time.
void reference_row(const Inputs& inputs, int row, int head, Answer& answer) {
  const Problem& problem = inputs.compiled.problem;
  const int len = inputs.kv_lens[row], kv_head = head / group_size(problem);
  std::vector<double> scores;
  double largest = -kInfinity;
  const int begin = first_visible(problem, len);
  for (int key = begin; key < len; ++key) {
    const auto [block, token] = inputs.place(row, key);
    double dot = 0;
    for (int d = 0; d < problem.dim_qk; ++d) {
      const int64_t q_index = (int64_t(row) * problem.q_heads + head) * problem.dim_qk + d;
      dot += double(load_element(problem.q_dtype, inputs.q.data(), q_index)) *
             inputs.k.at(block, kv_head, token, d);
    }
    double score = dot * scale_of(problem);
    if (problem.softcap != 0) score = problem.softcap * std::tanh(score / problem.softcap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double sum = 0;
  std::vector<double> out(problem.dim_v, 0.0);
  for (int key = begin; key < len; ++key) {
    const auto [block, token] = inputs.place(row, key);
    const double weight = std::exp(scores[key - begin] - largest);
    sum += weight;
    for (int d = 0; d < problem.dim_v; ++d) {
      out[d] += weight * inputs.v.at(block, kv_head, token, d);
    }
  }
  for (double& value : out) answer.out.push_back(len == begin ? 0 : value / sum);
  const double lse = len == begin ? -kInfinity : largest + std::log(sum);
  if (problem.lse == LseOutput::natural) answer.lse.push_back(lse);
  if (problem.lse == LseOutput::base2) answer.lse.push_back(lse / std::log(2.0));
}

struct Outputs {
  std::vector<char> out;
  std::vector<float> lse, scratch;
  std::vector<uint32_t> arrivals;
};

LaunchArgs launch_args(const Inputs& inputs, Outputs& outputs) {
  const Problem& problem = inputs.compiled.problem;
  const Schedule& schedule = inputs.compiled.schedule;
  LaunchArgs args;
  args.q = inputs.q.data();
  args.k = inputs.k.memory->data();
  args.v = inputs.v.memory->data();
  args.out = outputs.out.data();
  args.lse = problem.lse == LseOutput::none ? nullptr : outputs.lse.data();
  args.kv_len = inputs.kv_lens.data();
  args.page_table = inputs.page_table.data();
  args.page_offset = inputs.test.page_offsets ? inputs.page_offsets.data() : nullptr;
  args.page_table_stride = inputs.table_stride;
  args.partials = outputs.scratch.data();
  args.arrivals = outputs.arrivals.data();
  args.q_stride_head = problem.dim_qk;
  args.q_stride_batch = int64_t(problem.q_heads) * problem.dim_qk;
  args.out_stride_head = problem.dim_v + kOutPadding;
  args.out_stride_batch = problem.q_heads * args.out_stride_head;
  args.lse_stride_head = 1;
  args.lse_stride_batch = problem.q_heads;
  args.k_stride_block = inputs.k.stride_block;
  args.k_stride_head = inputs.k.stride_head;
  args.k_stride_token = inputs.k.stride_token;
  args.v_stride_block = inputs.v.stride_block;
  args.v_stride_head = inputs.v.stride_head;
  args.v_stride_token = inputs.v.stride_token;
  args.batch = int32_t(inputs.kv_lens.size());
  args.splits = schedule.splits;
  args.blocks = schedule.blocks;
  args.partial_o_offset = buffer_sizes(problem, schedule, args.batch).partial_o_offset;
  return args;
}

void compare(const Problem& problem, CaseOutcome& outcome) {
  const int dim = problem.dim_v;
  const Answer &expected = outcome.expected, &actual = outcome.actual;
  for (size_t row = 0; row < expected.out.size() / dim; ++row) {
    double difference = 0, size = 0;
    for (int d = 0; d < dim; ++d) {
      const double e = expected.out[row * dim + d], a = actual.out[row * dim + d];
      difference += (e - a) * (e - a);
      size += e * e;
    }
    const double error =
        size == 0 ? (difference == 0 ? 0 : kInfinity) : std::sqrt(difference / size);
    outcome.out_error = error <= outcome.out_error ? outcome.out_error : error;  // NaN wins
  }
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    const double e = expected.lse[row], a = actual.lse[row];
    if (e == -kInfinity) {
      if (a != e) outcome.fault = "lse of an empty row is not -inf";
      continue;
    }
    const float size = std::fabs(float(e));
    const double ulp = double(std::nextafter(size, std::numeric_limits<float>::max())) - size;
    const double error = std::fabs(e - a) / std::max(1e-5, 4 * ulp);
    outcome.lse_error = error <= outcome.lse_error ? outcome.lse_error : error;
  }
}

void collect(const Inputs& inputs, const Outputs& outputs, const LaunchArgs& args,
             CaseOutcome& outcome) {
  const Problem& problem = inputs.compiled.problem;
  for (int row = 0; row < args.batch; ++row) {
    for (int head = 0; head < problem.q_heads; ++head) {
      const int64_t at = row * args.out_stride_batch + head * args.out_stride_head;
      for (int d = 0; d < problem.dim_v + kOutPadding; ++d) {
        const float value = load_element(problem.out_dtype, outputs.out.data(), at + d);
        if (d < problem.dim_v) outcome.actual.out.push_back(value);
        if (d >= problem.dim_v && !std::isnan(value)) outcome.fault = "out was written past a row";
      }
      reference_row(inputs, row, head, outcome.expected);
    }
  }
  if (args.lse != nullptr) outcome.actual.lse.assign(outputs.lse.begin(), outputs.lse.end());
  for (uint32_t arrivals : outputs.arrivals) {
    if (arrivals != 0) outcome.fault = "an arrival counter was left above zero";
  }
  const bool pairs = exchanged_merge(problem, inputs.compiled.schedule) == Merge::mlo;
  const int64_t a_slot = inputs.compiled.schedule.rows * (pairs ? 2 : 1);
  for (int64_t slot = 0; (slot + 1) * a_slot <= args.partial_o_offset; ++slot) {
    if (!outputs.scratch.empty() && !std::isnan(outputs.scratch[slot * a_slot])) ++outcome.partials;
  }
  compare(problem, outcome);
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
  const int64_t batch = int64_t(test.kv_lens.size());
  const LaunchShape shape = launch_shape(problem, compiled.schedule, batch);
  const BufferSizes sizes = buffer_sizes(problem, compiled.schedule, batch);
  Outputs outputs;
  const int64_t out_elements = batch * problem.q_heads * (problem.dim_v + kOutPadding);
  outputs.out.resize(size_t(out_elements) * size_bytes(problem.out_dtype));
  for (int64_t i = 0; i < out_elements; ++i) {
    store_element(problem.out_dtype, outputs.out.data(), i, kNan);
  }
  outputs.lse.assign(size_t(batch * problem.q_heads), kNan);
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
