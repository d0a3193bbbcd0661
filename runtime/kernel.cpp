#include "runtime/kernel.hpp"

#include <fmt/format.h>

#include <atomic>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/schedule_choice.hpp"
#ifdef SPLITKV_HAS_CPU
#include "runtime/cpu/host.hpp"
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

Error no_such_target(const char* device, const char* option) {
  return {Status::library_missing,
          fmt::format("device={}: this build has no such target; a build with {}=ON would have it",
                      device, option)};
}

bool is_cpu(const std::string& text) { return text == "cpu" || text.starts_with("cpu:"); }

// Refers to the kernel.
LoadRequest load_request(const PreparedKernel& kernel) {
  const LaunchShape shape = launch_shape(kernel.problem, kernel.schedule, 1);
  return {.device = kernel.device,
          .target = kernel.target,
          .source = kernel.source,
          .split_smem_bytes = shape.split_smem_bytes,
          .cluster = shape.cluster,
          .pdl = shape.pdl,
          .tensor_maps = shape.k_box.columns > 0,
          .problem = kernel.problem_text,
          .schedule = kernel.schedule_text};
}

}  // namespace

uint64_t binding_id_of(const std::string& device, const std::string& problem_text) {
  const std::string text = device + '\n' + problem_text;
  return XXH3_64bits(text.data(), text.size());
}

Checked resolved(Checked checked) {
  if (checked != Checked::automatic) return checked;
#ifdef NDEBUG
  return Checked::off;
#else
  return Checked::on;
#endif
}

Problem resolved(Problem problem) {
  problem.checked = resolved(problem.checked);
  return problem;
}

KernelRuntime::KernelRuntime(const RuntimeOptions& options)
    : services_(options), tuned_(services_.log) {
#ifdef SPLITKV_HAS_CUDA
  cuda_ = make_cuda_platform(services_);
#endif
#ifdef SPLITKV_HAS_CPU
  cpu_ = make_cpu_platform(services_);
#endif
}

Result<Platform*> KernelRuntime::platform_of(const std::string& device) const {
  if (device == "cuda" || device.starts_with("cuda:")) {
    if (cuda_ == nullptr) return no_such_target(device.c_str(), "SPLITKV_CUDA");
    return cuda_.get();
  }
  if (is_cpu(device)) {
    if (cpu_ == nullptr) return no_such_target(device.c_str(), "SPLITKV_CPU");
    return cpu_.get();
  }
  return invalid_argument(fmt::format(
      "device={} is unknown; cuda:0 (an ordinal), cpu or cpu:x86-64-v3 would fit", device));
}

Result<Target> KernelRuntime::target_of(const std::string& device) const {
  const Result<Platform*> platform = platform_of(device);
  if (!platform) return platform.error();
  return (*platform)->target_of(device);
}

Outcome KernelRuntime::add_pack(std::string_view bytes, const std::string& origin) {
  const Result<std::string> records = services_.packs.add(bytes, origin);
  if (!records) return records.error();
  tuned_.add(read_records(*records, origin,
                          [&](const std::string& line) { services_.log.warning(line); }));
  services_.log.debug(fmt::format("opened the pack {}", origin));
  return Unit{};
}

Outcome KernelRuntime::add_pack_file(const std::string& path) {
  const Result<std::string> bytes = read_pack_file(path);
  if (!bytes) return bytes.error();
  return add_pack(*bytes, path);
}

Outcome KernelRuntime::add_chosen_pack() {
  const std::string& named = services_.options.pack;
  const std::string path = named.empty() ? read_environment().pack : named;
  if (path.empty()) return Unit{};
  return add_pack_file(path);
}

Result<ScheduleChoice> KernelRuntime::schedule_for(const PrepareRequest& request,
                                                   const Problem& problem, const Target& target) {
  if (request.decision != nullptr) {
    const Result<Schedule> decided = decided_schedule(*request.decision, problem, target);
    if (!decided) return decided.error();
    return ScheduleChoice{*decided, "decided elsewhere: " + request.decision->why,
                          Decider::decision};
  }
  if (tuning_is_forbidden(services_.options)) tuned_.ignore_user_file();
  return choose_schedule(problem, request.workload, target, request.schedule,
                         read_environment().schedule, &tuned_);
}

Result<KernelRuntime::Chosen> KernelRuntime::choose(const PrepareRequest& request) {
  const Result<Platform*> platform = platform_of(request.device);
  if (!platform) return platform.error();
  const Result<Problem> problem = parse_problem(request.problem);
  if (!problem) return problem.error();
  const Result<Target> target = (*platform)->target_of(request.device);
  if (!target) return target.error();
  if (const auto refusal = verify(*problem, *target)) return to_error(*refusal);
  const Result<ScheduleChoice> choice = schedule_for(request, *problem, *target);
  if (!choice) return choice.error();

  Chosen chosen{*platform, std::make_unique<PreparedKernel>()};
  PreparedKernel* kernel = chosen.kernel.get();
  kernel->problem = resolved(*problem);
  kernel->schedule = choice->schedule;
  kernel->target = *target;
  kernel->device = request.device;
  kernel->problem_text = print(*problem);
  kernel->schedule_text = print(choice->schedule);
  kernel->target_text = print(*target);
  kernel->why = choice->why;
  kernel->decider = choice->decider;
  kernel->binding_id = binding_id_of(kernel->device, kernel->problem_text);
  kernel->source = emit(kernel->problem, choice->schedule, *target);
  return chosen;
}

