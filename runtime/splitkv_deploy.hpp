// SplitKV for C++17, the second part: many kernels at once, tuning, and better kernels made in the
// background, over splitkv_deploy.h and splitkv_tune.h, where the whole contracts stand. A failure
// is thrown as splitkv::Failure. Callbacks must not throw.
//
//   splitkv::Job job(runtime, "cuda:0", problem, {64, 8192}, splitkv::Job::tune());
//   ...                                                // the engine goes on with `kernel`
//   if (job.state().stage == SPLITKV_JOB_DONE) better = job.adopt(kernel);
#ifndef SPLITKV_DEPLOY_HPP
#define SPLITKV_DEPLOY_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "splitkv.hpp"
#include "splitkv_tune.h"

namespace splitkv {

// ---- many at once -------------------------------------------------------------------------------

// One prepare among many.
struct PrepareItem {
  std::string problem;
  Hints hints = Hints();
  std::string schedule = std::string();  // as of Runtime::prepare
};

// What came of it.
struct PreparedItem {
  std::optional<Kernel> kernel;  // exactly where status is SPLITKV_OK
  splitkv_status status = SPLITKV_OK;
  std::string message;
};

struct ManyOptions {
  std::int32_t workers = 0;        // at most; 0: as many as the process has cores
  std::uint64_t memory_bytes = 0;  // for all compiles at once; 0: half of what is free
  // Before the first item and after each, from any thread, one call at a time. false: no further
  // item is begun.
  std::function<bool(const splitkv_progress&)> progress;
};

namespace c_layer {

// Items as the C API takes them; they point into the ones given and into itself.
class Items {
 public:
  explicit Items(const std::vector<PrepareItem>& items)
      : workloads_(items.size()), texts_(items.size()), messages_(items.size()) {
    constexpr std::size_t longest = 16384;
    for (std::size_t i = 0; i < items.size(); ++i) {
      workloads_[i] = items[i].hints.workload();
      texts_[i].assign(longest, '\0');
      messages_[i] = sized<splitkv_message>();
      messages_[i].text = &texts_[i][0];
      messages_[i].capacity = longest;
      auto item = sized<splitkv_prepare_item>();
      item.problem = items[i].problem.c_str();
      item.workload = &workloads_[i];
      item.schedule = items[i].schedule.empty() ? nullptr : items[i].schedule.c_str();
      item.message = &messages_[i];
      list.push_back(item);
    }
  }

  std::vector<PreparedItem> take() {
    std::vector<PreparedItem> taken(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      taken[i].status = list[i].status;
      taken[i].message = texts_[i].c_str();
      if (list[i].kernel != nullptr) taken[i].kernel.emplace(list[i].kernel);
    }
    return taken;
  }

  std::vector<splitkv_prepare_item> list;

