// `splitkv pack`: kernels and tuning records of problems, in one file, without a GPU.
#include "runtime/pack.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>

#include "codegen/append_source.hpp"
#include "codegen/merge_source.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/kernel.hpp"
#include "runtime/prepare_many.hpp"
#include "runtime/tuning_pool.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/offline.hpp"
#include "tools/splitkv/tune.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

struct PackOptions {
  TuneOptions what;  // problems, file, model, batch, kv_len
  std::vector<std::string> archs, schedules;
  std::string records, out, list;
  bool merges = false, appenders = false;
};

// One kernel that is to be compiled, and what the pack tells of it.
struct Job {
  Target target;
  CompilerFacts facts;
  KernelSource source;
  PackedKernel kernel;
  int64_t dynamic_bytes = 0;
};

struct Jobs {
  std::vector<Job> list;
  std::set<std::string> known;  // digests

  void add(Job job) {
    job.kernel.key = pack_key(job.source, job.facts.arch);
    job.kernel.compiler = job.facts.compiler;
    if (known.insert(job.kernel.key.digest).second) list.push_back(std::move(job));
  }
};

Result<Target> target_of(const std::string& arch) {
  if (arch.starts_with("sm_")) return parse_target("cuda:" + arch);
  if (arch == "cpu" || arch.starts_with("cpu:") || arch.starts_with("cuda:")) {
    return chosen_target(arch);
  }
  return invalid_argument(fmt::format(
      "--arch={} is no architecture; sm_80, sm_90a, cpu or cpu:x86-64-v3 would work", arch));
}

// Records of the user's file, or of the one that is named, with a problem and an architecture of
// the pack.
Result<std::vector<TuningRecord>> chosen_records(const PackOptions& options,
                                                 const std::vector<Problem>& problems,
                                                 const std::vector<Target>& targets) {
  const Environment environment = read_environment();
  const std::string path =
      options.records.empty() ? user_tuning_file(environment) : options.records;
  std::vector<TuningRecord> chosen;
  if (path.empty()) return chosen;
  const Result<std::string> text = read_tuning_file(path);
  if (!text) return invalid_argument(text.error().message);
  if (text->empty() && !options.records.empty()) {
    return invalid_argument(fmt::format(
        "--records={} is not there or empty; a file that `splitkv tune` wrote would work", path));
  }
  std::set<std::string> texts, archs;
  for (const Problem& problem : problems) texts.insert(tuned_problem(problem));
  for (const Target& target : targets) {
    const std::string machine = tuned_target(target);
    archs.emplace(architecture_of(machine));
  }
  for (KeptRecord& kept : read_records(*text, path, [](const std::string& line) {
         fmt::print(stderr, "splitkv: {}\n", line);
       })) {
    if (texts.contains(kept.record.problem) &&
        archs.contains(std::string(architecture_of(kept.record.target)))) {
      chosen.push_back(std::move(kept.record));
    }
  }
  return chosen;
}

std::vector<Workload> workloads_of(const TuneOptions& what, const Problem& problem) {
  std::vector<Workload> workloads;
  for (const TuningPoint& point : tuned_points(what, problem)) {
    workloads.push_back(workload_of(point));
    workloads.push_back({point.batch, point.kv_len, 0});  // callers that do not tell the mean
  }
  return workloads;
}

// Every schedule that a prepare of those workloads may choose, and those of the records.
Result<std::vector<Schedule>> schedules_of(const PackOptions& options, const Problem& problem,
                                           const Target& target,
                                           const std::vector<TuningRecord>& records) {
  std::vector<Schedule> schedules;
  std::vector<std::string> words = options.schedules;
  if (words.empty()) words.push_back("");
  for (const Workload& workload : workloads_of(options.what, problem)) {
    for (const std::string& text : words) {
      const auto choice = chosen_schedule(problem, workload, target, text);
      if (!choice) return choice.error();
      schedules.push_back(choice->schedule);
    }
  }
  if (!options.schedules.empty()) return schedules;
  const std::string text = tuned_problem(problem), machine = tuned_target(target);
  for (const TuningRecord& record : records) {
    if (record.problem != text || architecture_of(record.target) != architecture_of(machine)) {
      continue;
    }
    if (!verify(problem, record.best.schedule, target)) schedules.push_back(record.best.schedule);
  }
  return schedules;
}

