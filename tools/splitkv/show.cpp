// `splitkv show`: what a prepare would decide, without compiling.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "codegen/launch_shape.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/support_matrix.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

struct ShowOptions {
  ProblemWords problem;
  std::string target, schedule;
  bool list = false;
  Workload workload;
};

void print_choice(const Problem& problem, const Target& target, const ScheduleChoice& choice,
                  int64_t batch) {
  const Resources resources = resources_of(problem, choice.schedule, target);
  const LaunchShape shape = launch_shape(problem, choice.schedule, batch);
  const BufferSizes sizes = buffer_sizes(problem, choice.schedule, batch);
  fmt::print("schedule  {}\nwhy       {}\n", print(choice.schedule), choice.why);
  if (target.kind == TargetKind::cuda) {
    fmt::print(
        "resources {} threads a block, about {} registers a thread, {} bytes of shared "
        "memory, {} blocks a multiprocessor\n",
        resources.threads_per_block, resources.compiled_registers, resources.smem_bytes,
        resources.blocks_per_sm);
  }
  fmt::print("grid      {} sequences, {} split blocks, {} reduce blocks\n", shape.sequences,
             shape.split_blocks, shape.reduce_blocks);
  fmt::print("buffers   {} bytes of scratch, {} bytes of state, {} bytes a partial row\n",
             sizes.scratch_bytes, sizes.state_bytes, partial_row_bytes(problem, choice.schedule));
}

int show_one(const ModelProblem& part, const ShowOptions& options, const Result<Target>& target) {
  if (part.layers > 0) fmt::print("layers    {} ({})\n", part.layers, part.which);
  fmt::print("problem   {}\n", print(part.problem));
  if (!target) return report(target.error());
  fmt::print("target    {}\n", print(*target));
  if (const auto refusal = verify(part.problem, *target)) {
    fmt::print("refused   {}\n", to_string(*refusal));
    return kExitBadInput;
  }
  const auto choice = chosen_schedule(part.problem, options.workload, *target, options.schedule);
  if (!choice) {
    fmt::print("refused   {}\n", choice.error().message);
    return kExitBadInput;
  }
  print_choice(part.problem, *target, *choice, options.workload.batch);
  return kExitOk;
}

int run_show(const ShowOptions& options) {
  if (options.list) {
    fmt::print("{}", support_matrix());
    return kExitOk;
  }
  const Workload& workload = options.workload;
  if (workload.batch < 1 || workload.batch > std::numeric_limits<int32_t>::max()) {
    return bad_option("--batch", fmt::format("{}", workload.batch), "1 or more would work");
  }
  if (workload.kv_len < 1 || workload.kv_len > std::numeric_limits<int32_t>::max()) {
    return bad_option("--kv-len", fmt::format("{}", workload.kv_len), "1 or more would work");
  }
  if (workload.kv_len_mean < 0) {
    return bad_option("--kv-len-mean", fmt::format("{}", workload.kv_len_mean),
                      "0 or more would work");
  }
  const auto problems = chosen_problems(options.problem);
  if (!problems) return report(problems.error());
  const Result<Target> target = chosen_target(options.target);
  int status = kExitOk;
  for (const ModelProblem& part : *problems) {
    const int shown = show_one(part, options, target);
    if (shown != kExitOk) status = shown;
  }
  return status;
}

}  // namespace

void add_show(CLI::App& app, int& status) {
  CLI::App* verb =
      app.add_subcommand("show", "Prints canonical text, schedule and resources, or the refusal");
  const auto options = std::make_shared<ShowOptions>();
  verb->add_option("problem", options->problem.text,
                   "the problem; beside --model, words that override what it derives");
  verb->add_option("--model", options->problem.model, "a Hugging Face config.json, or its folder");
  verb->add_option("--target", options->target, "cuda:sm_90a, cuda:N, cpu, cpu:x86-64-v3, ...");
  verb->add_option("--schedule", options->schedule, "a schedule, or some of its words");
  verb->add_option("--batch", options->workload.batch, "batch rows expected");
  verb->add_option("--kv-len", options->workload.kv_len, "tokens of the longest row expected");
  verb->add_option("--kv-len-mean", options->workload.kv_len_mean,
                   "mean tokens of a row; 0: not known");
  verb->add_flag("--list", options->list,
                 "print the support matrix instead: every option on representative targets");
  verb->callback([options, &status] { status = run_show(*options); });
}

}  // namespace splitkv::tool
