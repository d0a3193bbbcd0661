#include "runtime/tune_problem.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/splitkv.h"
#include "runtime/tuning_pool.hpp"
#include "runtime/tuning_process.hpp"
#include "runtime/tuning_versions.hpp"
#ifdef SPLITKV_HAS_CPU
#include "runtime/cpu/host.hpp"
#endif

namespace splitkv {
namespace {

constexpr const char* kProgram = "splitkv";
constexpr double kReadyWithin_s = 60;
constexpr int64_t kMostBatch = 65536;

Outcome check(const TuneOrder& order) {
  if (order.workloads.empty()) {
    return invalid_argument("count=0: there is no workload to tune for; one or more would fit");
  }
  for (const Workload& workload : order.workloads) {
    if (workload.batch > kMostBatch) {
      return invalid_argument(fmt::format("workload.batch={} is above {}; that or fewer would fit",
                                          workload.batch, kMostBatch));
    }
    if (workload.kv_len > std::numeric_limits<int32_t>::max()) {
      return invalid_argument(fmt::format("workload.kv_len={} is above {}; that or less would fit",
                                          workload.kv_len, std::numeric_limits<int32_t>::max()));
    }
  }
  return Unit{};
}

// A process of its own has its own thread pool, and its records are those of that machine.
Outcome check_threads([[maybe_unused]] const KernelRuntime& runtime,
                      [[maybe_unused]] const Target& target) {
#ifdef SPLITKV_HAS_CPU
  if (target.kind == TargetKind::cpu && target.threads != usable_threads()) {
    return invalid_argument(
        fmt::format("options.threads={}: candidates are measured on {} threads, as many as the "
                    "process may use; a runtime opened with threads=0 would work",
                    target.threads, usable_threads()));
  }
#endif
  return Unit{};
}

// That of the order, else the user's. Empty: the records are kept in no file.
Result<std::string> file_for(const TuneOrder& order) {
  const Environment environment = read_environment();
  if (tuning_is_off(environment)) {
    return Error{
        Status::not_prepared,
        "SPLITKV_TUNING_FILE=off: records would not be looked at; without that variable, or "
        "with the path of a file in it, tuning would work"};
  }
  if (!order.kept) return std::string();
  const std::string file = !order.file.empty() ? order.file : user_tuning_file(environment);
  if (!file.empty()) return file;
  return invalid_argument(
      "file is NULL, and SPLITKV_TUNING_FILE, XDG_CONFIG_HOME and HOME name none either; "
      "file=/path/to/tuning.txt or SPLITKV_TUNE_NOT_KEPT would work");
}

struct Plan {
  TuningRequest request;
  std::string file;
  int known = 0;
};

Result<Plan> plan_for(const KernelRuntime& runtime, const TuneOrder& order) {
  if (const Outcome may = may_tune(runtime); !may) return may.error();
  if (const Outcome fine = check(order); !fine) return fine.error();
  const Result<Problem> problem = parse_problem(order.problem);
  if (!problem) return problem.error();
  const Result<Target> target = runtime.target_of(order.device);
  if (!target) return target.error();
  if (const auto refusal = verify(*problem, *target)) return to_error(*refusal);
  if (const Outcome fine = check_threads(runtime, *target); !fine) return fine.error();
  const Result<std::string> file = file_for(order);
  if (!file) return file.error();

  Plan plan;
  plan.file = *file;
  plan.request.problem = *problem;
  plan.request.target = *target;
  plan.request.points = tuning_points(*problem, order.workloads);
  plan.request.budget_s = order.budget_s;
  plan.request.candidates = order.candidates;
  if (order.again || plan.file.empty()) return plan;
  const Result<std::string> text = read_tuning_file(plan.file);
  if (!text) return text.error();
  const size_t wanted = plan.request.points.size();
  plan.request.points =
      points_without_records(plan.request.points, *problem, *target,
                             read_records(*text, plan.file, [](const std::string&) {}));
  plan.known = int(wanted - plan.request.points.size());
  return plan;
}

// What the process must do as this runtime does: where it keeps compiled kernels, this one's
// prepares find them.
std::vector<std::string> variables_of(const RuntimeOptions& options) {
  std::vector<std::string> variables;
  if (options.no_disk) variables.push_back("SPLITKV_NO_DISK=1");
  if (!options.cache_dir.empty()) variables.push_back("SPLITKV_CACHE_DIR=" + options.cache_dir);
  if (options.cache_limit_bytes > 0) {
    variables.push_back(fmt::format("SPLITKV_CACHE_LIMIT={}", options.cache_limit_bytes));
  }
  return variables;
}

Outcome keep(KernelRuntime& runtime, const Plan& plan, const TuningReport& report) {
  std::vector<KeptRecord> own;
  for (const TuningRecord& record : report.records) own.push_back({record, "this process"});
  // The user's file is read when it changed; what stands elsewhere is not.
  if (plan.file != user_tuning_file(read_environment())) runtime.add_own_records(std::move(own));
  if (plan.file.empty()) return Unit{};
  const auto lines = kept_lines(report, plan.request.problem, plan.request.target);
  return lines.empty() ? Outcome(Unit{}) : append_lines(plan.file, lines);
}

// Tells progress, also while the process is waited for, and remembers that it was given up.
class Teller {
 public:
  explicit Teller(const TuneProgress& progress) : progress_(progress) {}