Result<std::unique_ptr<PreparedKernel>> KernelRuntime::describe(const PrepareRequest& request) {
  Result<Chosen> chosen = choose(request);
  if (!chosen) return chosen.error();
  const Result<Located> located = chosen->platform->locate(load_request(*chosen->kernel));
  if (located) chosen->kernel->loaded.key = located->key;
  return std::move(chosen->kernel);
}

Result<Located> KernelRuntime::locate(const PrepareRequest& request) {
  const Result<Chosen> chosen = choose(request);
  if (!chosen) return chosen.error();
  return chosen->platform->locate(load_request(*chosen->kernel));
}

Result<std::unique_ptr<PreparedKernel>> KernelRuntime::prepare(const PrepareRequest& request) {
  Result<Chosen> chosen = choose(request);
  if (!chosen) return chosen.error();
  Platform* platform = chosen->platform;
  std::unique_ptr<PreparedKernel> kernel = std::move(chosen->kernel);
  Result<Loaded> loaded = platform->load(load_request(*kernel));
  if (!loaded) return loaded.error();
  kernel->loaded = *std::move(loaded);
  if (kernel->problem.checked == Checked::on) {
    auto errors = platform->make_error_memory(request.device);
    if (!errors) return errors.error();
    kernel->errors = *std::move(errors);
  }
  services_.log.debug(fmt::format("prepared [{}] [{}] on {} ({}), key {}, {}", kernel->problem_text,
                                  kernel->schedule_text, kernel->device, kernel->target_text,
                                  kernel->loaded.key.digest, name(kernel->loaded.origin)));
  return kernel;
}

Result<std::unique_ptr<PreparedMerge>> KernelRuntime::prepare_merge(const std::string& device,
                                                                    const std::string& form,
                                                                    const std::string& base) {
  const Result<Platform*> platform = platform_of(device);
  if (!platform) return platform.error();
  if (form != "mlo" && form != "lse") {
    return invalid_argument(fmt::format(
        "form={} is no form of partials; mlo, for (m, l, o), or lse, for (S, o), would fit", form));
  }
  if (base != "natural" && base != "base2") {
    return invalid_argument(
        fmt::format("base={} is no base of m and S; natural or base2 would fit", base));
  }
  const Result<Target> target = (*platform)->target_of(device);
  if (!target) return target.error();
  auto merge = std::make_unique<PreparedMerge>();
  merge->form = form == "mlo" ? Merge::mlo : Merge::lse;
  merge->target = *target;
  const KernelSource source =
      emit_merge(merge->form, base == "natural" ? LseOutput::natural : LseOutput::base2, *target);
  Result<Loaded> loaded = (*platform)->load(
      {.device = device, .target = *target, .source = source, .split_smem_bytes = 0});
  if (!loaded) return loaded.error();
  merge->loaded = *std::move(loaded);
  auto errors = (*platform)->make_error_memory(device);
  if (!errors) return errors.error();
  merge->errors = *std::move(errors);
  services_.log.debug(fmt::format("prepared the merge of {} ({}) on {}, key {}, {}", form, base,
                                  device, merge->loaded.key.digest, name(merge->loaded.origin)));
  return merge;
}

std::optional<ErrorRecord> take_fault(ErrorRecord& record) {
  const std::atomic_ref<int32_t> code(record.code);
  if (code.load(std::memory_order_acquire) == kNoFault) return std::nullopt;
  const ErrorRecord found = record;
  record.row = record.slot = 0;
  record.value = 0;
  code.store(kNoFault, std::memory_order_relaxed);
  // Whoever claims the record next finds it empty.
  std::atomic_ref<int32_t>(record.claimed).store(0, std::memory_order_release);
  return found;
}

void record_fault(ErrorRecord& record, const ErrorRecord& found) {
  int32_t nobody = 0;
  if (!std::atomic_ref<int32_t>(record.claimed).compare_exchange_strong(nobody, 1)) return;
  record.row = found.row;
  record.slot = found.slot;
  record.value = found.value;
  std::atomic_ref<int32_t>(record.code).store(found.code, std::memory_order_release);
}

Outcome check_support(const std::string& problem_text, const std::string& target_text) {
  const Result<Problem> problem = parse_problem(problem_text);
  if (!problem) return problem.error();
  Result<Target> target = Error{};
  if (is_cpu(target_text)) {
#ifdef SPLITKV_HAS_CPU
    target = resolve_cpu_target(target_text, 0);
#else
    return no_such_target(target_text.c_str(), "SPLITKV_CPU");
#endif
  } else {
    target = parse_target(target_text);
#ifndef SPLITKV_HAS_CUDA
    if (target) return no_such_target(target_text.c_str(), "SPLITKV_CUDA");
#endif
  }
  if (!target) return target.error();
  if (const auto refusal = verify(*problem, *target)) return to_error(*refusal);
  return Unit{};
}

}  // namespace splitkv
