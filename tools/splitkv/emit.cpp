// `splitkv emit`: the source that a prepare would compile.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "codegen/kernel_source.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

struct EmitOptions {
  ProblemWords problem;
  std::string target, schedule, output;
};

Result<KernelSource> emit_source(const EmitOptions& options) {
  const auto problems = chosen_problems(options.problem);
  if (!problems) return problems.error();
  const Problem& problem = problems->front().problem;
  const Result<Target> target = chosen_target(options.target);
  if (!target) return target.error();
  const auto choice = chosen_schedule(problem, Workload{}, *target, options.schedule);
  if (!choice) return choice.error();
  return emit(problem, choice->schedule, *target);
}

int run_emit(const EmitOptions& options) {
  const Result<KernelSource> source = emit_source(options);
  if (!source) return report(source.error());
  if (options.output.empty()) {
    std::fwrite(source->text.data(), 1, source->text.size(), stdout);
    return kExitOk;
  }
  std::ofstream stream(options.output, std::ios::binary);
  stream << source->text << std::flush;
  if (!stream) return bad_option("--output", options.output, "cannot be written");
  return kExitOk;
}

}  // namespace

void add_emit(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("emit", "Writes the CUDA C++ or LLVM IR of a problem");
  const auto options = std::make_shared<EmitOptions>();
  verb->add_option("problem", options->problem.text, "the problem")->required();
  verb->add_option("--target", options->target, "cuda:sm_90a, cuda:N, cpu, cpu:x86-64-v3, ...");
  verb->add_option("--schedule", options->schedule, "a schedule, or some of its words");
  verb->add_option("-o,--output", options->output, "a file instead of stdout");
  verb->callback([options, &status] { status = run_emit(*options); });
}

}  // namespace splitkv::tool
