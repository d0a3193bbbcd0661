// C API: the KV writer.
#include <fmt/format.h>

#include "runtime/append_launch.hpp"
#include "runtime/binding_io.hpp"
#include "runtime/c_api_faults.hpp"
#include "runtime/c_api_support.hpp"

using splitkv::answer;
using splitkv::ErrorRecord;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::PreparedAppend;
using splitkv::Unit;

struct splitkv_appender {
  std::unique_ptr<const PreparedAppend> prepared;
};

namespace {

std::string describe(const ErrorRecord& fault) {
  switch (fault.code) {
    case splitkv::kBadPageId:
      return fmt::format(
          "row={} slot={} of a page table holds id {}, outside [0, page_count); the tokens that "
          "belong there were left out",
          fault.row, fault.slot, fault.value);
    case splitkv::kLengthTooLong:
      return fmt::format("kv_len[{}]={} is above kv_capacity; the tokens past it were left out",
                         fault.row, fault.value);
    case splitkv::kBadSlot:
      return fmt::format("{}slots[{}]={} is outside [0, slot_count); the token was left out",
                         fault.slot == 1 ? "v_" : "", fault.row, fault.value);
    default:
      return fmt::format("code={} row={} slot={} value={}", fault.code, fault.row, fault.slot,
                         fault.value);
  }
}

Outcome append_on_cpu(const PreparedAppend& prepared, splitkv::AppendArgs launch) {
  ErrorRecord own;
  if (prepared.errors != nullptr) launch.errors = &own;
  if (Outcome ran = prepared.loaded.code->append(launch, 0, nullptr); !ran) return ran;
  if (prepared.errors == nullptr) return Unit{};
  return splitkv::answer_with(own, *prepared.errors, describe);
}

Outcome append(const PreparedAppend& prepared, const splitkv_binding* binding,
               const splitkv_append_args* args, void* stream) {
  if (Outcome fits = splitkv::check_stream(prepared.target, stream); !fits) return fits;
  const auto read_binding = splitkv::read_binding(binding);
  if (!read_binding) return read_binding.error();
  const auto read = splitkv::read_struct(args, "args");
  if (!read) return read.error();
  if (read->tokens < 0) {
    return invalid_argument(
        fmt::format("args.tokens={} is negative; 0 or more would fit", read->tokens));
  }
  if (read->tokens == 0) return Unit{};
  const auto launch = splitkv::make_append(prepared, *read_binding, *read);
  if (!launch) return launch.error();
  if (prepared.target.kind == splitkv::TargetKind::cpu) return append_on_cpu(prepared, *launch);
  return prepared.loaded.code->append(
      *launch, splitkv::append_blocks(prepared.append, launch->tokens), stream);
}

}  // namespace

extern "C" {

splitkv_status splitkv_prepare_append(splitkv_runtime* runtime, const char* device,
                                      const char* problem, const char* type, const char* places,
                                      splitkv_appender** appender, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(appender, "appender"); !given) return given;
    *appender = nullptr;
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(problem, "problem"); !given) return given;
    if (Outcome given = not_null(places, "places"); !given) return given;
    auto prepared = runtime->kernels.prepare_append({device, problem, type, places});
    if (!prepared) return prepared.error();
    *appender = new splitkv_appender{*std::move(prepared)};
    return Unit{};
  });
}

void splitkv_release_appender(splitkv_appender* appender) { delete appender; }

splitkv_status splitkv_append(const splitkv_appender* appender, const splitkv_binding* binding,
                              const splitkv_append_args* args, void* stream,
                              splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(appender, "appender"); !given) return given;
    return append(*appender->prepared, binding, args, stream);
  });
}

splitkv_status splitkv_poll_append_fault(splitkv_appender* appender, splitkv_fault* fault,
                                         splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(appender, "appender"); !given) return given;
    return splitkv::poll_fault(appender->prepared->errors.get(), fault, describe);
  });
}

}  // extern "C"
