#include "tools/splitkv/explain.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "codegen/entry_names.hpp"
#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/run.hpp"
#include "tools/splitkv/verb.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv::tool {
namespace {

struct ExplainOptions {
  BenchOptions bench;  // problem, batch, lengths, target, repeat
  std::string schedule;
  std::string format = "text";
  bool measure = false;
};

Outcome check(const ExplainOptions& options) {
  if (options.format != "text" && options.format != "json") {
    return invalid_argument(fmt::format("--format={}: text or json would work", options.format));
  }
  return check_options(options.bench);
}

// The device whose facts the model takes, or an architecture.
Result<Target> explained_target(const ExplainOptions& options) {
  if (options.measure) {
    const Result<std::string> device = chosen_device(options.bench.target);
    if (!device) return device.error();
    if (!device->starts_with("cuda:")) {
      return invalid_argument(fmt::format(
          "--target={}: --measure runs on CUDA devices; --target=cuda:0 would work", *device));
    }
    return chosen_target(*device);
  }
  return chosen_target(options.bench.target);
}

void compile([[maybe_unused]] Explanation& explanation) {
#ifdef SPLITKV_HAS_CUDA
  const Schedule& schedule = explanation.chosen.schedule;
  const KernelSource source = emit(explanation.problem, schedule, explanation.target);
  const Result<Cubin> cubin = compile_cuda(source, explanation.target.arch);
  if (!cubin) {
    explanation.not_compiled = cubin.error().message;
    return;
  }
  for (const PtxasEntry& entry : parse_ptxas_log(cubin->log)) {
    const bool is_split = names_split(entry.name);
    explanation.kernels.push_back(
        {entry.name, entry.registers, entry.spill_store_bytes + entry.spill_load_bytes,
         entry.stack_bytes, entry.smem_bytes + (is_split ? explanation.resources.smem_bytes : 0)});
  }
#else
  explanation.not_compiled = "this build has SPLITKV_CUDA=OFF";
#endif
}

#ifdef SPLITKV_HAS_CUDA
void take(const OurTime& ours, Weighed& weighed) {
  weighed.measured_us = ours.us;
  weighed.failure = ours.failure;
  if (ours.failure.empty() && !(ours.error <= ours.error_limit))
    weighed.failure =
        fmt::format("its result is off by {:.2g}, above {:.2g}", ours.error, ours.error_limit);
}
#endif

// Times the chosen schedule and the others as `splitkv bench` does.
Outcome measure([[maybe_unused]] const ExplainOptions& options,
                [[maybe_unused]] Explanation& explanation) {
#ifdef SPLITKV_HAS_CUDA
  BenchOptions bench = options.bench;
  bench.schedules = {print(explanation.chosen.schedule)};
  for (const Weighed& other : explanation.others) bench.schedules.push_back(print(other.schedule));
  const Result<std::string> device = chosen_device(bench.target);
  if (!device) return device.error();
  BenchHeader header;
  const auto reports =
      measure_rows(bench, std::atoi(device->c_str() + 5), header, [](const RowReport&) {});
  if (!reports) return reports.error();
  const RowReport& report = reports->front();
  if (report.ours.size() != bench.schedules.size()) {
    return Error{Status::internal, fmt::format("{} of {} schedules were measured",
                                               report.ours.size(), bench.schedules.size())};
  }
  explanation.device = header.card;
  explanation.measured_floor_us = report.floor_us;
  explanation.floor_method = report.floor_method;
  explanation.cold = report.cold;
  take(report.ours[0], explanation.chosen);
  for (size_t i = 0; i < explanation.others.size(); ++i)
    take(report.ours[i + 1], explanation.others[i]);
#endif
  return Unit{};
}

Result<int> run_explain(const ExplainOptions& options) {
  if (const Outcome fit = check(options); !fit) return fit.error();
  const Result<std::vector<BenchRow>> rows = chosen_rows(options.bench);
  if (!rows) return rows.error();
  const Result<Problem> problem = parse_problem(rows->front().problem);
  if (!problem) return problem.error();
  const Result<Target> target = explained_target(options);
  if (!target) return target.error();
  Result<Explanation> explanation =
      explain(*problem, rows->front().kv_len, *target, options.schedule);
  if (!explanation) return explanation.error();
  compile(*explanation);
  if (options.measure) {
    if (const Outcome measured = measure(options, *explanation); !measured) return measured.error();
  }
  fmt::print("{}", options.format == "json" ? json_of(*explanation) : text_of(*explanation));
  return explanation->chosen.failure.empty() ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "explain", "Says where the time of a schedule goes, and what others would cost");
  const auto options = std::make_shared<ExplainOptions>();
  verb->add_option("problem", options->bench.problem, "the problem")->required();
  verb->add_option("--batch", options->bench.batch, "batch rows");
  verb->add_option("--kv-len", options->bench.kv_len, "tokens: one for all rows, or one a row")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--schedule", options->schedule, "a schedule, or some of its words");
  verb->add_option("--target", options->bench.target, "cuda:sm_90a and the like, or cuda:N");
  verb->add_flag("--measure", options->measure, "time it and the others too, on cuda:N");
  verb->add_option("--repeat", options->bench.repeat, "timed replays of each graph");
  verb->add_option("--format", options->format, "text or json");
  verb->callback([options, &status] {
    const Result<int> ran = run_explain(*options);
    status = ran.ok() ? *ran : report(ran.error());
  });
}

}  // namespace splitkv::tool