  void tell(const TuningProgress& progress) {
    last_ = progress;
    (void)is_cancelled();
  }
  bool is_cancelled() {
    if (!cancelled_ && progress_ && !progress_(last_)) cancelled_ = true;
    return cancelled_;
  }

 private:
  const TuneProgress& progress_;
  TuningProgress last_ = {"starting", 0, 0};
  bool cancelled_ = false;
};

std::vector<std::string> folders_of_path() {
  std::vector<std::string> folders;
  std::string path = read_environment().path;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::vector<std::string> worker_names() {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code fault;
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&worker_names), &here) != 0 && here.dli_fname != nullptr) {
    files.push_back(fs::absolute(here.dli_fname, fault));
  }
  files.push_back(fs::read_symlink("/proc/self/exe", fault));
  std::vector<std::string> names;
  const auto add = [&](const fs::path& folder) {
    const std::string name = (folder / kProgram).string();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const fs::path& file : files) {
    const fs::path folder = file.parent_path();
    if (folder.empty()) continue;
    add(folder);
    add(folder.parent_path() / "bin");
    add(folder.parent_path().parent_path() / "bin");  // lib/x86_64-linux-gnu
  }
  for (const std::string& folder : folders_of_path()) add(folder);
  return names;
}

bool can_be_run(const std::string& file) {
  std::error_code fault;
  return std::filesystem::is_regular_file(file, fault) && access(file.c_str(), X_OK) == 0;
}

}  // namespace

Outcome may_tune(const KernelRuntime& runtime) {
  if (tuning_is_forbidden(runtime.options())) {
    return Error{Status::not_prepared,
                 "SPLITKV_NO_TUNING is set: nothing is measured, and the user's records are not "
                 "read; a runtime without it would work, as would `splitkv tune`"};
  }
  if (jit_is_forbidden(runtime.options())) {
    return Error{Status::not_prepared,
                 "SPLITKV_NO_JIT is set: candidates cannot be compiled; a runtime without it would "
                 "work, as would `splitkv tune`"};
  }
  return Unit{};
}

Result<std::string> find_worker(const std::string& given) {
  const std::vector<std::string> names =
      given.empty() ? worker_names() : std::vector<std::string>{given};
  std::string tried;
  for (const std::string& name : names) {
    if (can_be_run(name)) return name;
    tried += (tried.empty() ? "" : ", ") + name;
  }
  return Error{Status::library_missing,
               fmt::format("the program `splitkv`, in which candidates are measured away from this "
                           "process, is not there: tried {}; worker=/path/to/splitkv would work",
                           tried)};
}

