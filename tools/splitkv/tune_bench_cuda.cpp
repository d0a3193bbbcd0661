#include <fmt/format.h>

#include <optional>

#include "tools/splitkv/bench_rows.hpp"
#include "tools/splitkv/bench_sources.hpp"
#include "tools/splitkv/bench_timer.hpp"
#include "tools/splitkv/tune_bench.hpp"

namespace splitkv::tool {
namespace {

constexpr uint64_t kSeed = 5;

// Copies beyond L2 in turn, graphs that are replayed; where the benchmark's own attention knows the
// problem, every copy's result is compared with it as well.
class CudaTuningBench final : public CheckedBench {
 public:
  CudaTuningBench(int ordinal, const Problem& problem, Runtime runtime)
      : CheckedBench(fmt::format("cuda:{}", ordinal), problem, std::move(runtime)) {}

  Outcome open(int ordinal) {
    Result<std::unique_ptr<Gpu>> gpu = Gpu::open(ordinal);
    if (!gpu) return gpu.error();
    gpu_ = std::move(*gpu);
    Result<FloorReader> reader = FloorReader::make(*gpu_);
    if (!reader) return reader.error();
    reader_.emplace(std::move(*reader));
    timer_.emplace(*gpu_);
    if (!check_attend(problem_)) return Unit{};
    Result<GpuModule> attend = gpu_->load(attend_source(problem_));
    if (!attend) return attend.error();
    attend_ = std::move(*attend);
    return Unit{};
  }

  Result<double> floor_us(const TuningPoint& point, double) override {
    if (const Outcome placed = place(point); !placed) return placed.error();
    const int64_t bytes = kv_bytes(problem_, lengths_of(point));
    if (bytes < 16) return invalid_argument("kv_len: there is nothing to read");
    constexpr int repeat = 5;
    const auto floor = reader_->measure(sets_->floor_range(bytes), {rotation_.launches, repeat});
    if (!floor) return floor.error();
    return floor->timing.median_us;
  }

  Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                         double) override {
    if (const Outcome placed = place(point); !placed) return placed.error();
    const Result<Kernel> kernel = this->kernel(schedule, workload_of(point));
    if (!kernel) return kernel.error();
    const Result<OurTime> time = timer_->time(*kernel, *sets_, {rotation_.launches, repeat});
    if (!time) return time.error();
    // The reference's tolerance where partials may be exchanged in bf16.
    const double limit = 3 * tolerance_of(problem_, false).out_relative_l2;
    if (!(time->error <= limit)) {
      return Error{Status::internal,
                   fmt::format("its result is wrong at {}: out is off by {:.2g} (at most {:.2g})",
                               print(point), time->error, limit)};
    }
    return time->us;
  }

 private:
  Outcome place(const TuningPoint& point) {
    if (placed_ == point) return Unit{};
    placed_.reset();
    sets_.reset();
    const std::vector<int32_t> lengths = lengths_of(point);
    if (const Outcome fit = fits(point, set_bytes(problem_, lengths)); !fit) return fit;
    const Result<Rotation> rotation = rotation_on(*gpu_, problem_, lengths, int64_t(memory_bytes_));
    if (!rotation) return rotation.error();
    rotation_ = *rotation;
    const GpuModule* attend = attend_ ? &*attend_ : nullptr;
    auto sets = BenchSets::place(
        *gpu_, *reader_, {problem_, lengths, rotation_.sets, kSeed, attend != nullptr, attend});
    if (!sets) return sets.error();
    sets_ = std::move(*sets);
    placed_ = point;
    return Unit{};
  }

  std::unique_ptr<Gpu> gpu_;
  std::optional<FloorReader> reader_;
  std::optional<KernelTimer> timer_;
  std::optional<GpuModule> attend_;  // nothing where it does not know the problem
  std::unique_ptr<BenchSets> sets_;
  Rotation rotation_;
  std::optional<TuningPoint> placed_;
};

}  // namespace

Result<std::unique_ptr<TuningBench>> open_cuda_tuning_bench(int ordinal, const Problem& problem,
                                                            Runtime runtime) {
  auto bench = std::make_unique<CudaTuningBench>(ordinal, problem, std::move(runtime));
  if (const Outcome opened = bench->open(ordinal); !opened) return opened.error();
  return std::unique_ptr<TuningBench>(std::move(bench));
}

}  // namespace splitkv::tool
