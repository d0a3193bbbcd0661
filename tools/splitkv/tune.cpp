#include "tools/splitkv/tune.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <fstream>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/splitkv.h"
#include "runtime/tune_problem.hpp"
#include "runtime/tuning_process.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/tune_deal.hpp"
#include "tools/splitkv/tune_devices.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

// A bench in a process of its own; where none can be started, in this one, which is said. Devices
// that are measured at the same time are never measured in this one.
Result<std::unique_ptr<TuningBench>> bench_for(const std::string& device, const Problem& problem,
                                               bool in_process, bool is_alone) {
  const std::string program = own_program();
  if (in_process || (program.empty() && is_alone)) return open_tuning_bench(device, problem);
  auto isolated =
      ProcessBench::start({program, "tune", "--worker", "--target", device, print(problem)});
  if (isolated) return std::unique_ptr<TuningBench>(std::move(*isolated));
  if (isolated.error().status != Status::internal || !is_alone) return isolated.error();
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
  Outcome open_devices();
  Outcome plan(const std::vector<Problem>& problems);
  Outcome plan(const Problem& problem, size_t machine, const std::vector<KeptRecord>& records);
  void divide();
  double budget() const;
  void print_plan() const;
  Result<std::vector<TuningReport>> tune();
  Outcome done(size_t job, size_t device, const TuningReport& report) const;
  Outcome write_page(const std::vector<TuningReport>& reports);

  const TuneOptions& options_;
  const double begin_ = now_s();
  std::string out_;
  std::vector<TuneDevice> devices_;
  std::vector<std::vector<size_t>> machines_;
  std::vector<TuneJob> jobs_;
  std::vector<size_t> reported_of_;        // of each job, in reported_
  std::vector<ReportedProblem> reported_;  // of each problem on each machine
};

Outcome TuneRun::open_devices() {
  if (!options_.devices.empty()) {
    auto devices = chosen_devices(options_.devices);
    if (!devices) return devices.error();
    devices_ = std::move(*devices);
  } else if (options_.dry_run) {  // a plan is made for any architecture, without a device
    const Result<Target> target = chosen_target(options_.target);
    if (!target) return target.error();
    devices_ = {{"", *target, {}}};
  } else {
    const Result<TuneDevice> device = chosen_tune_device(options_.target);
    if (!device) return device.error();
    devices_ = {*device};
  }
  if (options_.in_process && devices_.size() > 1) {
    return invalid_argument(
        "--in-process: several devices are measured by processes of their own; --target with one "
        "of them would work");
  }
  machines_ = machines_of(devices_);
  return Unit{};
}

Outcome TuneRun::open() {
  if (const Outcome opened = open_devices(); !opened) return opened;
  out_ = !options_.out.empty() ? options_.out : user_tuning_file(read_environment());
  if (options_.dry_run) return Unit{};
  if (out_.empty()) {
    return invalid_argument(
        "--out is missing: SPLITKV_TUNING_FILE (which may be off), XDG_CONFIG_HOME and HOME name "
        "no file either; --out=FILE would work");
  }
  // What cannot be written is known before hours of measuring.
  if (!options_.report.empty() && !std::ofstream(options_.report, std::ios::app)) {
    return invalid_argument(
        fmt::format("--report={}: cannot be written; a file in a folder that exists would work",
                    options_.report));
  }
  return append_lines(out_, {});
}

// What one machine has to measure of a problem; nothing where all its buckets have records.
Outcome TuneRun::plan(const Problem& problem, size_t machine,
                      const std::vector<KeptRecord>& records) {
  const TuneDevice& device = devices_[machines_[machine].front()];
  if (const auto refusal = verify(problem, device.target)) return to_error(*refusal);
  if (const Outcome tunable = check_tunable(device.name, problem); !tunable) return tunable;
  TuningRequest request;
  request.problem = problem;
  request.target = device.target;
  const std::vector<TuningPoint> points = tuned_points(options_, problem);
  request.points = points_without_records(points, problem, device.target, records);
  request.candidates = options_.candidates;
  request.compiler = device.versions.compiler;
  request.driver = device.versions.driver;
  request.date = tuning_date();
  if (devices_.size() > 1) {
    request.compiles = std::max(1, compile_workers() / int(devices_.size()));
  }
  ReportedProblem reported;
  reported.problem = tuned_problem(problem);
  for (const size_t i : machines_[machine]) {
    reported.devices += (reported.devices.empty() ? "" : ", ") + devices_[i].name;
  }
  reported.records = known_records(points, request.points, problem, device.target, records);
  reported_.push_back(std::move(reported));
  if (request.points.empty()) {
    fmt::print("known     {}: {} has records of all its buckets; --retune would measure again\n",
               tuned_problem(problem), out_);
    return Unit{};
  }
  jobs_.push_back({std::move(request), machine});
  reported_of_.push_back(reported_.size() - 1);
  return Unit{};
}

Outcome TuneRun::plan(const std::vector<Problem>& problems) {
  std::vector<KeptRecord> records;
  if (!options_.retune && !out_.empty()) {
    const Result<std::string> text = read_tuning_file(out_);
    if (!text) return text.error();
    records = read_records(*text, out_, [](const std::string&) {});
  }
  for (size_t machine = 0; machine < machines_.size(); ++machine) {
    for (const Problem& problem : problems) {
      if (const Outcome planned = plan(problem, machine, records); !planned) return planned;
    }
  }
  divide();
  return Unit{};
}

