// C API of splitkv_tune.h: tuning now, and kernels that are made in the background.
#include "runtime/splitkv_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/c_api_support.hpp"
#include "runtime/tuning_space.hpp"

using splitkv::answer;
using splitkv::invalid_argument;
using splitkv::JobOrder;
using splitkv::JobStage;
using splitkv::JobView;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::Result;
using splitkv::TuneOrder;
using splitkv::Unit;
using splitkv::Workload;

// As splitkv_get_tuning_info lends it out.
struct splitkv_tuning {
  splitkv::Tuned tuned;
  std::string records, failures, untuned;
};

struct splitkv_job {
  std::shared_ptr<splitkv::BackgroundJob> job;
};

static_assert(int(JobStage::waiting) == SPLITKV_JOB_WAITING &&
                  int(JobStage::tuning) == SPLITKV_JOB_TUNING &&
                  int(JobStage::compiling) == SPLITKV_JOB_COMPILING &&
                  int(JobStage::done) == SPLITKV_JOB_DONE &&
                  int(JobStage::failed) == SPLITKV_JOB_FAILED &&
                  int(JobStage::cancelled) == SPLITKV_JOB_CANCELLED,
              "splitkv_job_stage and JobStage count alike");

namespace {

constexpr double kMostSeconds = 1e6;
constexpr int32_t kMostCandidates = 10000;

Result<std::vector<Workload>> read_workloads(const splitkv_workload* workloads, size_t count) {
  std::vector<Workload> list;
  if (count == 0) return list;
  if (Outcome given = not_null(workloads, "workloads"); !given) return given.error();
  const size_t stride = workloads->size;
  // Those of older headers are smaller; an array's elements are aligned in all.
  if (stride <= sizeof(workloads->size) || stride % alignof(splitkv_workload) != 0) {
    return invalid_argument(
        fmt::format("workloads[0].size={} is no size of this struct; {} would fit: start from "
                    "SPLITKV_INIT",
                    stride, sizeof(splitkv_workload)));
  }
  for (size_t i = 0; i < count; ++i) {
    const auto* given = reinterpret_cast<const splitkv_workload*>(
        reinterpret_cast<const char*>(workloads) + i * stride);
    if (given->size != stride) {
      return invalid_argument(fmt::format(
          "workloads[{}].size={} differs from workloads[0].size={}; equal ones would fit", i,
          given->size, stride));
    }
    const auto workload = splitkv::read_workload(given);
    if (!workload) {
      return invalid_argument(fmt::format("workloads[{}]: {}", i, workload.error().message));
    }
    list.push_back(*workload);
  }
  return list;
}

Outcome check_text(const char* text, const char* name, const char* null_means) {
  if (text == nullptr || text[0] != '\0') return Unit{};
  return invalid_argument(
      fmt::format("{} is empty; NULL, for {}, or a path would fit", name, null_means));
}

// Numbers and texts into the order; what calls back is the caller's part.
Outcome read_tune_options(const splitkv_tune_options& read, TuneOrder& order) {
  constexpr uint32_t known = SPLITKV_TUNE_NOT_KEPT | SPLITKV_TUNE_AGAIN;
  if ((read.flags & ~known) != 0) {
    return invalid_argument(fmt::format(
        "options.flags={:#x} has unknown bits {:#x}; known: SPLITKV_TUNE_NOT_KEPT={:#x}, "
        "SPLITKV_TUNE_AGAIN={:#x}",
        read.flags, read.flags & ~known, uint32_t(SPLITKV_TUNE_NOT_KEPT),
        uint32_t(SPLITKV_TUNE_AGAIN)));
  }
  if (!(read.seconds >= 0) || read.seconds > kMostSeconds) {
    return invalid_argument(
        fmt::format("options.seconds={} is no budget; 0 (20 seconds) to {} would fit", read.seconds,
                    kMostSeconds));
  }
  if (read.candidates < 0 || read.candidates > kMostCandidates) {
    return invalid_argument(fmt::format("options.candidates={}: 0 (64) to {} would fit",
                                        read.candidates, kMostCandidates));
  }
  if (Outcome o = check_text(read.worker, "options.worker", "a search"); !o) return o;
  if (Outcome o = check_text(read.file, "options.file", "the user's"); !o) return o;
  order.kept = (read.flags & SPLITKV_TUNE_NOT_KEPT) == 0;
  order.again = (read.flags & SPLITKV_TUNE_AGAIN) != 0;
  if (!order.kept && read.file != nullptr) {
    return invalid_argument(fmt::format(
        "options.file={} is given with SPLITKV_TUNE_NOT_KEPT; one of both would fit", read.file));
  }
  if (read.seconds > 0) order.budget_s = read.seconds;
  if (read.candidates > 0) order.candidates = read.candidates;
  order.memory_bytes = read.memory_bytes;
  if (read.worker != nullptr) order.worker = read.worker;
  if (read.file != nullptr) order.file = read.file;
  return Unit{};
}

Outcome check_names(const splitkv_runtime* runtime, const char* device, const char* problem) {
  if (Outcome given = not_null(runtime, "runtime"); !given) return given;
  if (Outcome given = not_null(device, "device"); !given) return given;
  return not_null(problem, "problem");
}

splitkv::TuneProgress to_callback(const splitkv_tune_options& options) {
  if (options.progress == nullptr) return nullptr;
  return [call = options.progress, user = options.user](const splitkv::TuningProgress& progress) {
    splitkv_tune_progress told = SPLITKV_INIT(splitkv_tune_progress);
    told.stage = progress.stage.c_str();
    told.done = progress.done;
    told.seconds_left = progress.left_s;
    return call(user, &told) == 0;
  };
}

std::unique_ptr<splitkv_tuning> result_of(splitkv::Tuned tuned) {
  auto result = std::make_unique<splitkv_tuning>();
  for (const auto& record : tuned.report.records) result->records += print(record) + '\n';
  for (const auto& failure : tuned.report.failures) {
    result->failures += fmt::format("{} ({}): {}\n", failure.schedule, failure.stage,
                                    failure.why.substr(0, failure.why.find('\n')));
  }
  for (const std::string& bucket : tuned.report.untuned) result->untuned += bucket + '\n';
  result->tuned = std::move(tuned);
  return result;
}

splitkv_tuning_info describe(const splitkv_tuning& tuning) {
  const splitkv::TuningReport& report = tuning.tuned.report;
  splitkv_tuning_info info = SPLITKV_INIT(splitkv_tuning_info);
  info.records = tuning.records.c_str();
  info.failures = tuning.failures.c_str();
  info.untuned = tuning.untuned.c_str();
  info.file = report.records.empty() ? "" : tuning.tuned.file.c_str();
  info.worker = tuning.tuned.worker.c_str();
  info.known = tuning.tuned.known;
  info.candidates = report.candidates;
  info.compiled = report.compiled;
  info.checked = report.checked;
  info.measured = report.measured;
  info.kernels = report.kernels;
  info.processes = tuning.tuned.processes;
  info.out_of_time = report.out_of_time ? 1 : 0;
  info.seconds = report.seconds;
  return info;
}

Result<TuneOrder> tune_of_job(const splitkv_tune_options* options) {
  TuneOrder order;
  if (options == nullptr) return order;
  const auto read = splitkv::read_struct(options, "options.tune");
  if (!read) return read.error();
  if (read->progress != nullptr) {
    return invalid_argument(
        "options.tune->progress is given to a job; NULL would fit: splitkv_poll_job tells it");
  }
  if (Outcome fine = read_tune_options(*read, order); !fine) return fine.error();
  return order;
}

// Device, problem and workload are the caller's part.
Result<JobOrder> read_job_options(const splitkv_job_options* options) {
  JobOrder order;
  if (options == nullptr) return order;
  const auto read = splitkv::read_struct(options, "options");
  if (!read) return read.error();
  if (read->schedule != nullptr) order.schedule = read->schedule;
  const int kind = int(read->kind);
  if (kind == SPLITKV_JOB_TUNE) {
    if (order.schedule) {
      return invalid_argument(fmt::format(
          "options.schedule=\"{}\" is given to a job that tunes; NULL would fit", read->schedule));
    }
    const auto tune = tune_of_job(read->tune);
    if (!tune) return tune.error();
    order.tune = *tune;
    return order;
  }
  if (kind != 0 && kind != SPLITKV_JOB_COMPILE) {
    return invalid_argument(fmt::format(
        "options.kind={} is unknown; SPLITKV_JOB_COMPILE={} or SPLITKV_JOB_TUNE={} would fit", kind,
        int(SPLITKV_JOB_COMPILE), int(SPLITKV_JOB_TUNE)));
  }
  if (read->tune != nullptr) {
    return invalid_argument(
        "options.tune is given to a job that does not tune; NULL, or kind=SPLITKV_JOB_TUNE, would "
        "fit");
  }
  return order;
}

Outcome tell_state(const JobView& view, splitkv_job_state* state) {
  splitkv_job_state filled = SPLITKV_INIT(splitkv_job_state);
  filled.stage = splitkv_job_stage(view.stage);
  filled.done = view.done;
  filled.seconds_left = view.left_s;
  filled.taken = view.taken ? 1 : 0;
  if (Outcome written = splitkv::write_struct(filled, state, "state"); !written) return written;
  const bool is_well = view.stage != JobStage::failed && view.stage != JobStage::cancelled;
  return is_well ? Outcome(Unit{}) : Outcome(view.error);
}

// Whether it may stand in for the other, in buffers for that many batch rows.
Outcome can_replace(const splitkv::PreparedKernel& old, const splitkv::PreparedKernel& made,
                    int64_t max_batch, const splitkv_buffer_sizes* buffers) {
  if (made.binding_id != old.binding_id) {
    return invalid_argument(fmt::format(
        "the job's kernel is of [{}] on {}, the kernel given is of [{}] on {}; those of "
        "one problem on one device would fit",
        made.problem_text, made.device, old.problem_text, old.device));
  }
  if (buffers == nullptr) return Unit{};
  const auto read = splitkv::read_struct(buffers, "buffers");
  if (!read) return read.error();
  if (Outcome fits = splitkv::check_batch(max_batch); !fits) return fits;
  const splitkv::BufferSizes needed = buffer_sizes(made.problem, made.schedule, max_batch);
  for (const auto& [field, has, wants] :
       {std::tuple{"scratch_bytes", read->scratch_bytes, size_t(needed.scratch_bytes)},
        {"state_bytes", read->state_bytes, size_t(needed.state_bytes)}}) {
    if (has >= wants) continue;
    return invalid_argument(fmt::format(
        "buffers.{}={} is below the {} that the job's kernel ({}) needs at max_batch={}; "
        "{} would fit, as would what splitkv_sizes_adoptable gives",
        field, has, wants, made.schedule_text, max_batch, wants));
  }
  return Unit{};
}

}  // namespace

