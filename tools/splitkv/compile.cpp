// `splitkv compile`: source to machine code, without a device.
#include <fmt/format.h>

#include <memory>

#include "codegen/entry_names.hpp"
#include "codegen/kernel_source.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "runtime/kernel.hpp"
#include "runtime/prepare_many.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/offline.hpp"
#include "tools/splitkv/tune.hpp"
#include "tools/splitkv/verb.hpp"
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr const char* kAllKnown = "all-known";

std::string from_disk(bool is, double disk_ms) {
  return is ? fmt::format(" (found on disk in {:.2f} ms)", disk_ms) : "";
}

struct CompileOptions {
  TuneOptions what;  // problems, file
  std::string target, schedule;
  bool plan = false;
};

Outcome compile_for_cuda([[maybe_unused]] const Problem& problem,
                         [[maybe_unused]] const Schedule& schedule,
                         [[maybe_unused]] const Target& target) {
#ifdef SPLITKV_HAS_CUDA
  const Result<CompilerFacts> facts = compiler_facts(target);
  if (!facts) return facts.error();
  Services services{warnings_to_stderr()};
  const auto found =
      compile_offline(services, emit(resolved(problem), schedule, target), target, *facts);
  if (!found) return found.error();
  fmt::print("compile   {:.1f} ms by {}{}, cubin of {} bytes\n", found->code.compile_ms,
             facts->compiler, from_disk(found->from_disk, found->disk_ms),
             image_bytes(found->code));
  const int64_t dynamic_bytes = split_smem_bytes(problem, schedule);
  for (const PtxasEntry& entry : parse_ptxas_log(found->code.log)) {
    const bool is_split = names_split(entry.name);
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
  fmt::print("compile   {:.1f} ms by LLVM{}, {} bytes of code\n", info.compile_ms,
             from_disk(std::string_view(info.origin) == "disk", info.disk_ms), info.module_bytes);
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

// Where the kernel that compile_one would make is now.
Result<Located> locate(const Problem& problem, const CompileOptions& options,
                       const Target& target) {
  const auto choice = chosen_schedule(problem, Workload{}, target, options.schedule);
  if (!choice) return choice.error();
  const Result<CompilerFacts> facts = compiler_facts(target);
  if (!facts) return facts.error();
  Services services{warnings_to_stderr()};
  KernelKey key = kernel_key(emit(resolved(problem), choice->schedule, target), *facts);
  const Origin origin = origin_of(services, key);
  return Located{std::move(key), origin};
}

int print_plan(const std::vector<Problem>& problems, const CompileOptions& options,
               const Target& target) {
  std::vector<Result<Located>> located;
  int status = kExitOk;
  for (const Problem& problem : problems) {
    located.push_back(locate(problem, options, target));
    if (!located.back()) status = report(located.back().error());
  }
  const PreparePlan plan = plan_of(located, target.kind, {});
  fmt::print(
      "target    {}\nplan      {} problems, {} refused: {} kernels, {} on disk, {} to "
      "compile\n",
      print(target), plan.items, plan.refused, plan.kernels, plan.on_disk, plan.to_compile);
  fmt::print("estimate  {:.1f} s by {} at once, {} MiB of memory, {} KiB more on disk\n",
             plan.seconds, plan.workers, plan.memory_bytes >> 20, plan.kept_bytes >> 10);
  return status;
}

int run_compile(const CompileOptions& options) {
  if (options.what.problems.empty() && options.what.file.empty()) {
    return report(invalid_argument(
        "problem is required: \"attention q=bf16 kv=bf16 heads=32/8 dim=128\" or --file=PROBLEMS "
        "would work"));
  }
  const auto problems = tuned_problems(options.what);
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
    if (options.plan) {
      if (const int planned = print_plan(*problems, options, target); planned != kExitOk) {
        status = planned;
      }
      continue;
    }
    for (const Problem& problem : *problems) {
      std::fflush(stdout);
      const Outcome compiled = compile_one(problem, options, target);
      if (!compiled) status = report(compiled.error());
    }
  }
  return status;
}

}  // namespace

void add_compile(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("compile", "Compiles a problem; CUDA needs no GPU for it");
  const auto options = std::make_shared<CompileOptions>();
  verb->add_option("problem", options->what.problems, "the problem, or several");
  verb->add_option("--file", options->what.file, "problems, one a line");
  verb->add_option("--target", options->target,
                   "cuda:sm_90a, all-known (every CUDA architecture), cuda:N, cpu, cpu:NAME");
  verb->add_option("--schedule", options->schedule, "a schedule, or some of its words");
  verb->add_flag("--plan", options->plan, "say what there is to compile, and compile nothing");
  verb->callback([options, &status] { status = run_compile(*options); });
}

}  // namespace splitkv::tool
