#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/bench_sets.hpp"
#include "tools/splitkv/bench_sources.hpp"
#include "tools/splitkv/bench_timer.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/parallel.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::tool {
namespace {

// A row and the schedules that fit it.
struct RowPlan {
  RowReport report;
  Problem problem;
  Workload workload;
  std::vector<Variant> variants;
};

// Kernels in the order they are measured, compiled some dozens at a time on all cores.
class KernelQueue {
 public:
  KernelQueue(Runtime& runtime, std::string device, const std::vector<RowPlan>& plans)
      : runtime_(runtime), device_(std::move(device)) {
    for (const RowPlan& plan : plans) {
      for (const Variant& variant : plan.variants) {
        jobs_.push_back({&plan, variant.words});
      }
    }
  }

  Result<Kernel> next() {
    if (ready_.empty()) prepare();
    Result<Kernel> kernel = std::move(*ready_.back());
    ready_.pop_back();
    return kernel;
  }

 private:
  struct Job {
    const RowPlan* plan;
    std::string words;
  };

  void prepare() {
    constexpr size_t at_once = 64;
    const size_t count = std::min(at_once, jobs_.size() - begun_);
    ready_.resize(count);
    parallel_for(int64_t(count), [&](int64_t i) {
      const Job& job = jobs_[begun_ + size_t(i)];
      ready_[count - 1 - size_t(i)] = guarded([&] {
        const Workload& workload = job.plan->workload;
        const Hints hints{workload.batch, workload.kv_len, workload.kv_len_mean};
        return runtime_.prepare(device_, print(job.plan->problem), hints, job.words);
      });
    });
    begun_ += count;
  }

  Runtime& runtime_;
  std::string device_;
  std::vector<Job> jobs_;
  size_t begun_ = 0;
  std::vector<std::optional<Result<Kernel>>> ready_;  // the next one last
};

OurTime failed(const std::string& label, const std::string& why) {
  OurTime ours;
  ours.label = label;
  ours.failure = why;
  return ours;
}

class Bench {
 public:
  static Result<std::unique_ptr<Bench>> open(const BenchOptions& options, int ordinal);

  Result<RowPlan> plan(const BenchRow& row) const;
  // Takes the plan's kernels from the queue.
  Result<RowReport> measure(const RowPlan& plan, KernelQueue& queue);
  Runtime& runtime() { return *runtime_; }
  const GpuFacts& facts() const { return gpu_->facts(); }

 private:
  explicit Bench(const BenchOptions& options) : options_(options) {}
  Result<std::vector<Variant>> variants(const RowPlan& plan) const;
  Outcome measure_floor(const BenchSets& sets, const TimingPlan& timing, RowReport& report) const;

