// The benchmark on the CPU: wall-clock time of each run beside a plain read of as many bytes just
// before and just after it, since what a CPU reads a second drifts. out is held against the fp64
// reference.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/bench_sources.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/step_memory.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::tool {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Copies rotate over as much as no cache holds.
constexpr int64_t kColdBytes = int64_t(1) << 30;
constexpr int64_t kMostCopies = 64;

// Threads that read memory together and sleep in between.
class ReadPool {
 public:
  explicit ReadPool(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i) {
      others_.emplace_back([this, i] { serve(i); });
    }
  }
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;
  ~ReadPool() {
    data_ = nullptr;
    ++turn_;
    turn_.notify_all();
    for (std::thread& other : others_) other.join();
  }

  double read_us(const std::byte* data, int64_t bytes) {
    const auto begin = Clock::now();
    data_ = data;
    words_ = bytes / 8;
    left_ = threads_ - 1;
    ++turn_;
    turn_.notify_all();
    read_share(0);
    while (left_ != 0) std::this_thread::yield();
    return us_since(begin);
  }

 private:
  void serve(int share) {
    for (uint32_t seen = 0;;) {
      turn_.wait(seen);
      seen = turn_;
      if (data_ == nullptr) return;
      read_share(share);
      --left_;
    }
  }
  void read_share(int share) {
    const auto* words = reinterpret_cast<const uint64_t*>(data_);
    const int64_t begin = words_ * share / threads_, end = words_ * (share + 1) / threads_;
    uint64_t sums[16] = {};
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      for (int lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
    }
    for (; i < end; ++i) sums[0] += words[i];
    uint64_t sum = 0;
    for (const uint64_t lane : sums) sum += lane;
    kept_ += sum;
  }

  const int threads_;
  std::vector<std::thread> others_;
  const std::byte* data_ = nullptr;
  int64_t words_ = 0;
  std::atomic<uint32_t> turn_ = 0;
  std::atomic<int> left_ = 0;
  std::atomic<uint64_t> kept_ = 0;  // so that the reads are not left out
};

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

// One problem's tensors, and further copies of its K and V to go through in turn.
struct CpuSets {
  std::unique_ptr<DeviceMemory> memory;
  std::optional<StepMemory> step;
  std::vector<Buffer> copies;  // K, and V behind it where it is its own
  size_t k_bytes = 0;

  splitkv_tensors tensors(size_t copy) const {
    splitkv_tensors t = step->tensors();
    const char* data = static_cast<const char*>(copies[copy].data());
    t.k = data;
    if (t.v != nullptr) t.v = data + k_bytes;
    return t;
  }
};

Result<CpuSets> place(const Problem& problem, const Inputs& inputs, uint64_t seed, int64_t copies) {
  CpuSets sets;
  Result<std::unique_ptr<DeviceMemory>> memory = open_device_memory("cpu");
  if (!memory) return memory.error();
  sets.memory = std::move(*memory);
  const KvImage image = lay_out(problem, inputs, seed);
  Result<StepMemory> step =
      StepMemory::place(*sets.memory, problem, inputs, image, sized<splitkv_buffer_sizes>());
  if (!step) return step.error();
  sets.step.emplace(std::move(*step));
  sets.k_bytes = (image.k.size() + 255) / 256 * 256;
  for (int64_t i = 0; i < copies; ++i) {
    Result<Buffer> copy = sets.memory->allocate(sets.k_bytes + image.v.size());
    if (!copy) return copy.error();
    Outcome filled = sets.memory->copy_in(*copy, image.k.data(), image.k.size());
    if (filled) {
      filled = sets.memory->copy_in(*copy, image.v.data(), image.v.size(), sets.k_bytes);
    }
    if (!filled) return filled.error();
    sets.copies.push_back(std::move(*copy));
  }
  return sets;
}

class CpuBench {
 public:
  CpuBench(const BenchOptions& options, std::string device, Runtime& runtime, const Target& target)
      : options_(options),
        device_(std::move(device)),
        runtime_(runtime),
        target_(target),
        readers_(int(std::max(1u, std::thread::hardware_concurrency()))) {}

  Result<RowReport> measure(const BenchRow& row);

 private:
  Result<OurTime> time(const Problem& problem, const CpuSets& sets, const Kernel& kernel,
                       RowReport& report);
  Outcome time_all(const Problem& problem, const Inputs& inputs, RowReport& report);

  const BenchOptions& options_;
  std::string device_;
  Runtime& runtime_;
  const Target& target_;
  ReadPool readers_;
};

Result<double> error_of(const Problem& problem, const CpuSets& sets, const Expected& expected) {
  const Buffer& buffer = sets.step->out();
  std::vector<std::byte> bytes(buffer.bytes());
  const Outcome copied = sets.memory->copy_out(bytes.data(), buffer, bytes.size());
  if (!copied) return copied.error();
  std::vector<double> out(expected.out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = load_element(problem.out_dtype, bytes.data(), int64_t(i));
  }
  reference::Comparison comparison;
  comparison.out = out;
  comparison.expected_out = expected.out;
  comparison.dim = problem.dim_v;
  return reference::compare(comparison, tolerance_of(problem, false)).out_relative_l2;
}