// Where a machine has more devices than problems, parts of them.
void TuneRun::divide() {
  std::vector<TuneJob> parts;
  std::vector<size_t> reported_of;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const size_t machine = jobs_[i].machine, devices = machines_[machine].size();
    const size_t problems = size_t(std::count_if(
        jobs_.begin(), jobs_.end(), [&](const TuneJob& job) { return job.machine == machine; }));
    for (TuningRequest& part : divided(jobs_[i].request, (devices + problems - 1) / problems)) {
      parts.push_back({std::move(part), machine});
      reported_of.push_back(reported_of_[i]);
    }
  }
  jobs_ = std::move(parts);
  reported_of_ = std::move(reported_of);
}

double TuneRun::budget() const {
  if (options_.budget_s > 0) return options_.budget_s;
  size_t rounds = 0;  // of the machine with most to do
  for (size_t machine = 0; machine < machines_.size(); ++machine) {
    const size_t devices = machines_[machine].size();
    const auto jobs = std::count_if(jobs_.begin(), jobs_.end(),
                                    [&](const TuneJob& job) { return job.machine == machine; });
    rounds = std::max(rounds, (size_t(jobs) + devices - 1) / devices);
  }
  return kSecondsAProblem * double(rounds);
}

void TuneRun::print_plan() const {
  for (const TuneJob& job : jobs_) {
    const auto jobs = std::count_if(jobs_.begin(), jobs_.end(), [&](const TuneJob& other) {
      return other.machine == job.machine;
    });
    const size_t devices = machines_[job.machine].size();
    TuningRequest request = job.request;
    request.budget_s = budget() / double((size_t(jobs) + devices - 1) / devices);
    if (devices_.size() > 1) {
      fmt::print("devices   {}\n", reported_[reported_of_[size_t(&job - &jobs_[0])]].devices);
    }
    fmt::print("{}", plan_text(request));
  }
}

// Prints what came of a job, and keeps it. What failed stands in the file as a remark.
Outcome TuneRun::done(size_t job, size_t device, const TuningReport& report) const {
  const std::string problem = tuned_problem(jobs_[job].request.problem);
  fmt::print(
      "tuned     {}{}: {} of {} candidates compiled, {} measurements, {} kernels for {} "
      "buckets, {:.1f} s{}\n{}",
      devices_.size() > 1 ? devices_[device].name + ": " : "", problem, report.compiled,
      report.candidates, report.measured, report.kernels, report.records.size(), report.seconds,
      report.out_of_time ? ", the budget ended before all were measured" : "",
      failures_text(report));
  std::fflush(stdout);
  const std::vector<std::string> lines =
      kept_lines(report, jobs_[job].request.problem, devices_[device].target);
  return lines.empty() ? Outcome(Unit{}) : append_lines(out_, lines);
}

Result<std::vector<TuningReport>> TuneRun::tune() {
  const bool has_bar = isatty(STDERR_FILENO) == 1 && devices_.size() == 1;
  std::deque<ProgressLine> lines;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const std::string number = fmt::format("{}/{}", i + 1, jobs_.size());
    lines.emplace_back(number, has_bar);
  }
  DealHooks hooks;
  hooks.open = [&](size_t device, const Problem& problem) {
    return bench_for(devices_[device].name, problem, options_.in_process, devices_.size() == 1);
  };
  hooks.progress = [&](size_t job, size_t, const TuningProgress& progress) {
    lines[job].show(progress);
  };
  hooks.done = [&](size_t job, size_t device, const TuningReport& report) {
    lines[job].finish();
    return done(job, device, report);
  };
  hooks.lost = [&](size_t device, const Error& error) {
    fmt::print(stderr, "splitkv: {} takes no more part: {}\n", devices_[device].name,
               error.message);
  };
  return deal(jobs_, machines_, budget(), hooks);
}

Outcome TuneRun::write_page(const std::vector<TuningReport>& reports) {
  TuneReportData data;
  data.version = splitkv_version();
  data.date = tuning_date();
  data.seconds = now_s() - begin_;
  for (const TuneDevice& device : devices_) data.devices.push_back(reported_device(device));
  for (size_t i = 0; i < reports.size(); ++i) add_report(reported_[reported_of_[i]], reports[i]);
  data.problems = reported_;
  std::ofstream file(options_.report, std::ios::trunc);
  file << tune_report(data);
  file.close();
  if (!file) {
    return Error{Status::internal,
                 fmt::format("--report={}: cannot be written whole", options_.report)};
  }
  fmt::print("report in {}\n", options_.report);
  return Unit{};
}

Result<int> TuneRun::run() {
  if (const Outcome fit = check_options(options_); !fit) return fit.error();
  const auto problems = tuned_problems(options_);
  if (!problems) return problems.error();
  if (const Outcome opened = open(); !opened) return opened.error();
  if (const Outcome planned = plan(*problems); !planned) return planned.error();
  if (options_.dry_run) {
    print_plan();
    return kExitOk;
  }
  const auto reports = tune();
  if (!reports) return reports.error();
  fmt::print("{}", summary_text(*reports));
  size_t records = 0, untuned = 0;
  for (const TuningReport& report : *reports) {
    records += report.records.size(), untuned += report.untuned.size();
  }
  if (!jobs_.empty()) fmt::print("\n{} records added to {}\n", records, out_);
  if (!options_.report.empty()) {
    if (const Outcome written = write_page(*reports); !written) return written.error();
  }
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
  verb->add_option("--devices", options->devices,
                   "several at once: cuda:0,cuda:1, or all; those of one model share the work")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--budget", options->budget_s,
                   "seconds for everything; 20 for each problem where none is given");
  verb->add_option("--candidates", options->candidates, "schedules a workload, at most");
  verb->add_option("--out", options->out,
                   "the file that records are added to; else SPLITKV_TUNING_FILE, else the user's");
  verb->add_option("--report", options->report,
                   "an HTML file: winners, times against the floor, what each choice is worth");
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