  const BenchOptions& options_;
  std::unique_ptr<Gpu> gpu_;
  std::optional<FloorReader> reader_;
  std::optional<KernelTimer> timer_;
  std::optional<Runtime> runtime_;
};

Result<std::unique_ptr<Bench>> Bench::open(const BenchOptions& options, int ordinal) {
  std::unique_ptr<Bench> bench(new Bench(options));
  Result<std::unique_ptr<Gpu>> gpu = Gpu::open(ordinal);
  if (!gpu) return gpu.error();
  bench->gpu_ = std::move(*gpu);
  Result<FloorReader> reader = FloorReader::make(*bench->gpu_);
  if (!reader) return reader.error();
  bench->reader_.emplace(std::move(*reader));
  bench->timer_.emplace(*bench->gpu_);
  Result<Runtime> runtime = guarded([] { return Runtime(); });
  if (!runtime) return runtime.error();
  bench->runtime_.emplace(std::move(*runtime));
  return bench;
}

Result<std::vector<Variant>> Bench::variants(const RowPlan& plan) const {
  if (!options_.sweep) return chosen_variants(options_);
  return sweep_variants(plan.problem, facts().target, options_.limit, options_.table.seed);
}

Result<RowPlan> Bench::plan(const BenchRow& row) const {
  RowPlan plan;
  plan.report.row = row;
  const Result<Problem> problem = parse_problem(row.problem);
  if (!problem) return problem.error();
  plan.problem = *problem;
  const Target& target = facts().target;
  if (const auto refusal = verify(plan.problem, target)) return to_error(*refusal);
  if (const Outcome known = check_attend(plan.problem); !known) return known.error();
  plan.report.kv_bytes = kv_bytes(plan.problem, row.kv_len);
  if (plan.report.kv_bytes < 16) {
    return invalid_argument(
        fmt::format("--kv-len={}: there is nothing to read; lengths above 0 would work",
                    describe_lengths(row.kv_len)));
  }
  plan.workload = {int64_t(row.kv_len.size()),
                   *std::max_element(row.kv_len.begin(), row.kv_len.end()), mean_of(row.kv_len)};
  const Result<std::vector<Variant>> given = variants(plan);
  if (!given) return given.error();
  const Result<std::vector<Grouping>> groupings = chosen_groupings(options_);
  if (!groupings) return groupings.error();
  const auto wanted =
      expanded(*given, {plan.problem, plan.workload, row.kv_len, target, *groupings});
  if (!wanted) return wanted.error();
  std::string refusal;
  for (const Variant& variant : *wanted) {
    const auto fits = chosen_schedule(plan.problem, plan.workload, target, variant.words);
    if (fits.ok()) {
      plan.variants.push_back(variant);
      continue;
    }
    if (fits.error().status != Status::unsupported) return fits.error();
    refusal = fits.error().message;
    ++plan.report.refused;
  }
  if (!plan.variants.empty()) return plan;
  if (!options_.problem.empty()) return Error{Status::unsupported, refusal};
  plan.report.ours.push_back(
      failed("none", "no schedule that was given fits; the last: " + refusal));
  return plan;
}

Outcome Bench::measure_floor(const BenchSets& sets, const TimingPlan& timing,
                             RowReport& report) const {
  const Result<Floor> floor = reader_->measure(sets.floor_range(report.kv_bytes), timing);
  if (!floor) return floor.error();
  report.floor_us = floor->timing.median_us;
  report.floor_method = floor->method;
  if (facts().card.find(kHandedCard) == std::string::npos) return Unit{};
  const auto broken =
      impossible_floor(report.floor_us, report.row.floor_us, report.row.floor_step_us);
  if (broken) report.broken = *broken;
  return Unit{};
}

Result<RowReport> Bench::measure(const RowPlan& plan, KernelQueue& queue) {
  RowReport report = plan.report;
  const std::vector<int32_t>& lengths = report.row.kv_len;
  const Result<Rotation> rotates = rotation_on(*gpu_, plan.problem, lengths);
  if (!rotates) return rotates.error();
  const Rotation& rotation = *rotates;
  report.sets = rotation.sets;
  report.launches = rotation.launches;
  report.cold = rotation.cold;
  const auto sets = BenchSets::place(
      *gpu_, *reader_, {plan.problem, lengths, rotation.sets, options_.table.seed, true});
  if (!sets && sets.error().status == Status::out_of_memory) {
    for (const Variant& variant : plan.variants) {
      (void)queue.next();
      report.ours.push_back(failed(variant.label, sets.error().message));
    }
    return report;
  }
  if (!sets) return sets.error();
  const TimingPlan timing{rotation.launches, options_.repeat};
  if (const Outcome o = measure_floor(**sets, timing, report); !o) return o.error();
  for (const Variant& variant : plan.variants) {
    const Result<Kernel> kernel = queue.next();
    Result<OurTime> time =
        kernel.ok() ? timer_->time(*kernel, **sets, timing) : Result<OurTime>(kernel.error());
    OurTime ours = time.ok() ? std::move(*time) : failed(variant.label, time.error().message);
    ours.label = variant.label;
    ours.named = variant.label != variant.words;
    ours.error_limit = tolerance_of(plan.problem, false).out_relative_l2;
    report.ours.push_back(std::move(ours));
    // After some failures the device does nothing any more.
    if (const Outcome alive = gpu_->synchronize(); !alive) {
      return Error{alive.error().status, fmt::format("{}, schedule {}: {}", report.row.name,
                                                     variant.words, alive.error().message)};
    }
  }
  return report;
}

}  // namespace

Result<std::vector<RowReport>> measure_rows(const BenchOptions& options, int ordinal,
                                            BenchHeader& header, const RowDone& done) {
  const Result<std::vector<BenchRow>> rows = chosen_rows(options);
  if (!rows) return rows.error();
  const Result<std::unique_ptr<Bench>> bench = Bench::open(options, ordinal);
  if (!bench) return bench.error();
  const GpuFacts& facts = (*bench)->facts();
  header.card = facts.card;
  header.driver = facts.driver;
  header.cuda = facts.cuda;
  header.nvrtc = facts.nvrtc;
  std::vector<RowPlan> plans;
  for (const BenchRow& row : *rows) {
    Result<RowPlan> plan = (*bench)->plan(row);
    if (!plan) return plan.error();
    plans.push_back(std::move(*plan));
  }
  KernelQueue queue((*bench)->runtime(), fmt::format("cuda:{}", ordinal), plans);
  std::vector<RowReport> reports;
  for (const RowPlan& plan : plans) {
    Result<RowReport> report = (*bench)->measure(plan, queue);
    if (!report) return report.error();
    done(*report);
    reports.push_back(std::move(*report));
  }
  return reports;
}

}  // namespace splitkv::tool