// Rounds of a read, a run and a read, each of another copy. The ratio is the median of those of the
// rounds.
Result<OurTime> CpuBench::time(const Problem&, const CpuSets& sets, const Kernel& kernel,
                               RowReport& report) {
  splitkv_args args = sets.step->args();
  const auto prepared = guarded([&] {
    const splitkv_buffer_sizes sizes = kernel.sizes(args.batch);
    std::vector<Binding> bindings;
    for (size_t i = 0; i < sets.copies.size(); ++i)
      bindings.push_back(kernel.bind(sets.tensors(i)));
    return std::pair{sizes, std::move(bindings)};
  });
  if (!prepared) return prepared.error();
  const auto& [sizes, bindings] = *prepared;
  Result<Buffer> scratch = sets.memory->allocate(sizes.scratch_bytes);
  Result<Buffer> state = sets.memory->allocate(sizes.state_bytes);
  if (!scratch) return scratch.error();
  if (!state) return state.error();
  args.scratch = scratch->data(), args.scratch_bytes = sizes.scratch_bytes;
  args.state = state->data(), args.state_bytes = sizes.state_bytes;
  std::vector<double> runs, floors, ratios;
  size_t copy = 0;
  const auto next = [&] { return copy++ % sets.copies.size(); };
  const auto read = [&] {
    return readers_.read_us(static_cast<const std::byte*>(sets.copies[next()].data()),
                            report.kv_bytes);
  };
  const auto ran = guarded([&] {
    if (sizes.state_bytes > 0) kernel.state_init(args.state, args.state_bytes);
    for (int round = -2; round < options_.repeat; ++round) {
      const double before = read();
      const Binding& binding = bindings[next()];
      const auto begin = Clock::now();
      kernel.run(binding, args);
      const double us = us_since(begin);
      const double floor = (before + read()) / 2;
      if (round < 0) continue;
      runs.push_back(us);
      floors.push_back(floor);
      ratios.push_back(us / floor);
    }
    return kernel.info();
  });
  if (!ran) return ran.error();
  report.floor_us = median(floors);
  OurTime ours;
  ours.schedule = ran->schedule;
  ours.us = median(runs);
  ours.least_us = *std::min_element(runs.begin(), runs.end());
  ours.greatest_us = *std::max_element(runs.begin(), runs.end());
  ours.beside_ratio = median(ratios);
  return ours;
}

Outcome CpuBench::time_all(const Problem& problem, const Inputs& inputs, RowReport& report) {
  Result<CpuSets> sets = place(problem, inputs, options_.table.seed, report.sets);
  if (!sets) return sets.error();
  const Expected expected = expect_from_reference(problem, inputs);
  const auto variants = chosen_variants(options_);
  if (!variants) return variants.error();
  const std::vector<Variant> wanted =
      options_.sweep ? sweep_variants(problem, target_, options_.limit, options_.table.seed)
                     : *variants;
  for (const Variant& variant : wanted) {
    const auto kernel = guarded([&] {
      return runtime_.prepare(device_, print(problem),
                              {inputs.batch, inputs.capacity, mean_of(inputs.kv_len)},
                              variant.words);
    });
    if (!kernel && kernel.error().status == Status::unsupported) {
      ++report.refused;
      if (options_.problem.empty() || wanted.size() > 1) continue;
    }
    if (!kernel) return kernel.error();
    const Outcome poisoned = sets->memory->poison(sets->step->out());
    if (!poisoned) return poisoned;
    Result<OurTime> ours = time(problem, *sets, *kernel, report);
    if (!ours) return ours.error();
    const Result<double> error = error_of(problem, *sets, expected);
    if (!error) return error.error();
    ours->label = variant.label;
    ours->named = variant.label != variant.words;
    ours->error = *error;
    ours->error_limit = tolerance_of(problem, false).out_relative_l2;
    report.ours.push_back(std::move(*ours));
  }
  return Unit{};
}

Result<RowReport> CpuBench::measure(const BenchRow& row) {
  RowReport report;
  report.row = row;
  report.row.matrix_flops = 0;  // that bound is another machine's
  const Result<Problem> problem = parse_problem(row.problem);
  if (!problem) return problem.error();
  if (const auto refusal = verify(*problem, target_)) return to_error(*refusal);
  if (const Outcome known = check_attend(*problem); !known) return known.error();
  report.kv_bytes = kv_bytes(*problem, row.kv_len);
  if (report.kv_bytes < 16) {
    return invalid_argument(
        fmt::format("--kv-len={}: there is nothing to read; lengths above 0 would work",
                    describe_lengths(row.kv_len)));
  }
  const int64_t wanted = (kColdBytes + report.kv_bytes - 1) / report.kv_bytes;
  report.sets = std::clamp<int64_t>(wanted, 2, kMostCopies);
  report.cold = wanted <= kMostCopies;
  report.launches = 1;
  report.floor_method =
      fmt::format("{} threads, before and after each run", std::thread::hardware_concurrency());
  const Inputs inputs = generate_inputs(*problem, row.kv_len, options_.table.seed);
  if (const Outcome timed = time_all(*problem, inputs, report); !timed) return timed.error();
  return report;
}

}  // namespace

Result<std::vector<RowReport>> measure_rows_on_cpu(const BenchOptions& options,
                                                   const std::string& device, BenchHeader& header,
                                                   const RowDone& done) {
  const Result<std::vector<BenchRow>> rows = chosen_rows(options);
  if (!rows) return rows.error();
  const Result<Target> target = chosen_target(device);
  if (!target) return target.error();
  Result<Runtime> runtime = guarded([] { return Runtime(); });
  if (!runtime) return runtime.error();
  header.card = cpu_name();
  CpuBench bench(options, device, *runtime, *target);
  std::vector<RowReport> reports;
  for (const BenchRow& row : *rows) {
    Result<RowReport> report = bench.measure(row);
    if (!report) return report.error();
    done(*report);
    reports.push_back(std::move(*report));
  }
  return reports;
}

}  // namespace splitkv::tool
