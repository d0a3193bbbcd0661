// `splitkv compile`: source to machine code, without a device.
#include <fmt/format.h>

#include <memory>

#include "codegen/kernel_source.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/verb.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr const char* kAllKnown = "all-known";

struct CompileOptions {
  ProblemWords problem;
  std::string target, schedule;
};

Outcome compile_for_cuda([[maybe_unused]] const Problem& problem,
                         [[maybe_unused]] const Schedule& schedule,
                         [[maybe_unused]] const Target& target) {
#ifdef SPLITKV_HAS_CUDA
  const Result<Cubin> cubin = compile_cuda(emit(problem, schedule, target), target.arch);
  if (!cubin) return cubin.error();
  fmt::print("compile   {:.1f} ms by NVRTC {}, cubin of {} bytes\n", cubin->compile_ms,
             cubin->nvrtc_version, cubin->image_bytes());
  const int64_t dynamic_bytes = resources_of(problem, schedule, target).smem_bytes;
  for (const PtxasEntry& entry : parse_ptxas_log(cubin->log)) {
    const bool is_split = entry.name.find("split") != std::string::npos;
    fmt::print(
        "kernel    {}: {} registers, {} bytes spilled, {} bytes of stack, {} bytes of shared "
        "memory\n",
        entry.name, entry.registers, entry.spill_store_bytes + entry.spill_load_bytes,
        entry.stack_bytes, entry.smem_bytes + (is_split ? dynamic_bytes : 0));
  }
  return Unit{};
#else
  return Error{Status::unsupported,
               "this build has SPLITKV_CUDA=OFF; a build with SPLITKV_CUDA=ON would work"};
#endif
}

// The CPU's compiler sits behind the C API alone.
Outcome compile_for_cpu(const Problem& problem, const Schedule& schedule,
                        const std::string& words) {
  const Result<std::string> device = chosen_device(words.empty() ? "cpu" : words);
  if (!device) return device.error();
  const Result<Kernel> kernel =
      guarded([&] { return Runtime().prepare(*device, print(problem), Hints(), print(schedule)); });
  if (!kernel) return kernel.error();
  const splitkv_kernel_info info = kernel->info();
  fmt::print("compile   {:.1f} ms by LLVM, {} bytes of code\n", info.compile_ms, info.module_bytes);
  return Unit{};
}

Outcome compile_one(const Problem& problem, const CompileOptions& options, const Target& target) {
  const auto choice = chosen_schedule(problem, Workload{}, target, options.schedule);
  if (!choice) return choice.error();
  fmt::print("target    {}\nproblem   {}\nschedule  {}\nwhy       {}\n", print(target),
             print(problem), print(choice->schedule), choice->why);
  if (target.kind == TargetKind::cuda) return compile_for_cuda(problem, choice->schedule, target);
  return compile_for_cpu(problem, choice->schedule, options.target);
}

int run_compile(const CompileOptions& options) {
  const auto problems = chosen_problems(options.problem);
  if (!problems) return report(problems.error());
  std::vector<Target> targets;
  if (options.target == kAllKnown) {
    targets = known_cuda_targets();
  } else {
    const Result<Target> target = chosen_target(options.target);
    if (!target) return report(target.error());
    targets.push_back(*target);
  }
  int status = kExitOk;
  for (const Target& target : targets) {
    std::fflush(stdout);
    const Outcome compiled = compile_one(problems->front().problem, options, target);
    if (!compiled) status = report(compiled.error());
  }
  return status;
}

}  // namespace

void add_compile(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("compile", "Compiles a problem; CUDA needs no GPU for it");
  const auto options = std::make_shared<CompileOptions>();
  verb->add_option("problem", options->problem.text, "the problem")->required();
  verb->add_option("--target", options->target,
                   "cuda:sm_90a, all-known (every CUDA architecture), cuda:N, cpu, cpu:NAME");
  verb->add_option("--schedule", options->schedule, "a schedule, or some of its words");
  verb->callback([options, &status] { status = run_compile(*options); });
}

}  // namespace splitkv::tool
