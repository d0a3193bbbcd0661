// A prepared kernel: problem, schedule, emitted source and loaded code. The C handles
// splitkv_runtime and splitkv_kernel are these classes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/workload.hpp"
#include "runtime/decision.hpp"
#include "runtime/platform.hpp"
#include "runtime/tuned_schedules.hpp"

namespace splitkv {

// Immutable after prepare. Any threads may run it at once, each with its own scratch and state.
struct PreparedKernel {
  Problem problem;  // checked= is on or off here, never auto
  Schedule schedule;
  Target target;
  KernelSource source;
  Loaded loaded;

  // What splitkv_get_kernel_info lends out.
  std::string device;
  std::string problem_text;
  std::string schedule_text;
  std::string target_text;
  std::string why;
  Decider decider = Decider::cost_model;

  std::shared_ptr<const ErrorMemory> errors;  // null unless checked

  // Equal for kernels that take the same tensors: a digest of device and problem.
  uint64_t binding_id = 0;
};

struct PrepareRequest {
  std::string device;
  std::string problem;
  Workload workload;
  const char* schedule = nullptr;      // null: SPLITKV_SCHEDULE, else what was tuned or predicted
  const Decision* decision = nullptr;  // in place of a choice; the workload is not looked at then
};

// checked=auto is on in debug builds of the library.
Checked resolved(Checked checked);
// The problem as it is compiled.
Problem resolved(Problem problem);

// A loaded merge of partials of one form and base.
struct PreparedMerge {
  Merge form;
  Target target;
  Loaded loaded;
  std::shared_ptr<const ErrorMemory> errors;
};

// What was recorded, and the record made ready for the next fault. Nothing where there is no fault.
std::optional<ErrorRecord> take_fault(ErrorRecord& record);

// Into a record that devices and other threads may be writing as well: the first fault is kept.
void record_fault(ErrorRecord& record, const ErrorRecord& found);

// The KV writer and what it is asked by: append_launch.hpp.
struct PreparedAppend;
struct AppendRequest;

// What bindings are known by: equal for kernels that take the same tensors, a digest of the device
// and the problem's canonical text.
uint64_t binding_id_of(const std::string& device, const std::string& problem_text);

// Options, counters, and kernels in memory. Thread-safe.
class KernelRuntime {
 public:
  explicit KernelRuntime(const RuntimeOptions& options);

  Result<std::unique_ptr<PreparedKernel>> prepare(const PrepareRequest& request);
  // All of a kernel but its code; its key too where it can be told (NVRTC is there).
  Result<std::unique_ptr<PreparedKernel>> describe(const PrepareRequest& request);
  // Where prepare would have the code from; neither loads nor compiles.
  Result<Located> locate(const PrepareRequest& request);

  // Kernels and records of a pack, for all that is prepared from now on. origin: its name in
  // messages. Refused whole where it is damaged or of another version.
  Outcome add_pack(std::string_view bytes, const std::string& origin);
  Outcome add_pack_file(const std::string& path);
  Outcome add_chosen_pack();  // of the options, else of the environment, if any

  // form: "mlo" or "lse"; base: "natural" or "base2".
  Result<std::unique_ptr<PreparedMerge>> prepare_merge(const std::string& device,
                                                       const std::string& form,
                                                       const std::string& base);
  Result<std::unique_ptr<PreparedAppend>> prepare_append(const AppendRequest& request);
  // The device's facts, by which schedules are chosen.
  Result<Target> target_of(const std::string& device) const;
  // Records for all that is prepared from now on, before those of the user's file.
  void add_own_records(std::vector<KeptRecord> records) { tuned_.add_own(std::move(records)); }
  const Log& log() const { return services_.log; }

  Counters::Values statistics() const {
    Counters::Values values = services_.counters.values();
    values.evictions = services_.disk.evictions();
    return values;
  }

  const RuntimeOptions& options() const { return services_.options; }

 private:
  // All of a kernel but its code.
  struct Chosen {
    Platform* platform;
    std::unique_ptr<PreparedKernel> kernel;
  };
  Result<Chosen> choose(const PrepareRequest& request);
  Result<ScheduleChoice> schedule_for(const PrepareRequest& request, const Problem& problem,
                                      const Target& target);
  Result<Platform*> platform_of(const std::string& device) const;

  Services services_;
  TunedSchedules tuned_;
  std::unique_ptr<Platform> cuda_;  // null where the build leaves the target out
  std::unique_ptr<Platform> cpu_;
};

// Ok when the problem can be prepared on the target ("cuda:sm_90a", "cpu", "cpu:x86-64-v3").
Outcome check_support(const std::string& problem, const std::string& target);

}  // namespace splitkv