extern "C" {

splitkv_status splitkv_tune(splitkv_runtime* runtime, const char* device, const char* problem,
                            const splitkv_workload* workloads, size_t count,
                            const splitkv_tune_options* options, splitkv_tuning** tuning,
                            splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(tuning, "tuning"); !given) return given;
    *tuning = nullptr;
    if (Outcome given = check_names(runtime, device, problem); !given) return given;
    const auto list = read_workloads(workloads, count);
    if (!list) return list.error();
    TuneOrder order;
    splitkv::TuneProgress progress;
    if (options != nullptr) {
      const auto read = splitkv::read_struct(options, "options");
      if (!read) return read.error();
      if (Outcome fine = read_tune_options(*read, order); !fine) return fine;
      progress = to_callback(*read);
    }
    order.device = device;
    order.problem = problem;
    order.workloads = *list;
    auto tuned = tune_problem(runtime->kernels, order, progress);
    if (!tuned) return tuned.error();
    *tuning = result_of(*std::move(tuned)).release();
    return Unit{};
  });
}

splitkv_status splitkv_get_tuning_info(const splitkv_tuning* tuning, splitkv_tuning_info* info,
                                       splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(tuning, "tuning"); !given) return given;
    return splitkv::write_struct(describe(*tuning), info, "info");
  });
}