Outcome add_problem(Jobs& jobs, const PackOptions& options, const Problem& problem,
                    const Target& target, const CompilerFacts& facts,
                    const std::vector<TuningRecord>& records) {
  const auto schedules = schedules_of(options, problem, target, records);
  if (!schedules) {
    return Error{schedules.error().status, fmt::format("[{}] for {}: {}", print(problem),
                                                       print(target), schedules.error().message)};
  }
  const Problem compiled = resolved(problem);
  for (const Schedule& schedule : *schedules) {
    Job job{
        target, facts, emit(compiled, schedule, target), {}, split_smem_bytes(compiled, schedule)};
    job.kernel.problem = print(problem);
    job.kernel.schedule = print(schedule);
    jobs.add(std::move(job));
  }
  return Unit{};
}

// The writers of new elements of q's type, for either way to say where they go. A problem without
// one (places=rows of strided positions) is left without.
void add_appenders(Jobs& jobs, const Problem& problem, const Target& target,
                   const CompilerFacts& facts) {
  const Problem compiled = resolved(problem);
  for (AppendPlaces places : {AppendPlaces::slots, AppendPlaces::rows}) {
    if (verify_append(compiled, compiled.q_dtype, places)) continue;
    const Append append = append_of(compiled, compiled.q_dtype, places);
    Job job{target, facts, emit_append(append, target), {}, 0};
    job.kernel.problem = print(append);
    jobs.add(std::move(job));
  }
}

void add_merges(Jobs& jobs, const Target& target, const CompilerFacts& facts) {
  for (const auto& [form, form_name] : {std::pair{Merge::mlo, "mlo"}, {Merge::lse, "lse"}}) {
    for (const auto& [base, base_name] :
         {std::pair{LseOutput::natural, "natural"}, {LseOutput::base2, "base2"}}) {
      Job job{target, facts, emit_merge(form, base, target), {}, 0};
      job.kernel.problem = fmt::format("merge {} {}", form_name, base_name);
      jobs.add(std::move(job));
    }
  }
}

// The error of the first job that cannot be compiled.
Outcome compile_all(Jobs& jobs) {
  Services services{warnings_to_stderr()};
  const bool any_cuda = std::any_of(jobs.list.begin(), jobs.list.end(), [](const Job& job) {
    return job.target.kind == TargetKind::cuda;
  });
  const uint64_t memory =
      cost_of_compile(any_cuda ? TargetKind::cuda : TargetKind::cpu).memory_bytes;
  std::vector<Outcome> outcomes(jobs.list.size(), Unit{});
  std::mutex mutex;
  size_t done = 0;
  side_by_side(workers_for(int64_t(jobs.list.size()), memory, {}), jobs.list.size(), [&](size_t i) {
    Job& job = jobs.list[i];
    auto found = compile_offline(services, job.source, job.target, job.facts);
    const std::lock_guard lock(mutex);
    ++done;
    if (!found) {
      outcomes[i] = found.error();
      return;
    }
    job.kernel.resources = describe_resources(found->code, job.dynamic_bytes);
    job.kernel.code = std::move(found->code);
    job.kernel.code.log.clear();
    fmt::print(stderr, "{} of {}  {}  {}{}{}\n", done, jobs.list.size(), print(job.target),
               job.kernel.problem, job.kernel.schedule.empty() ? "" : "  ", job.kernel.schedule);
  });
  for (const Outcome& outcome : outcomes) {
    if (!outcome) return outcome;
  }
  return Unit{};
}

// Whole or not at all: a reader never sees half of one.
Outcome write_file(const std::string& path, const std::string& bytes) {
  const std::string aside = fmt::format("{}.{}.part", path, getpid());
  {
    std::ofstream stream(aside, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), std::streamsize(bytes.size()));
    stream.flush();
    if (!stream) {
      std::remove(aside.c_str());
      return invalid_argument(
          fmt::format("--out={} cannot be written; a file in a folder that is there, may be "
                      "written and has {} bytes of room would work",
                      path, bytes.size()));
    }
  }
  if (std::rename(aside.c_str(), path.c_str()) == 0) return Unit{};
  std::remove(aside.c_str());
  return invalid_argument(
      fmt::format("--out={} cannot be replaced; the name of a file would work", path));
}

Outcome check(const PackOptions& options) {
  if (options.out.empty()) {
    return invalid_argument("--out is missing; --out=FILE, where the pack goes, would work");
  }
  if (options.archs.empty()) {
    return invalid_argument("--arch is missing; --arch=sm_80,sm_90a or --arch=cpu would work");
  }
  const TuneOptions& what = options.what;
  if (options.merges && what.problems.empty() && what.file.empty() && what.model.empty()) {
    return Unit{};
  }
  return check_options(what);
}

