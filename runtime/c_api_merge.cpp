// C API: the public merge, and faults of checked kernels and of merges.
#include <fmt/format.h>

#include <bit>

#include "runtime/c_api_faults.hpp"
#include "runtime/c_api_support.hpp"
#include "runtime/merge_launch.hpp"

using splitkv::answer;
using splitkv::ErrorRecord;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::Unit;

namespace {

std::string describe(const ErrorRecord& fault) {
  switch (fault.code) {
    case splitkv::kBadPageId:
      return fmt::format(
          "row={} slot={} of a page table holds id {}, outside [0, page_count); its keys were "
          "left out",
          fault.row, fault.slot, fault.value);
    case splitkv::kLengthTooLong:
      return fmt::format("kv_len[{}]={} is above kv_capacity; the row was cut there", fault.row,
                         fault.value);
    case splitkv::kBadQueryOffset:
      return fmt::format("q_offset gives row={} {} queries, more than query_len; it was cut there",
                         fault.row, fault.value);
    case splitkv::kBadStatistic:
      return fmt::format(
          "part={} of row={} has a statistic of {}, which no partial has; S or m is -inf or "
          "finite, l finite and not negative. The row became NaN",
          fault.slot, fault.row, std::bit_cast<float>(uint32_t(fault.value)));
    default:
      return fmt::format("code={} row={} slot={} value={}", fault.code, fault.row, fault.slot,
                         fault.value);
  }
}

Outcome merge_on_cpu(const splitkv::PreparedMerge& merge, splitkv::MergeArgs launch) {
  ErrorRecord own;
  launch.errors = &own;
  if (Outcome ran = merge.loaded.code->merge(launch, nullptr); !ran) return ran;
  return splitkv::answer_with(own, *merge.errors, describe);
}

}  // namespace

extern "C" {

splitkv_status splitkv_poll_fault(splitkv_kernel* kernel, splitkv_fault* fault,
                                  splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    return splitkv::poll_fault(kernel->prepared->errors.get(), fault, describe);
  });
}

splitkv_status splitkv_poll_merge_fault(splitkv_merger* merger, splitkv_fault* fault,
                                        splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(merger, "merger"); !given) return given;
    return splitkv::poll_fault(merger->prepared->errors.get(), fault, describe);
  });
}

splitkv_status splitkv_prepare_merge(splitkv_runtime* runtime, const char* device, const char* form,
                                     const char* base, splitkv_merger** merger,
                                     splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(merger, "merger"); !given) return given;
    *merger = nullptr;
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(form, "form"); !given) return given;
    if (Outcome given = not_null(base, "base"); !given) return given;
    auto prepared = runtime->kernels.prepare_merge(device, form, base);
    if (!prepared) return prepared.error();
    *merger = new splitkv_merger{*std::move(prepared)};
    return Unit{};
  });
}

void splitkv_release_merger(splitkv_merger* merger) { delete merger; }

splitkv_status splitkv_merge(const splitkv_merger* merger, const splitkv_merge_args* args,
                             void* stream, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(merger, "merger"); !given) return given;
    if (Outcome fits = splitkv::check_stream(merger->prepared->target, stream); !fits) return fits;
    const auto read = splitkv::read_struct(args, "args");
    if (!read) return read.error();
    if (read->rows < 0) {
      return invalid_argument(
          fmt::format("args.rows={} is negative; 0 or more would fit", read->rows));
    }
    if (read->rows == 0) return Unit{};
    const auto launch = splitkv::make_merge(*merger->prepared, *read);
    if (!launch) return launch.error();
    if (merger->prepared->target.kind == splitkv::TargetKind::cpu) {
      return merge_on_cpu(*merger->prepared, *launch);
    }
    return merger->prepared->loaded.code->merge(*launch, stream);
  });
}

}  // extern "C"
