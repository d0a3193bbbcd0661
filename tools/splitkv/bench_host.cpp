#include "tools/splitkv/bench_host.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <tuple>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

struct BenchHostOptions {
  std::string problem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";
  std::string target, schedule = "reduce=kernel";
  int64_t batch = 8, kv_len = 4096;
  int samples = 20;
};

// A new folder under TMPDIR that goes with the object.
class OwnFolder {
 public:
  OwnFolder() {
    const char* place = getenv("TMPDIR");
    path_ = std::string(place != nullptr && *place != '\0' ? place : "/tmp") + "/splitkv-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<HostPlan> plan_of(const BenchHostOptions& options) {
  HostPlan plan;
  const Result<Problem> problem = parse_problem(options.problem);
  if (!problem) return problem.error();
  plan.problem = *problem;
  for (const auto& [name, value, most] :
       {std::tuple{"--batch", options.batch, int64_t(65536)},
        {"--kv-len", options.kv_len, int64_t(1) << 31},
        {"--samples", int64_t(options.samples), int64_t(100000)}}) {
    if (value >= 1 && value <= most) continue;
    return invalid_argument(fmt::format("{}={}: 1 to {} would work", name, value, most));
  }
  plan.target_words = options.target;
  if (plan.target_words.empty()) {
    const Result<std::string> device = chosen_device("");
    if (!device) return device.error();
    plan.target_words = *device;
  }
  const Result<Target> target = chosen_target(plan.target_words);
  if (!target) return target.error();
  plan.target = *target;
  // An architecture is no device: what needs none is measured.
  if (const auto device = chosen_device(plan.target_words)) plan.device = *device;
  if (const auto refusal = verify(*problem, *target)) return to_error(*refusal);
  plan.schedule = options.schedule;
  plan.batch = options.batch;
  plan.kv_len = options.kv_len;
  plan.samples = options.samples;
  return plan;
}

int bench_host(const BenchHostOptions& options) {
  Result<HostPlan> plan = plan_of(options);
  if (!plan) return report(plan.error());
  const OwnFolder folder;
  if (folder.path().empty()) {
    return report(invalid_argument("TMPDIR: no folder can be made there; another would work"));
  }
  plan->folder = folder.path();
  setenv("SPLITKV_NO_DISK", "0", 1);  // its own folder is what is measured
  fmt::print("problem   {}\nschedule  {}\ntarget    {}\n\n{:<14}{:>10} {:>10} {:>10}\n",
             print(plan->problem), plan->schedule, print(plan->target), "", "median", "least",
             "greatest");
  using Part = Result<std::vector<HostRow>> (*)(const HostPlan&);
  const bool is_here = !plan->device.empty();
  for (const auto& [part, needs_device] : {std::pair<Part, bool>{time_disk, false},
                                           {time_processes, false},
                                           {time_memory, true},
                                           {time_runs, true}}) {
    if (needs_device && !is_here) continue;
    const auto rows = part(*plan);
    if (!rows) return report(rows.error());
    for (const HostRow& row : *rows) fmt::print("{}\n", print(row));
    std::fflush(stdout);
  }
  if (!is_here) {
    fmt::print("\n{} is no device of this machine: no prepare and no run was measured\n",
               plan->target_words);
  }
  return kExitOk;
}

}  // namespace

std::string print(const HostRow& row) {
  const double middle = median(row.us);
  struct Unit {
    const char* name;
    double per_us;
  };
  const double size = std::abs(middle);
  const Unit unit = size < 1 ? Unit{"ns", 1e3} : size < 1000 ? Unit{"us", 1} : Unit{"ms", 1e-3};
  const auto [least, greatest] = std::minmax_element(row.us.begin(), row.us.end());
  return fmt::format("{:<14}{:>10.1f} {:>10.1f} {:>10.1f} {}  {}", row.name, middle * unit.per_us,
                     *least * unit.per_us, *greatest * unit.per_us, unit.name, row.what);
}

void add_bench_host(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "bench-host", "Times what the library costs the host: hits, prepares, processes, runs");
  const auto options = std::make_shared<BenchHostOptions>();
  verb->add_option("problem", options->problem, "the problem")->capture_default_str();
  verb->add_option("--target", options->target,
                   "cpu, cpu:NAME, cuda:N; without a device also an architecture: cuda:sm_90a");
  verb->add_option("--schedule", options->schedule, "words of a schedule")->capture_default_str();
  verb->add_option("--batch", options->batch, "batch rows")->capture_default_str();
  verb->add_option("--kv-len", options->kv_len, "tokens that the schedule is chosen for")
      ->capture_default_str();
  verb->add_option("--samples", options->samples, "of each number")->capture_default_str();
  verb->callback([options, &status] { status = bench_host(*options); });
}

}  // namespace splitkv::tool
