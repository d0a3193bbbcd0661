#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "codegen/kernel_source.hpp"
#include "compiler/text.hpp"
#include "runtime/cache_folder.hpp"
#include "runtime/child_process.hpp"
#include "runtime/kernel_key.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/bench_host.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/guarded.hpp"
#include "tools/splitkv/offline.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

RuntimeOptions with_folder(const HostPlan& plan) {
  RuntimeOptions options = warnings_to_stderr();
  options.cache_dir = plan.folder;
  return options;
}

Hints hints_of(const HostPlan& plan) { return {plan.batch, plan.kv_len, 0}; }

// What a process without a device looks for and, at first, compiles.
struct Wanted {
  KernelSource source;
  CompilerFacts facts;
  KernelKey key;
};

Result<Wanted> wanted_of(const HostPlan& plan, HostRow& opening) {
  const Workload workload{plan.batch, plan.kv_len, 0};
  const auto choice = chosen_schedule(plan.problem, workload, plan.target, plan.schedule);
  if (!choice) return choice.error();
  const auto begin = Clock::now();
  const Result<CompilerFacts> facts = compiler_facts(plan.target);
  if (!facts) return facts.error();
  opening.us = {us_since(begin)};
  KernelSource source = emit(resolved(plan.problem), choice->schedule, plan.target);
  KernelKey key = kernel_key(source, *facts);
  return Wanted{std::move(source), *facts, std::move(key)};
}

Result<double> process_us(const std::vector<std::string>& command,
                          const std::vector<std::string>& environment) {
  const FileHandle nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto begin = Clock::now();
  const Result<pid_t> process = start_process(command, nothing.get(), environment, false);
  if (!process) return process.error();
  int state = 0;
  while (waitpid(*process, &state, 0) < 0 && errno == EINTR) {
  }
  const double us = us_since(begin);
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return us;
  return Error{Status::internal, "splitkv compile failed in a process of its own"};
}

}  // namespace

Result<double> mean_us(int calls, const std::function<Outcome()>& call) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) {
    if (const Outcome called = call(); !called) return called.error();
  }
  return us_since(begin) / calls;
}

Result<std::vector<HostRow>> time_disk(const HostPlan& plan) {
  HostRow opening{"compiler", "finding out which compiler is here, for keys, once a process", {}};
  const Result<Wanted> wanted = wanted_of(plan, opening);
  if (!wanted) return wanted.error();
  {
    Services services{with_folder(plan)};
    const auto made = compile_offline(services, wanted->source, plan.target, wanted->facts);
    if (!made) return made.error();
  }
  HostRow entry{"disk", "opening the folder, and finding, reading and verifying an entry", {}};
  for (int i = 0; i < plan.samples; ++i) {
    const auto begin = Clock::now();
    Services services{with_folder(plan)};
    const bool is_hit = services.disk.find(wanted->key).has_value();
    entry.us.push_back(us_since(begin));
    if (!is_hit) return Error{Status::internal, "the kernel was not found on disk"};
  }
  std::vector<HostRow> rows = {opening, entry};
  if (plan.device.empty()) return rows;
  HostRow loaded{"disk, loaded", "splitkv_prepare in a new runtime, from disk, with loading", {}};
  Options options;
  options.cache_dir = plan.folder;
  for (int i = -1; i < plan.samples; ++i) {  // the first may compile: a device has its own facts
    const auto ran = guarded([&] {
      Runtime runtime(options);
      const auto begin = Clock::now();
      const Kernel kernel =
          runtime.prepare(plan.device, print(plan.problem), hints_of(plan), plan.schedule);
      const double us = us_since(begin);
      return std::pair(us, std::string(kernel.info().origin));
    });
    if (!ran) return ran.error();
    if (i < 0) continue;
    if (ran->second != "disk") {
      return Error{Status::internal, "prepare had its kernel from " + ran->second + ", not disk"};
    }
    loaded.us.push_back(ran->first);
  }
  rows.push_back(std::move(loaded));
  return rows;
}

Result<std::vector<HostRow>> time_processes(const HostPlan& plan) {
  const std::vector<std::string> command = {own_program(), "compile",         print(plan.problem),
                                            "--target",    plan.target_words, "--schedule",
                                            plan.schedule};
  HostRow cold{"process, cold", "splitkv compile from nothing, start and libraries included", {}};
  HostRow warm{"process, disk", "splitkv compile from disk, likewise", {}};
  for (int i = -1; i < plan.samples; ++i) {  // the first fills the cache and the page cache
    const Result<double> warmed =
        process_us(command, {"SPLITKV_NO_DISK=0", "SPLITKV_CACHE_DIR=" + plan.folder});
    if (!warmed) return warmed.error();
    if (i < 0) continue;
    const Result<double> cooled = process_us(command, {"SPLITKV_NO_DISK=1"});
    if (!cooled) return cooled.error();
    warm.us.push_back(*warmed);
    cold.us.push_back(*cooled);
  }
  return std::vector<HostRow>{cold, warm};
}

Result<std::vector<HostRow>> time_memory(const HostPlan& plan) {
  constexpr int calls = 1000;
  Options options;
  options.cache_dir = plan.folder;
  return guarded([&] {
    Runtime runtime(options);
    const std::string problem = print(plan.problem);
    const auto prepare = [&] {
      return runtime.prepare(plan.device, problem, hints_of(plan), plan.schedule);
    };
    const Kernel kernel = prepare();
    HostRow handle{"handle", "splitkv_get_kernel_info of a kernel at hand", {}};
    HostRow again{"memory", "splitkv_prepare of what is in memory", {}};
    for (int i = 0; i < plan.samples; ++i) {
      auto info = sized<splitkv_kernel_info>();
      auto begin = Clock::now();
      for (int call = 0; call < calls; ++call) {
        splitkv_get_kernel_info(kernel.get(), &info, nullptr);
      }
      handle.us.push_back(us_since(begin) / calls);
      begin = Clock::now();
      const Kernel same = prepare();
      again.us.push_back(us_since(begin));
    }
    return std::vector<HostRow>{handle, again};
  });
}

}  // namespace splitkv::tool