std::vector<TuningPoint> tuning_points(const Problem& problem,
                                       const std::vector<Workload>& workloads) {
  std::vector<TuningPoint> points;
  const auto add = [&](const TuningPoint& point) {
    if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  };
  for (const Workload& workload : workloads) {
    const RowLengths rows = bucket_of(problem, workload).rows;
    // What is cut on each row's own length is judged on equal ones.
    if (rows != RowLengths::ragged) add({workload.batch, workload.kv_len, RowLengths::equal});
    if (rows == RowLengths::ragged || (rows == RowLengths::any && !problem.deterministic)) {
      add({workload.batch, workload.kv_len, RowLengths::ragged});
    }
  }
  return points;
}

std::vector<TuningPoint> points_without_records(const std::vector<TuningPoint>& points,
                                                const Problem& problem, const Target& target,
                                                const std::vector<KeptRecord>& records) {
  const std::string text = tuned_problem(problem), machine = tuned_target(target);
  const auto is_known = [&](const TuningBucket& bucket) {
    return std::any_of(records.begin(), records.end(), [&](const KeptRecord& kept) {
      return kept.record.problem == text && kept.record.target == machine &&
             kept.record.bucket == bucket;
    });
  };
  std::vector<bool> is_missing(points.size());
  for (const PointBucket& bucket : buckets_of(problem, points)) {
    if (is_known(bucket.bucket)) continue;
    for (const size_t point : bucket.points) is_missing[point] = true;
  }
  std::vector<TuningPoint> missing;
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_missing[i]) missing.push_back(points[i]);
  }
  return missing;
}

std::vector<std::string> kept_lines(const TuningReport& report, const Problem& problem,
                                    const Target& target) {
  std::vector<std::string> lines;
  for (const TuningRecord& record : report.records) lines.push_back(print(record));
  for (const TuningFailure& failure : report.failures) {
    lines.push_back(fmt::format("# failed: {} | {} -> {} | {}: {}", tuned_problem(problem),
                                tuned_target(target), failure.schedule, failure.stage,
                                failure.why.substr(0, failure.why.find('\n'))));
  }
  return lines;
}

Result<Tuned> tune_problem(KernelRuntime& runtime, const TuneOrder& order,
                           const TuneProgress& progress) {
  Result<Plan> plan = plan_for(runtime, order);
  if (!plan) return plan.error();
  Tuned tuned;
  tuned.file = plan->file;
  tuned.known = plan->known;
  if (plan->request.points.empty()) return tuned;
  // What cannot be written is known before minutes of measuring.
  if (!plan->file.empty()) {
    if (const Outcome writable = append_lines(plan->file, {}); !writable) return writable.error();
  }
  const Result<std::string> worker = find_worker(order.worker);
  if (!worker) return worker.error();
  tuned.worker = *worker;
  const TuningVersions versions = tuning_versions(order.device);
  plan->request.compiler = versions.compiler;
  plan->request.driver = versions.driver;
  plan->request.date = tuning_date();

  Teller teller(progress);
  const auto is_cancelled = [&] { return teller.is_cancelled(); };
  auto bench = ProcessBench::start(
      {*worker, "tune", "--worker", "--target", order.device, print(plan->request.problem)},
      kReadyWithin_s, {variables_of(runtime.options()), true, order.memory_bytes, is_cancelled});
  if (!bench) return bench.error();
  TuningHooks hooks;
  hooks.progress = [&](const TuningProgress& step) { teller.tell(step); };
  hooks.is_cancelled = is_cancelled;
  tuned.report = autotune(plan->request, **bench, hooks);
  tuned.processes = (*bench)->starts();
  if (teller.is_cancelled()) {
    return Error{Status::not_prepared, "the tuning was cancelled; nothing of it is kept"};
  }
  if (const Outcome kept = keep(runtime, *plan, tuned.report); !kept) return kept.error();
  return tuned;
}

}  // namespace splitkv