 private:
  std::vector<splitkv_workload> workloads_;
  std::vector<std::string> texts_;
  std::vector<splitkv_message> messages_;
};

// It refers to the one given.
inline splitkv_many_options to_c(const ManyOptions& options) {
  auto given = sized<splitkv_many_options>();
  given.workers = options.workers;
  given.memory_bytes = options.memory_bytes;
  if (!options.progress) return given;
  given.user = const_cast<ManyOptions*>(&options);
  given.progress = [](void* user, const splitkv_progress* progress) -> std::int32_t {
    return static_cast<const ManyOptions*>(user)->progress(*progress) ? 0 : 1;
  };
  return given;
}

}  // namespace c_layer

// What prepare_many would do; neither compiles nor loads.
inline splitkv_plan plan_many(Runtime& runtime, const std::string& device,
                              const std::vector<PrepareItem>& items,
                              const ManyOptions& options = ManyOptions()) {
  const c_layer::Items given(items);
  const splitkv_many_options limits = c_layer::to_c(options);
  auto plan = sized<splitkv_plan>();
  c_layer::check([&](splitkv_message* m) {
    return splitkv_plan_many(runtime.get(), device.c_str(), given.list.data(), given.list.size(),
                             &limits, &plan, m);
  });
  return plan;
}

// Side by side; each kernel compiles once. An item that fails does not throw: its status and
// message tell.
inline std::vector<PreparedItem> prepare_many(Runtime& runtime, const std::string& device,
                                              const std::vector<PrepareItem>& items,
                                              const ManyOptions& options = ManyOptions()) {
  c_layer::Items given(items);
  const splitkv_many_options limits = c_layer::to_c(options);
  for (splitkv_prepare_item& item : given.list) item.status = SPLITKV_INTERNAL;
  c_layer::check([&](splitkv_message* m) {
    const splitkv_status status = splitkv_prepare_many(
        runtime.get(), device.c_str(), given.list.data(), given.list.size(), &limits, m);
    // Of a call that could not be read the items are as they were.
    bool was_read = false;
    for (const splitkv_prepare_item& item : given.list) {
      was_read = was_read || item.status != SPLITKV_INTERNAL;
    }
    return was_read ? SPLITKV_OK : status;
  });
  return given.take();
}

// ---- tuning -------------------------------------------------------------------------------------

struct TuneOptions {
  double seconds = 0;              // for everything; 0: 20
  std::int32_t candidates = 0;     // schedules a workload, at most; 0: 64
  std::uint64_t memory_bytes = 0;  // for tensors of measurements; 0: as much as is free
  bool kept = true;    // false: records are added to no file, this runtime alone has them
  bool again = false;  // measure also what the file has records of
  std::string worker;  // the program `splitkv`; empty: it is looked for
  std::string file;    // that records are added to; empty: the user's
  // On the thread that tunes, about ten times a second. false: it is given up, and tune() throws
  // SPLITKV_NOT_PREPARED. Not of jobs, which are polled.
  std::function<bool(const splitkv_tune_progress&)> progress;
};

namespace c_layer {

// It refers to the one given.
inline splitkv_tune_options to_c(const TuneOptions& options) {
  auto given = sized<splitkv_tune_options>();
  given.flags = (options.kept ? 0u : std::uint32_t(SPLITKV_TUNE_NOT_KEPT)) |
                (options.again ? std::uint32_t(SPLITKV_TUNE_AGAIN) : 0u);
  given.seconds = options.seconds;
  given.candidates = options.candidates;
  given.memory_bytes = options.memory_bytes;
  given.worker = options.worker.empty() ? nullptr : options.worker.c_str();
  given.file = options.file.empty() ? nullptr : options.file.c_str();
  if (!options.progress) return given;
  given.user = const_cast<TuneOptions*>(&options);
  given.progress = [](void* user, const splitkv_tune_progress* progress) -> std::int32_t {
    return static_cast<const TuneOptions*>(user)->progress(*progress) ? 0 : 1;
  };
  return given;
}

inline std::vector<splitkv_workload> to_c(const std::vector<Hints>& hints) {
  std::vector<splitkv_workload> workloads;
  for (const Hints& one : hints) workloads.push_back(one.workload());
  return workloads;
}

}  // namespace c_layer

// What tuning came to. Move-only.
class Tuning {
 public:
  // Texts in it live as long as this.
  splitkv_tuning_info info() const {
    auto info = sized<splitkv_tuning_info>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_get_tuning_info(handle_.get(), &info, m); });
    return info;
  }

  // Owns a handle of the C API from now on.
  explicit Tuning(splitkv_tuning* handle) : handle_(handle) {}

 private:
  struct Release {
    void operator()(splitkv_tuning* tuning) const noexcept { splitkv_release_tuning(tuning); }
  };
  std::unique_ptr<splitkv_tuning, Release> handle_;
};