void splitkv_release_tuning(splitkv_tuning* tuning) { delete tuning; }

splitkv_status splitkv_background_start(splitkv_runtime* runtime, const char* device,
                                        const char* problem, const splitkv_workload* workload,
                                        const splitkv_job_options* options, splitkv_job** job,
                                        splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(job, "job"); !given) return given;
    *job = nullptr;
    if (Outcome given = check_names(runtime, device, problem); !given) return given;
    const auto hints = splitkv::read_workload(workload);
    if (!hints) return hints.error();
    auto order = read_job_options(options);
    if (!order) return order.error();
    order->device = device;
    order->problem = problem;
    order->workload = *hints;
    if (order->tune) {
      order->tune->device = device;
      order->tune->problem = problem;
      order->tune->workloads = {*hints};
    }
    auto handle = std::make_unique<splitkv_job>();
    auto started = runtime->background.start(*std::move(order));
    if (!started) return started.error();
    handle->job = *std::move(started);
    *job = handle.release();
    return Unit{};
  });
}

splitkv_status splitkv_poll_job(const splitkv_job* job, splitkv_job_state* state,
                                splitkv_message* message) {
  return splitkv_wait_job(job, 0, state, message);
}

splitkv_status splitkv_wait_job(const splitkv_job* job, double seconds, splitkv_job_state* state,
                                splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(job, "job"); !given) return given;
    if (std::isnan(seconds)) {
      return invalid_argument("seconds=nan; 0 or more, or -1 for however long, would fit");
    }
    if (seconds < 0) {
      job->job->wait();
    } else if (seconds > 0) {
      (void)job->job->wait(std::min(seconds, kMostSeconds));
    }
    return tell_state(job->job->view(), state);
  });
}

