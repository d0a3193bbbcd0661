// The benchmark on the CPU: wall-clock time of each run beside a plain read of as many bytes just
// before and just after it, since what a CPU reads a second drifts. out is held against the fp64
// reference.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/bench_cpu_sets.hpp"
#include "tools/splitkv/bench_sources.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::tool {
namespace {

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
  Result<OurTime> time(const CpuSets& sets, const Kernel& kernel, RowReport& report);
  Result<std::vector<Variant>> wanted_variants(const Problem& problem, const Inputs& inputs) const;
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

Result<OurTime> CpuBench::time(const CpuSets& sets, const Kernel& kernel, RowReport& report) {
  const auto times = time_on_cpu(sets, kernel, readers_, {report.kv_bytes, options_.repeat});
  if (!times) return times.error();
  const auto info = guarded([&] { return kernel.info(); });
  if (!info) return info.error();
  report.floor_us = median(times->floors);
  OurTime ours;
  ours.schedule = info->schedule;
  ours.us = median(times->runs);
  ours.least_us = *std::min_element(times->runs.begin(), times->runs.end());
  ours.greatest_us = *std::max_element(times->runs.begin(), times->runs.end());
  ours.beside_ratio = median(times->ratios);
  return ours;
}

Result<std::vector<Variant>> CpuBench::wanted_variants(const Problem& problem,
                                                       const Inputs& inputs) const {
  const auto given = chosen_variants(options_);
  if (!given) return given.error();
  const auto groupings = chosen_groupings(options_);
  if (!groupings) return groupings.error();
  const std::vector<Variant> wanted =
      options_.sweep ? sweep_variants(problem, target_, options_.limit, options_.table.seed)
                     : *given;
  const Workload workload{inputs.batch, inputs.capacity, mean_of(inputs.kv_len)};
  return expanded(wanted, {problem, workload, inputs.kv_len, target_, *groupings});
}

Outcome CpuBench::time_all(const Problem& problem, const Inputs& inputs, RowReport& report) {
  Result<CpuSets> sets = place_on_cpu(problem, inputs, options_.table.seed, report.sets);
  if (!sets) return sets.error();
  const Expected expected = expect_from_reference(problem, inputs);
  const auto wanted = wanted_variants(problem, inputs);
  if (!wanted) return wanted.error();
  for (const Variant& variant : *wanted) {
    const auto kernel = guarded([&] {
      return runtime_.prepare(device_, print(problem),
                              {inputs.batch, inputs.capacity, mean_of(inputs.kv_len)},
                              variant.words);
    });
    if (!kernel && kernel.error().status == Status::unsupported) {
      ++report.refused;
      if (options_.problem.empty() || wanted->size() > 1) continue;
    }
    if (!kernel) return kernel.error();
    const Outcome poisoned = sets->memory->poison(sets->step->out());
    if (!poisoned) return poisoned;
    Result<OurTime> ours = time(*sets, *kernel, report);
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
  report.sets = copies_on_cpu(report.kv_bytes, report.cold);
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