Result<Pack> build(const PackOptions& options) {
  if (const Outcome fine = check(options); !fine) return fine.error();
  const auto problems = tuned_problems(options.what);
  if (!problems) return problems.error();
  std::vector<Target> targets;
  for (const std::string& arch : options.archs) {
    const Result<Target> target = target_of(arch);
    if (!target) return target.error();
    targets.push_back(*target);
  }
  const auto records = chosen_records(options, *problems, targets);
  if (!records) return records.error();
  Jobs jobs;
  for (const Target& target : targets) {
    const Result<CompilerFacts> facts = compiler_facts(target);
    if (!facts) return facts.error();
    for (const Problem& problem : *problems) {
      const Outcome added = add_problem(jobs, options, problem, target, *facts, *records);
      if (!added) return added.error();
      if (options.appenders) add_appenders(jobs, problem, target, *facts);
    }
    if (options.merges) add_merges(jobs, target, *facts);
  }
  if (const Outcome compiled = compile_all(jobs); !compiled) return compiled.error();
  Pack pack{splitkv_version(), "", {}};
  for (const TuningRecord& record : *records) pack.records += print(record) + '\n';
  for (Job& job : jobs.list) pack.kernels.push_back(std::move(job.kernel));
  return pack;
}

size_t lines_in(const std::string& text) {
  return size_t(std::count(text.begin(), text.end(), '\n'));
}

int list(const std::string& path) {
  const Result<std::string> bytes = read_pack_file(path);
  if (!bytes) return report(bytes.error());
  const Result<Pack> pack = decode_pack(*bytes);
  if (!pack) {
    return report(invalid_argument(fmt::format(
        "--list={} {}; a file that `splitkv pack` wrote would work", path, pack.error().message)));
  }
  fmt::print("pack      {} bytes, made by SplitKV {}: {} kernels, {} tuning records\n",
             bytes->size(), pack->version, pack->kernels.size(), lines_in(pack->records));
  for (const PackedKernel& kernel : pack->kernels) {
    fmt::print("kernel    {}  {:>7} bytes  {}  {}\n", kernel.key.digest, image_bytes(kernel.code),
               kernel.arch().substr(0, kernel.arch().find(' ')), kernel.problem);
    fmt::print("          {}\n          {}, {:.0f} ms{}{}\n", kernel.schedule, kernel.compiler,
               kernel.code.compile_ms, kernel.resources.empty() ? "" : "; ", kernel.resources);
  }
  fmt::print("{}", pack->records);
  return kExitOk;
}

int run_pack(const PackOptions& options) {
  if (!options.list.empty()) return list(options.list);
  const Result<Pack> pack = build(options);
  if (!pack) return report(pack.error());
  const std::string bytes = encode_pack(*pack);
  if (const Outcome written = write_file(options.out, bytes); !written) {
    return report(written.error());
  }
  fmt::print("pack      {}: {} kernels, {} tuning records, {} bytes\n", options.out,
             pack->kernels.size(), lines_in(pack->records), bytes.size());
  return kExitOk;
}

}  // namespace

void add_pack(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "pack", "Kernels and tuning records of problems in one file; needs no GPU");
  const auto options = std::make_shared<PackOptions>();
  options->what.batch = {1};
  options->what.kv_len = {4096};
  verb->add_option("problem", options->what.problems, "one problem or several");
  verb->add_option("--file", options->what.file, "problems, one a line");
  verb->add_option("--model", options->what.model, "a config.json, or its folder");
  verb->add_option("--arch", options->archs, "sm_80,sm_90a,cpu,cpu:x86-64-v3 ...")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--schedule", options->schedules,
                   "a schedule or some of its words, may be repeated; else all that the workloads "
                   "choose")
      ->allow_extra_args(false);
  verb->add_option("--batch", options->what.batch, "batches to choose schedules for, as 1,8,64")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--kv-len", options->what.kv_len, "lengths to choose schedules for")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--records", options->records,
                   "a file of tuning records; else that of the user");
  verb->add_flag("--merges", options->merges, "the merge kernels too, of all forms and bases");
  verb->add_flag("--appenders", options->appenders,
                 "the writers of new keys and values too, of q's type");
  verb->add_option("--out", options->out, "the file to write");
  verb->add_option("--list", options->list, "print what this pack holds, and build none");
  verb->callback([options, &status] { status = run_pack(*options); });
}

}  // namespace splitkv::tool