void splitkv_cancel_job(splitkv_job* job) {
  (void)answer(nullptr, [&]() -> Outcome {
    if (job != nullptr) job->job->cancel();
    return Unit{};
  });
}

void splitkv_release_job(splitkv_job* job) {
  if (job == nullptr) return;
  (void)answer(nullptr, [&]() -> Outcome {
    job->job->cancel();
    job->job->wait();
    return Unit{};
  });
  delete job;
}

splitkv_status splitkv_adopt(const splitkv_kernel* kernel, splitkv_job* job, int64_t max_batch,
                             const splitkv_buffer_sizes* buffers, splitkv_kernel** adopted,
                             splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(adopted, "adopted"); !given) return given;
    *adopted = nullptr;
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome given = not_null(job, "job"); !given) return given;
    auto handle = std::make_unique<splitkv_kernel>();  // before it is taken, lest it be lost
    auto taken = job->job->take([&](const splitkv::PreparedKernel& made) {
      return can_replace(*kernel->prepared, made, max_batch, buffers);
    });
    if (!taken) return taken.error();
    handle->prepared = *std::move(taken);
    *adopted = handle.release();
    return Unit{};
  });
}

splitkv_status splitkv_sizes_adoptable(const splitkv_kernel* kernel,
                                       const splitkv_workload* workloads, size_t count,
                                       int64_t max_batch, splitkv_buffer_sizes* sizes,
                                       splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome fits = splitkv::check_batch(max_batch); !fits) return fits;
    const auto list = read_workloads(workloads, count);
    if (!list) return list.error();
    const splitkv::PreparedKernel& prepared = *kernel->prepared;
    const splitkv::BufferSizes own = buffer_sizes(prepared.problem, prepared.schedule, max_batch);
    const splitkv::BufferSizes others =
        adoptable_sizes(prepared.problem, prepared.target, *list, max_batch);
    splitkv_buffer_sizes filled = SPLITKV_INIT(splitkv_buffer_sizes);
    filled.scratch_bytes = size_t(std::max(own.scratch_bytes, others.scratch_bytes));
    filled.state_bytes = size_t(std::max(own.state_bytes, others.state_bytes));
    filled.module_bytes = prepared.loaded.code->facts().module_bytes;
    return splitkv::write_struct(filled, sizes, "sizes");
  });
}

}  // extern "C"
