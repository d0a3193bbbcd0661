// What every function of the C API does alike: nothing throws out of it, and its outcome becomes a
// status and a message.
#pragma once

#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>

#include "runtime/background.hpp"
#include "runtime/kernel.hpp"
#include "runtime/splitkv.h"
#include "runtime/struct_io.hpp"

struct splitkv_runtime {
  explicit splitkv_runtime(const splitkv::RuntimeOptions& options)
      : kernels(options), background(kernels) {}
  splitkv::KernelRuntime kernels;
  splitkv::Background background;  // last: its jobs end before what they use
};

struct splitkv_kernel {
  std::unique_ptr<const splitkv::PreparedKernel> prepared;
};

struct splitkv_merger {
  std::unique_ptr<const splitkv::PreparedMerge> prepared;
};

namespace splitkv {

inline Outcome check_stream(const Target& target, const void* stream) {
  if (target.kind == TargetKind::cuda || stream == nullptr) return Unit{};
  return invalid_argument(
      fmt::format("stream={} is given to the CPU target; NULL would fit", stream));
}

inline bool is_usable(const splitkv_message* message) {
  return message == nullptr || message->size >= sizeof(splitkv_message);
}

// message may be null; it must be usable.
inline void write_message(splitkv_message* message, std::string_view text) {
  if (message == nullptr) return;
  message->needed = text.size() + 1;
  if (message->text == nullptr || message->capacity == 0) return;
  const size_t length = std::min(text.size(), message->capacity - 1);
  text.copy(message->text, length);
  message->text[length] = '\0';
}

inline splitkv_status to_c(Status status) { return static_cast<splitkv_status>(status); }

static_assert(int(Status::ok) == SPLITKV_OK && int(Status::internal) == SPLITKV_INTERNAL &&
                  int(Status::device_error) == SPLITKV_DEVICE_ERROR &&
                  int(Status::library_missing) == SPLITKV_LIBRARY_MISSING &&
                  int(Status::compile_failed) == SPLITKV_COMPILE_FAILED &&
                  int(Status::out_of_memory) == SPLITKV_OUT_OF_MEMORY &&
                  int(Status::not_prepared) == SPLITKV_NOT_PREPARED &&
                  int(Status::unsupported) == SPLITKV_UNSUPPORTED &&
                  int(Status::invalid_argument) == SPLITKV_INVALID_ARGUMENT,
              "splitkv_status and splitkv::Status count alike");

// Runs body() -> Outcome behind the C boundary.
template <class Body>
splitkv_status answer(splitkv_message* message, const Body& body) noexcept {
  if (!is_usable(message)) return SPLITKV_INVALID_ARGUMENT;
  try {
    const Outcome outcome = body();
    write_message(message, outcome.ok() ? std::string_view() : outcome.error().message);
    return outcome.ok() ? SPLITKV_OK : to_c(outcome.error().status);
  } catch (const std::bad_alloc&) {
    write_message(message, "host memory is used up");
    return SPLITKV_OUT_OF_MEMORY;
  } catch (const std::exception& exception) {
    write_message(message, exception.what());
    return SPLITKV_INTERNAL;
  }
}

// Defaults where it is null.
inline Result<Workload> read_workload(const splitkv_workload* given) {
  constexpr int64_t kDefaultBatch = 1, kDefaultKvLen = 4096;
  if (given == nullptr) return Workload{kDefaultBatch, kDefaultKvLen};
  const auto read = read_struct(given, "workload");
  if (!read) return read.error();
  for (const auto& [field, value] : {std::pair{"batch", read->batch},
                                     {"kv_len", read->kv_len},
                                     {"kv_len_mean", read->kv_len_mean}}) {
    if (value < 0) {
      return invalid_argument(
          fmt::format("workload.{}={} is negative; 0 means the default", field, value));
    }
  }
  return Workload{read->batch > 0 ? read->batch : kDefaultBatch,
                  read->kv_len > 0 ? read->kv_len : kDefaultKvLen, read->kv_len_mean};
}

inline Outcome not_null(const void* pointer, const char* name) {
  if (pointer != nullptr) return Unit{};
  return invalid_argument(std::string(name) + " is NULL");
}

inline Outcome check_batch(int64_t max_batch) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (max_batch > most) {
    return invalid_argument(
        fmt::format("max_batch={} is above {}; that or fewer would fit", max_batch, most));
  }
  if (max_batch < 0) {
    return invalid_argument(
        fmt::format("max_batch={} is negative; 0 or more would fit", max_batch));
  }
  return Unit{};
}

}  // namespace splitkv
