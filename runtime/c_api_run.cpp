// C API: tensors, work buffers and runs.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "runtime/binding_io.hpp"
#include "runtime/c_api_support.hpp"
#include "runtime/launch.hpp"

using splitkv::answer;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::Result;
using splitkv::Unit;

namespace {

// Checks what the caller gave and calls go(launch); an empty batch is done at once.
template <class Go>
Outcome checked_run(const splitkv_kernel* kernel, const splitkv_binding* binding,
                    const splitkv_args* args, const Go& go) {
  if (Outcome given = not_null(kernel, "kernel"); !given) return given;
  const auto read_binding = splitkv::read_binding(binding);
  if (!read_binding) return read_binding.error();
  const auto read_args = splitkv::read_struct(args, "args");
  if (!read_args) return read_args.error();
  if (read_args->batch < 0) {
    return invalid_argument(
        fmt::format("args.batch={} is negative; 0 or more would fit", read_args->batch));
  }
  if (read_args->batch == 0) {
    if (read_args->query_rows == 0) return Unit{};
    return invalid_argument(
        fmt::format("args.query_rows={} with batch=0: nothing runs that could zero them; 0 would "
                    "fit",
                    read_args->query_rows));
  }
  const auto launch = splitkv::make_launch(*kernel->prepared, *read_binding, *read_args);
  if (!launch) return launch.error();
  return go(*launch);
}

Outcome check_part(const splitkv::PreparedKernel& kernel, int64_t part, int64_t parts) {
  if (parts < 1 || part < 0 || part >= parts) {
    return invalid_argument(fmt::format(
        "part={} of parts={} does not exist; part 0 to parts - 1 would fit", part, parts));
  }
  if (kernel.schedule.reduce == splitkv::Reduce::last_block) return Unit{};
  return invalid_argument(
      "splitkv_run_part: the schedule has reduce=kernel, whose second pass must wait for "
      "all parts; reduce=last_block would fit");
}

// Of counters of 4 bytes each. How many a run needs only its batch tells.
Outcome check_state(const void* state, size_t bytes) {
  const char* fit = "the state_bytes that splitkv_sizes gives would fit";
  if (bytes > size_t(std::numeric_limits<ptrdiff_t>::max())) {
    return invalid_argument(
        fmt::format("state_bytes={} is a negative number or above all memory; {}", bytes, fit));
  }
  if (bytes % sizeof(uint32_t) != 0) {
    return invalid_argument(
        fmt::format("state_bytes={} is no whole number of 4-byte counters; {}", bytes, fit));
  }
  if (state == nullptr) {
    return invalid_argument(
        fmt::format("state is NULL with state_bytes={}; memory of that size would fit", bytes));
  }
  if (reinterpret_cast<uintptr_t>(state) % alignof(uint32_t) == 0) return Unit{};
  return invalid_argument(
      fmt::format("state={} is not aligned to 4 bytes; memory that is would fit", fmt::ptr(state)));
}

}  // namespace

extern "C" {

splitkv_status splitkv_state_init(const splitkv_kernel* kernel, void* state, size_t state_bytes,
                                  void* stream, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome fits = splitkv::check_stream(kernel->prepared->target, stream); !fits) return fits;
    if (state_bytes == 0) return Unit{};
    if (Outcome fits = check_state(state, state_bytes); !fits) return fits;
    return kernel->prepared->loaded.code->zero(state, state_bytes, stream);
  });
}

splitkv_status splitkv_dense_strides(const splitkv_kernel* kernel, int64_t capacity,
                                     splitkv_tensors* tensors, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    const auto read = splitkv::read_struct(tensors, "tensors");
    if (!read) return read.error();
    auto filled = splitkv::dense_strides(kernel->prepared->problem, capacity);
    if (!filled) return filled.error();
    // Pointers stay as the caller has them.
    filled->k = read->k;
    filled->v = read->v;
    filled->k_scale = read->k_scale;
    filled->v_scale = read->v_scale;
    filled->alibi_slopes = read->alibi_slopes;
    filled->sink = read->sink;
    std::copy(std::begin(read->params), std::end(read->params), filled->params);
    return splitkv::write_struct(*filled, tensors, "tensors");
  });
}

splitkv_status splitkv_bind(const splitkv_kernel* kernel, const splitkv_tensors* tensors,
                            splitkv_binding* binding, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    const auto read = splitkv::read_struct(tensors, "tensors");
    if (!read) return read.error();
    const auto bound = splitkv::bind(*kernel->prepared, *read);
    if (!bound) return bound.error();
    return splitkv::write_binding(*bound, binding);
  });
}

splitkv_status splitkv_run(const splitkv_kernel* kernel, const splitkv_binding* binding,
                           const splitkv_args* args, void* stream, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome fits = splitkv::check_stream(kernel->prepared->target, stream); !fits) return fits;
    return checked_run(kernel, binding, args, [&](const splitkv::Launch& launch) {
      return kernel->prepared->loaded.code->run(launch.args, launch.shape, stream);
    });
  });
}

splitkv_status splitkv_run_part(const splitkv_kernel* kernel, const splitkv_binding* binding,
                                const splitkv_args* args, int64_t part, int64_t parts,
                                splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    return checked_run(kernel, binding, args, [&](const splitkv::Launch& launch) -> Outcome {
      const splitkv::PreparedKernel& prepared = *kernel->prepared;
      if (prepared.target.kind == splitkv::TargetKind::cpu) {
        if (Outcome exists = check_part(prepared, part, parts); !exists) return exists;
      }
      return prepared.loaded.code->run_part(launch.args, launch.shape, part, parts);
    });
  });
}

}  // extern "C"
