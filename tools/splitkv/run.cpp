#include "tools/splitkv/run.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/npy.hpp"
#include "tools/splitkv/step_memory.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

Result<Inputs> make_inputs(const RunOptions& options, const Problem& problem) {
  if (options.from_files()) {
    Result<Inputs> inputs = load_inputs(
        problem, options.files, std::vector<int32_t>(options.kv_len.begin(), options.kv_len.end()),
        options.seed);
    if (inputs.ok() && options.batch != 0 && options.batch != inputs->batch) {
      return invalid_argument(
          fmt::format("--batch={}: the files hold {} batch rows", options.batch, inputs->batch));
    }
    return inputs;
  }
  const auto lengths = generated_lengths(options);
  if (!lengths) return lengths.error();
  const auto form = step_form(options, problem, lengths->size());
  if (!form) return form.error();
  return generate_inputs(problem, *lengths, options.seed, *form);
}

// The problem once a variant of --merge, or as it is.
std::vector<Problem> variants(const RunOptions& options, const Problem& problem) {
  if (options.merges.empty()) return {problem};
  std::vector<Problem> list;
  for (const std::string& merge : options.merges) {
    list.push_back(problem);
    list.back().merge = merge == "mlo"   ? Merge::mlo
                        : merge == "lse" ? Merge::lse
                                         : Merge::automatic;
  }
  return list;
}

Result<std::vector<Expected>> expectations(const RunOptions& options, const Problem& problem,
                                           const Inputs& inputs) {
  std::vector<Expected> list;
  if (options.check) list.push_back(expect_from_reference(problem, inputs));
  if (!options.expect_out.empty() || !options.expect_lse.empty()) {
    Result<Expected> expected =
        expect_from_files(problem, inputs.batch, options.expect_out, options.expect_lse);
    if (!expected) return expected.error();
    list.push_back(std::move(*expected));
  }
  return list;
}

// Ragged rows are written as they lie, token by token.
std::vector<int64_t> result_shape(const Problem& problem, const Inputs& inputs, int64_t row) {
  if (inputs.q_offset.empty()) return output_shape(problem, inputs.batch, row);
  std::vector<int64_t> shape = {inputs.query_rows, problem.q_heads};
  if (row > 0) shape.push_back(row);
  return shape;
}

Outcome write_results(const RunOptions& options, const Problem& problem, const Inputs& inputs,
                      const Execution& execution) {
  if (!options.out.empty()) {
    const Outcome written =
        write_npy(options.out, result_shape(problem, inputs, problem.dim_v), execution.out);
    if (!written) return written;
  }
  if (options.lse.empty()) return Unit{};
  return write_npy(options.lse, result_shape(problem, inputs, 0), execution.lse);
}

// Where runs happen: the runtime keeps what was compiled for a later variant.
struct Place {
  Runtime runtime;
  std::string device;
};

// One variant: runs, prints, judges. The value is the exit status.
Result<int> run_variant(const RunOptions& options, Place& place, const std::string& words,
                        const Problem& problem, const Inputs& inputs,
                        const std::vector<Expected>& expected) {
  const ExecutePlan plan{place.device, words, options.repeat, options.seed};
  const Result<Execution> execution = execute(place.runtime, plan, problem, inputs);
  if (!execution) return execution.error();
  const Result<Schedule> schedule = parse_schedule(execution->schedule);
  if (!schedule) return schedule.error();
  const PartialCount partials = count_partials(problem, *schedule, rows_of(problem, inputs));
  print_execution(problem, inputs, *execution, partials);

  int status = kExitOk;
  for (const Expected& wanted : expected) {
    const reference::Tolerance tolerance = tolerance_of(problem, *schedule, partials);
    const Judged judged{wanted, tolerance, judge(problem, *execution, wanted, tolerance)};
    print_judged(judged, *execution);
    if (!judged.accuracy.ok() || !execution->repeatable) status = kExitCheckFailed;
  }
  std::fflush(stdout);
  const Outcome written = write_results(options, problem, inputs, *execution);
  if (!written) return written.error();
  return status;
}

Outcome check_lse_wanted(const RunOptions& options, const Problem& problem) {
  if (written_lse(problem) != LseOutput::none) return Unit{};
  if (options.lse.empty() && options.expect_lse.empty()) return Unit{};
  return invalid_argument(
      fmt::format("{} is given, but the problem has lse=none; lse=natural or lse=base2 would work",
                  options.lse.empty() ? "--expect-lse" : "--lse"));
}

