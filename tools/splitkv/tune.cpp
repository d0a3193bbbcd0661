#include "tools/splitkv/tune.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <optional>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/tuning_process.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32] = "";
  std::tm parts{};
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

std::string own_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, size_t(size)) : "";
}

// A bench in a process of its own; where none can be started, in this one, which is said.
Result<std::unique_ptr<TuningBench>> bench_for(const TuneOptions& options,
                                               const std::string& device, const Problem& problem) {
  if (const Outcome tunable = check_tunable(device, problem); !tunable) return tunable.error();
  const std::string program = own_program();
  if (options.in_process || program.empty()) return open_tuning_bench(device, problem);
  auto isolated =
      ProcessBench::start({program, "tune", "--worker", "--target", device, print(problem)});
  if (isolated) return std::unique_ptr<TuningBench>(std::move(*isolated));
  if (isolated.error().status != Status::internal) return isolated.error();
  fmt::print(stderr, "splitkv: faults of candidates are not kept away from this process: {}\n",
             isolated.error().message);
  return open_tuning_bench(device, problem);
}

class TuneRun {
 public:
  explicit TuneRun(const TuneOptions& options) : options_(options) {}
  Result<int> run();

 private:
  Outcome open();
  Result<std::optional<TuningRequest>> request_for(const Problem& problem) const;
  Outcome tune(const TuningRequest& request, size_t number, size_t count);
  Outcome keep(const TuningReport& report, const Problem& problem) const;

  const TuneOptions& options_;
  std::string device_, out_;
  Target target_;
  TuningVersions versions_;
  std::vector<TuningReport> reports_;
  int skipped_ = 0;
};

Outcome TuneRun::open() {
  // A plan is made for any architecture, without a device.
  const Result<Target> target = chosen_target(options_.target);
  if (!target) return target.error();
  target_ = *target;
  const Environment environment = read_environment();
  out_ = !options_.out.empty() ? options_.out : user_tuning_file(environment);
  if (out_.empty() && !options_.dry_run) {
    return invalid_argument(
        "--out is missing: SPLITKV_TUNING_FILE (which may be off), XDG_CONFIG_HOME and HOME name "
        "no file either; --out=FILE would work");
  }
  if (options_.dry_run) return Unit{};
  const Result<std::string> device = chosen_device(options_.target);
  if (!device) return device.error();
  device_ = *device;
  versions_ = tuning_versions(device_);
  return append_lines(out_, {});  // what cannot be written is known before hours of measuring
}

// Nothing where all its buckets have records.
Result<std::optional<TuningRequest>> TuneRun::request_for(const Problem& problem) const {
  if (const auto refusal = verify(problem, target_)) return to_error(*refusal);
  TuningRequest request;
  request.problem = problem;
  request.target = target_;
  request.points = tuned_points(options_, problem);
  request.candidates = options_.candidates;
  request.compiler = versions_.compiler;
  request.driver = versions_.driver;
  request.date = today();
  if (options_.retune || out_.empty()) return std::optional(request);
  const Result<std::string> text = read_tuning_file(out_);
  if (!text) return text.error();
  const auto records = read_records(*text, out_, [](const std::string&) {});
  request.points = missing_points(request.points, problem, target_, records);
  if (request.points.empty()) return std::optional<TuningRequest>();
  return std::optional(request);
}

// What failed stands in the file as a remark.
Outcome TuneRun::keep(const TuningReport& report, const Problem& problem) const {
  std::vector<std::string> lines;
  for (const TuningRecord& record : report.records) lines.push_back(print(record));
  for (const TuningFailure& failure : report.failures) {
    lines.push_back(fmt::format("# failed: {} | {} -> {} | {}: {}", tuned_problem(problem),
                                tuned_target(target_), failure.schedule, failure.stage,
                                failure.why.substr(0, failure.why.find('\n'))));
  }
  return lines.empty() ? Outcome(Unit{}) : append_lines(out_, lines);
}

