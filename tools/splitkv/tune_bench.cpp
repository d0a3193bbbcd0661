#include "tools/splitkv/tune_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "compiler/text.hpp"
#include "runtime/prepare_many.hpp"
#include "tools/splitkv/bench_cpu_sets.hpp"
#include "tools/splitkv/bench_rows.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/parallel.hpp"
#include "tools/splitkv/partials.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "tools/splitkv/bench_gpu.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr uint64_t kSeed = 5;
// Rows of the check: none, one and some keys, and more than most tiles and pieces have.
const std::vector<int32_t> kCheckedLengths = {130, 0, 1, 700};
// About what a compile takes at its height, with room to spare.
constexpr uint64_t kCompileBytes = uint64_t(768) << 20;

class CpuTuningBench final : public CheckedBench {
 public:
  CpuTuningBench(const std::string& device, const Problem& problem, Runtime runtime)
      : CheckedBench(device, problem, std::move(runtime)),
        readers_(int(std::max(1u, std::thread::hardware_concurrency()))) {}

  // The least of many reads: what other programs do in between makes them longer only.
  Result<double> floor_us(const TuningPoint& point, double) override {
    if (const Outcome placed = place(point); !placed) return placed.error();
    constexpr int reads = 15;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < reads; ++i) {
      const Buffer& copy = sets_->copies[size_t(i) % sets_->copies.size()];
      least =
          std::min(least, readers_.read_us(static_cast<const std::byte*>(copy.data()), kv_bytes_));
    }
    return least;
  }

  // The least of the runs, likewise.
  Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                         double) override {
    if (const Outcome placed = place(point); !placed) return placed.error();
    const Result<Kernel> kernel = this->kernel(schedule, workload_of(point));
    if (!kernel) return kernel.error();
    const auto times = time_on_cpu(*sets_, *kernel, readers_, {kv_bytes_, repeat});
    if (!times) return times.error();
    return *std::min_element(times->runs.begin(), times->runs.end());
  }

 private:
  Outcome place(const TuningPoint& point) {
    if (placed_ == point) return Unit{};
    placed_.reset();
    sets_.reset();  // buffers before the memory that owns them
    const std::vector<int32_t> lengths = lengths_of(point);
    kv_bytes_ = kv_bytes(problem_, lengths);
    if (kv_bytes_ < 16) return invalid_argument("kv_len: there is nothing to read");
    // The step's own and one to go through; more as far as they may be had.
    if (const Outcome fit = fits(point, 2 * kv_bytes_); !fit) return fit;
    bool cold = false;
    int64_t copies = copies_on_cpu(kv_bytes_, cold);
    if (memory_bytes_ > 0) copies = std::min(copies, int64_t(memory_bytes_) / kv_bytes_ - 1);
    auto sets = place_on_cpu(problem_, generate_inputs(problem_, lengths, kSeed), kSeed, copies);
    if (!sets) return sets.error();
    sets_.emplace(std::move(*sets));
    placed_ = point;
    return Unit{};
  }

  ReadPool readers_;
  std::optional<CpuSets> sets_;
  int64_t kv_bytes_ = 0;
  std::optional<TuningPoint> placed_;
};

}  // namespace

int compile_workers() {
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t free = available_memory();
  if (free == 0) return int(cores);  // nobody knows
  return int(std::clamp<uint64_t>(free / kCompileBytes, 1, cores));
}

Outcome CheckedBench::fits(const TuningPoint& point, int64_t bytes) const {
  if (memory_bytes_ == 0 || uint64_t(bytes) <= memory_bytes_) return Unit{};
  return Error{Status::out_of_memory,
               fmt::format("memory_bytes={} is below the {} that tensors of {} take", memory_bytes_,
                           bytes, print(point))};
}

int CheckedBench::workers() const { return compile_workers(); }

Result<Kernel> CheckedBench::kernel(const Schedule& schedule, const Workload& workload) {
  return guarded([&] {
    return runtime_.prepare(device_, print(problem_),
                            {workload.batch, workload.kv_len, workload.kv_len_mean},
                            print(schedule));
  });
}

std::vector<Outcome> CheckedBench::prepare(const std::vector<Schedule>& schedules, double) {
  std::vector<Outcome> outcomes(schedules.size(), Outcome(Unit{}));
  parallel_for(int64_t(schedules.size()), [&](int64_t i) {
    const Result<Kernel> made = kernel(schedules[size_t(i)], {});
    if (!made) outcomes[size_t(i)] = made.error();
  });
  return outcomes;
}

Outcome CheckedBench::check(const Schedule& schedule, double) {
  if (!inputs_) {
    inputs_ = generate_inputs(problem_, kCheckedLengths, kSeed);
    expected_ = expect_from_reference(problem_, *inputs_);
  }
  const ExecutePlan plan{device_, print(schedule), 1, kSeed};
  const Result<Execution> execution = execute(runtime_, plan, problem_, *inputs_);
  if (!execution) return execution.error();
  const PartialCount partials = count_partials(problem_, schedule, rows_of(problem_, *inputs_));
  const reference::Tolerance tolerance = tolerance_of(problem_, schedule, partials);
  const reference::Accuracy found = judge(problem_, *execution, *expected_, tolerance);
  if (!found.ok()) {
    return Error{Status::internal,
                 fmt::format("its result is wrong on rows of {} tokens: out is off by {:.2g} (at "
                             "most {:.2g}), lse by {:.2g} (at most {:.2g})",
                             describe_lengths(kCheckedLengths), found.out_relative_l2,
                             found.out_limit, found.lse_error, found.lse_limit)};
  }
  if (!execution->repeatable) {
    return Error{Status::internal, "the bits of its result differ between runs"};
  }
  return Unit{};
}

Outcome check_tunable(const std::string& device, const Problem& problem) {
  const bool is_inline = problem.k_scale == KvScale::inl || problem.v_scale == KvScale::inl;
  if (!device.starts_with("cuda:") || !is_inline) return Unit{};
  return invalid_argument(
      "kv_scale=inline: the tuner makes no caches whose rows hold their scales on CUDA devices; "
      "kv_scale=token would work, and its schedules can be forced by SPLITKV_SCHEDULE");
}

Result<std::unique_ptr<TuningBench>> open_tuning_bench(const std::string& device,
                                                       const Problem& problem) {
  if (const Outcome tunable = check_tunable(device, problem); !tunable) return tunable.error();
  Result<Runtime> runtime = guarded([] { return Runtime(); });
  if (!runtime) return runtime.error();
#ifdef SPLITKV_HAS_CUDA
  if (device.starts_with("cuda:")) {
    return open_cuda_tuning_bench(std::atoi(device.c_str() + 5), problem, std::move(*runtime));
  }
#endif
  return std::unique_ptr<TuningBench>(
      std::make_unique<CpuTuningBench>(device, problem, std::move(*runtime)));
}

}  // namespace splitkv::tool