Result<int> run_problem(const RunOptions& options, Place& place, const Problem& problem) {
  if (const Outcome wanted = check_lse_wanted(options, problem); !wanted) return wanted.error();
  const Result<Target> target = chosen_target(place.device);
  if (!target) return target.error();
  if (const auto refusal = verify(problem, *target)) return to_error(*refusal);
  const Result<Inputs> inputs = make_inputs(options, problem);
  if (!inputs) return inputs.error();
  print_inputs(options, problem, *inputs);
  const auto expected = expectations(options, problem, *inputs);
  if (!expected) return expected.error();
  const std::vector<std::string> schedules =
      options.schedules.empty() ? std::vector<std::string>{""} : options.schedules;
  int status = kExitOk;
  for (const Problem& variant : variants(options, problem)) {
    for (const std::string& words : schedules) {
      const Result<int> ran = run_variant(options, place, words, variant, *inputs, *expected);
      if (!ran) return ran.error();
      if (*ran != kExitOk) status = *ran;
    }
  }
  return status;
}

Result<int> run(const RunOptions& options) {
  if (const Outcome fit = check_options(options); !fit) return fit.error();
  const auto problems = chosen_problems(options.problem);
  if (!problems) return problems.error();
  if (!options.from_files()) {
    if (const auto lengths = generated_lengths(options); !lengths) return lengths.error();
  }
  const Result<std::string> device = chosen_device(options.target);
  if (!device) return device.error();
  Result<Runtime> runtime = guarded([] { return Runtime(); });
  if (!runtime) return runtime.error();
  Place place{std::move(*runtime), *device};
  int status = kExitOk;
  for (const ModelProblem& part : *problems) {
    if (part.layers > 0) fmt::print("layers    {} ({})\n", part.layers, part.which);
    const Result<int> ran = run_problem(options, place, part.problem);
    if (!ran) return ran.error();
    if (*ran != kExitOk) status = *ran;
  }
  return status;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("run", "Runs a problem on generated inputs or on files");
  const auto options = std::make_shared<RunOptions>();
  verb->add_option("problem", options->problem.text,
                   "the problem; beside --model, words that override what it derives");
  verb->add_option("--model", options->problem.model, "a Hugging Face config.json, or its folder");
  verb->add_option("--batch", options->batch, "batch rows");
  verb->add_option("--kv-len", options->kv_len_text,
                   "tokens: one for all rows, or one a row (5,0,7)");
  verb->add_option("--queries", options->queries_text,
                   "query tokens of each row, at most query_len: rows become ragged");
  verb->add_option("--target", options->target,
                   "cpu, cpu:NAME, cuda, cuda:N; by default cuda where a device is, else cpu");
  verb->add_option("--schedule", options->schedules,
                   "a schedule, or some of its words; given again, each runs in turn")
      ->allow_extra_args(false);
  verb->add_option("--merge", options->merge_text, "mlo, lse, or mlo,lse to run each in turn");
  verb->add_option("--seed", options->seed_text, "of generated inputs and of the page shuffle");
  verb->add_option("--repeat", options->repeat, "timed runs");
  verb->add_flag("--check", options->check, "compare with an fp64 two-pass reference");
  verb->add_option("--q", options->files.q, ".npy [batch, q_heads, dim]");
  verb->add_option("--k", options->files.k, ".npy [batch, kv_heads, kv_len, dim]");
  verb->add_option("--v", options->files.v, ".npy [batch, kv_heads, kv_len, dim]");
  verb->add_option("--kv-lens", options->files.kv_lens, ".npy [batch] of int32 or int64");
  verb->add_option("--out", options->out, "writes out here, .npy [batch, q_heads, dim]");
  verb->add_option("--lse", options->lse, "writes lse here, .npy [batch, q_heads]");
  verb->add_option("--expect-out", options->expect_out, "compare out with this .npy");
  verb->add_option("--expect-lse", options->expect_lse, "compare lse with this .npy");
  verb->callback([options, verb, &status] {
    options->batch_given = verb->count("--batch") > 0;
    const Outcome read = read_lists(*options);
    const Result<int> ran = read.ok() ? run(*options) : read.error();
    status = ran.ok() ? *ran : report(ran.error());
  });
}

}  // namespace splitkv::tool
