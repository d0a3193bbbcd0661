// C API: runtimes, prepared kernels and what they tell about themselves.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/c_api_support.hpp"

using splitkv::answer;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::Result;
using splitkv::Unit;

namespace {

splitkv_kernel_info describe(const splitkv::PreparedKernel& kernel) {
  const splitkv::CodeFacts facts = kernel.loaded.code->facts();
  const splitkv::LaunchShape shape = launch_shape(kernel.problem, kernel.schedule, 1);
  splitkv_kernel_info info = SPLITKV_INIT(splitkv_kernel_info);
  info.problem = kernel.problem_text.c_str();
  info.schedule = kernel.schedule_text.c_str();
  info.target = kernel.target_text.c_str();
  info.why = kernel.why.c_str();
  info.source = kernel.source.text.c_str();
  info.key = kernel.loaded.key.digest.c_str();
  info.from_memory = kernel.loaded.origin == splitkv::Origin::memory ? 1 : 0;
  info.compile_ms = kernel.loaded.compile_ms;
  info.module_bytes = facts.module_bytes;
  info.registers_split = facts.registers_split;
  info.registers_reduce = facts.registers_reduce;
  info.local_bytes_split = facts.local_bytes_split;
  info.local_bytes_reduce = facts.local_bytes_reduce;
  info.smem_bytes = shape.split_smem_bytes;
  info.kernels_per_run = shape.reduce_blocks > 0 ? 2 : 1;
  info.origin = name(kernel.loaded.origin);
  info.disk_ms = kernel.loaded.disk_ms;
  info.decided_by = name(kernel.decider);
  info.split_name = kernel.source.split_entry.c_str();
  info.reduce_name = kernel.source.reduce_entry.c_str();
  info.device = kernel.device.c_str();
  return info;
}

}  // namespace

extern "C" {

const char* splitkv_status_name(splitkv_status status) {
  switch (status) {
    case SPLITKV_OK:
      return "ok";
    case SPLITKV_INVALID_ARGUMENT:
      return "invalid_argument";
    case SPLITKV_UNSUPPORTED:
      return "unsupported";
    case SPLITKV_NOT_PREPARED:
      return "not_prepared";
    case SPLITKV_OUT_OF_MEMORY:
      return "out_of_memory";
    case SPLITKV_COMPILE_FAILED:
      return "compile_failed";
    case SPLITKV_LIBRARY_MISSING:
      return "library_missing";
    case SPLITKV_DEVICE_ERROR:
      return "device_error";
    case SPLITKV_INTERNAL:
      return "internal";
  }
  return "unknown";
}

splitkv_status splitkv_open(const splitkv_options* options, splitkv_runtime** runtime,
                            splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    *runtime = nullptr;
    const auto read = splitkv::read_options(options);
    if (!read) return read.error();
    auto opened = std::make_unique<splitkv_runtime>(*read);
    if (Outcome pack = opened->kernels.add_chosen_pack(); !pack) return pack;
    *runtime = opened.release();
    return Unit{};
  });
}

void splitkv_close(splitkv_runtime* runtime) { delete runtime; }

splitkv_status splitkv_supports(const char* problem, const char* target, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(problem, "problem"); !given) return given;
    if (Outcome given = not_null(target, "target"); !given) return given;
    return splitkv::check_support(problem, target);
  });
}

splitkv_status splitkv_prepare(splitkv_runtime* runtime, const char* device, const char* problem,
                               const splitkv_workload* workload, const char* schedule,
                               splitkv_kernel** kernel, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    *kernel = nullptr;
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(problem, "problem"); !given) return given;
    const auto hints = splitkv::read_workload(workload);
    if (!hints) return hints.error();
    auto prepared = runtime->kernels.prepare(
        {.device = device, .problem = problem, .workload = *hints, .schedule = schedule});
    if (!prepared) return prepared.error();
    *kernel = new splitkv_kernel{*std::move(prepared)};
    return Unit{};
  });
}

void splitkv_release(splitkv_kernel* kernel) { delete kernel; }

splitkv_status splitkv_sizes(const splitkv_kernel* kernel, int64_t max_batch,
                             splitkv_buffer_sizes* sizes, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome fits = splitkv::check_batch(max_batch); !fits) return fits;
    const splitkv::PreparedKernel& prepared = *kernel->prepared;
    const splitkv::BufferSizes needed =
        buffer_sizes(prepared.problem, prepared.schedule, max_batch);
    splitkv_buffer_sizes filled = SPLITKV_INIT(splitkv_buffer_sizes);
    filled.scratch_bytes = size_t(needed.scratch_bytes);
    filled.state_bytes = size_t(needed.state_bytes);
    filled.module_bytes = prepared.loaded.code->facts().module_bytes;
    return splitkv::write_struct(filled, sizes, "sizes");
  });
}

splitkv_status splitkv_get_kernel_info(const splitkv_kernel* kernel, splitkv_kernel_info* info,
                                       splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    return splitkv::write_struct(describe(*kernel->prepared), info, "info");
  });
}

splitkv_status splitkv_get_statistics(const splitkv_runtime* runtime,
                                      splitkv_statistics* statistics, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    const splitkv::Counters::Values values = runtime->kernels.statistics();
    splitkv_statistics filled = SPLITKV_INIT(splitkv_statistics);
    filled.memory_hits = values.memory_hits;
    filled.compiles = values.compiles;
    filled.compile_failures = values.compile_failures;
    filled.compile_ms_total = values.compile_ms_total;
    filled.disk_hits = values.disk_hits;
    filled.disk_ms_total = values.disk_ms_total;
    filled.pack_hits = values.pack_hits;
    filled.misses = values.misses;
    filled.evictions = values.evictions;
    return splitkv::write_struct(filled, statistics, "statistics");
  });
}

}  // extern "C"