Outcome TuneRun::tune(const TuningRequest& request, size_t number, size_t count) {
  Result<std::unique_ptr<TuningBench>> bench = bench_for(options_, device_, request.problem);
  if (!bench) return bench.error();
  ProgressLine line(fmt::format("{}/{}", number, count), isatty(STDERR_FILENO) == 1);
  TuningHooks hooks;
  hooks.progress = [&](const TuningProgress& progress) { line.show(progress); };
  TuningReport report = autotune(request, **bench, hooks);
  line.finish();
  fmt::print(
      "tuned     {}: {} of {} candidates compiled, {} measurements, {} kernels for {} "
      "buckets, {:.1f} s{}\n{}",
      tuned_problem(request.problem), report.compiled, report.candidates, report.measured,
      report.kernels, report.records.size(), report.seconds,
      report.out_of_time ? ", the budget ended before all were measured" : "",
      failures_text(report));
  std::fflush(stdout);
  const Outcome kept = keep(report, request.problem);
  reports_.push_back(std::move(report));
  return kept;
}

Result<int> TuneRun::run() {
  if (const Outcome fit = check_options(options_); !fit) return fit.error();
  const auto problems = tuned_problems(options_);
  if (!problems) return problems.error();
  if (const Outcome opened = open(); !opened) return opened.error();
  std::vector<TuningRequest> requests;
  for (const Problem& problem : *problems) {
    const auto request = request_for(problem);
    if (!request) return request.error();
    if (!*request) {
      fmt::print("known     {}: {} has records of all its buckets; --retune would measure again\n",
                 tuned_problem(problem), out_);
    } else {
      requests.push_back(**request);
    }
  }
  const double budget =
      options_.budget_s > 0 ? options_.budget_s : kSecondsAProblem * double(requests.size());
  const double begin = now_s();
  for (size_t i = 0; i < requests.size(); ++i) {
    // What earlier problems left over is shared by the later ones.
    const double left = std::max(0.0, budget - (now_s() - begin));
    requests[i].budget_s = (options_.dry_run ? budget : left) / double(requests.size() - i);
    if (options_.dry_run) {
      requests[i].budget_s = budget / double(requests.size());
      fmt::print("{}", plan_text(requests[i]));
      continue;
    }
    if (const Outcome tuned = tune(requests[i], i + 1, requests.size()); !tuned) {
      return tuned.error();
    }
  }
  if (options_.dry_run) return kExitOk;
  fmt::print("{}", summary_text(reports_));
  size_t records = 0, untuned = 0;
  for (const TuningReport& report : reports_) {
    records += report.records.size(), untuned += report.untuned.size();
  }
  if (!requests.empty()) fmt::print("\n{} records added to {}\n", records, out_);
  return untuned > 0 ? kExitCheckFailed : kExitOk;
}

// The other end of a ProcessBench.
int serve(const TuneOptions& options) {
  const Result<Problem> problem =
      parse_problem(options.problems.empty() ? "" : options.problems.front());
  Result<std::unique_ptr<TuningBench>> bench =
      problem.ok() ? open_tuning_bench(options.target, *problem)
                   : Result<std::unique_ptr<TuningBench>>(problem.error());
  serve_bench(bench, STDIN_FILENO, STDOUT_FILENO);
  return kExitOk;
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "tune", "Measures which schedules are fastest, and keeps that for later prepares");
  const auto options = std::make_shared<TuneOptions>();
  verb->add_option("problem", options->problems, "problems");
  verb->add_option("--file", options->file, "a file of problems, a line each");
  verb->add_option("--model", options->model, "a Hugging Face config.json, or its folder");
  verb->add_option("--batch", options->batch, "batch rows: 1,8")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--kv-len", options->kv_len, "tokens of the longest row: 1024,8192")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--rows", options->rows,
                   "lengths of a batch: equal, ragged, or all: both, and what is good for both");
  verb->add_option("--target", options->target, "cpu, cpu:NAME, cuda, cuda:N");
  verb->add_option("--budget", options->budget_s,
                   "seconds for everything; 20 for each problem where none is given");
  verb->add_option("--candidates", options->candidates, "schedules a workload, at most");
  verb->add_option("--out", options->out,
                   "the file that records are added to; else SPLITKV_TUNING_FILE, else the user's");
  verb->add_flag("--retune", options->retune, "also what the file has records of");
  verb->add_flag("--dry-run", options->dry_run, "print the plan and measure nothing");
  verb->add_flag("--in-process", options->in_process,
                 "measure in this process: a candidate that crashes ends it");
  verb->add_flag("--worker", options->worker)->group("");
  verb->callback([options, &status] {
    if (options->worker) {
      status = serve(*options);
      return;
    }
    const Result<int> ran = TuneRun(*options).run();
    status = ran.ok() ? *ran : report(ran.error());
  });
}

}  // namespace splitkv::tool