// Measures the schedules of a problem on the workloads, in a process of its own; later prepares
// take the best.
inline Tuning tune(Runtime& runtime, const std::string& device, const std::string& problem,
                   const std::vector<Hints>& workloads,
                   const TuneOptions& options = TuneOptions()) {
  const std::vector<splitkv_workload> list = c_layer::to_c(workloads);
  const splitkv_tune_options given = c_layer::to_c(options);
  splitkv_tuning* tuning = nullptr;
  c_layer::check([&](splitkv_message* m) {
    return splitkv_tune(runtime.get(), device.c_str(), problem.c_str(), list.data(), list.size(),
                        &given, &tuning, m);
  });
  return Tuning(tuning);
}

// Kernel::sizes that are enough as well for what tuning may come to for these workloads; for any
// workload where there are none.
inline splitkv_buffer_sizes sizes_adoptable(const Kernel& kernel,
                                            const std::vector<Hints>& workloads,
                                            std::int64_t max_batch) {
  const std::vector<splitkv_workload> list = c_layer::to_c(workloads);
  auto sizes = sized<splitkv_buffer_sizes>();
  c_layer::check([&](splitkv_message* m) {
    return splitkv_sizes_adoptable(kernel.get(), list.data(), list.size(), max_batch, &sizes, m);
  });
  return sizes;
}

// ---- in the background --------------------------------------------------------------------------

// A kernel that is made while the caller goes on. Move-only; its end cancels it and waits. Any
// threads may call its const methods at once.
class Job {
 public:
  struct Work {
    std::string schedule;             // words; empty: the library's choice
    std::optional<TuneOptions> tune;  // before it compiles; without progress
  };
  static Work compile(std::string schedule = std::string()) { return {std::move(schedule), {}}; }
  static Work tune(TuneOptions options = TuneOptions()) { return {"", std::move(options)}; }

  Job(Runtime& runtime, const std::string& device, const std::string& problem,
      Hints hints = Hints(), const Work& work = Work()) {
    const splitkv_workload workload = hints.workload();
    auto options = sized<splitkv_job_options>();
    auto tuning = sized<splitkv_tune_options>();
    options.kind = work.tune ? SPLITKV_JOB_TUNE : SPLITKV_JOB_COMPILE;
    options.schedule = work.schedule.empty() ? nullptr : work.schedule.c_str();
    if (work.tune) {
      tuning = c_layer::to_c(*work.tune);
      options.tune = &tuning;
    }
    splitkv_job* job = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_background_start(runtime.get(), device.c_str(), problem.c_str(), &workload,
                                      &options, &job, m);
    });
    handle_.reset(job);
  }

  // Throws what a job failed of, and SPLITKV_NOT_PREPARED of one that was cancelled.
  splitkv_job_state state() const { return wait(0); }
  // Until it has ended, at most so many seconds; below 0: however long.
  splitkv_job_state wait(double seconds = -1) const {
    auto state = sized<splitkv_job_state>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_wait_job(handle_.get(), seconds, &state, m); });
    return state;
  }
  void cancel() const { splitkv_cancel_job(handle_.get()); }

  // The kernel of a job that is done, once. `kernel` stays what it is; bindings of it are good for
  // the new one.
  Kernel adopt(const Kernel& kernel) const { return adopt(kernel, 0, nullptr); }
  // The same, refused where buffers of these sizes are too small for max_batch rows.
  Kernel adopt(const Kernel& kernel, std::int64_t max_batch,
               const splitkv_buffer_sizes& buffers) const {
    return adopt(kernel, max_batch, &buffers);
  }

  // The C handle, still owned by this.
  splitkv_job* get() const noexcept { return handle_.get(); }

 private:
  struct Release {
    void operator()(splitkv_job* job) const noexcept { splitkv_release_job(job); }
  };

  Kernel adopt(const Kernel& kernel, std::int64_t max_batch,
               const splitkv_buffer_sizes* buffers) const {
    splitkv_kernel* adopted = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_adopt(kernel.get(), handle_.get(), max_batch, buffers, &adopted, m);
    });
    return Kernel(adopted);
  }

  std::unique_ptr<splitkv_job, Release> handle_;
};

}  // namespace splitkv

#endif  // SPLITKV_DEPLOY_HPP
