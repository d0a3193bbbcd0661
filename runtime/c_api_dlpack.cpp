// C API: tensors that DLPack describes.
#include <fmt/format.h>

#include "runtime/c_api_support.hpp"
#include "runtime/dlpack.hpp"

using splitkv::answer;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::Unit;

extern "C" {

splitkv_status splitkv_dl_view(const splitkv_dl_managed_tensor* managed, int32_t writable,
                               const splitkv_dl_tensor** tensor, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    constexpr uint64_t kReadOnly = 1;
    if (Outcome given = not_null(tensor, "tensor"); !given) return given;
    *tensor = nullptr;
    if (Outcome given = not_null(managed, "managed"); !given) return given;
    if (managed->version_major != 1) {
      return invalid_argument(
          fmt::format("managed is of DLPack {}.{}; 1.x would fit: a producer that is asked for "
                      "max_version=(1, 1) gives it",
                      managed->version_major, managed->version_minor));
    }
    if (writable != 0 && (managed->flags & kReadOnly) != 0) {
      return invalid_argument(
          fmt::format("managed has flags={:#x}: it is read only, and would be written; a tensor "
                      "that may be written would fit",
                      managed->flags));
    }
    *tensor = &managed->tensor;
    return Unit{};
  });
}

splitkv_status splitkv_tensors_from_dlpack(const splitkv_kernel* kernel,
                                           const splitkv_dl_cache* cache, splitkv_tensors* tensors,
                                           splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    const auto read = splitkv::read_struct(cache, "cache");
    if (!read) return read.error();
    const auto filled = splitkv::tensors_from_dlpack(*kernel->prepared, *read);
    if (!filled) return filled.error();
    return splitkv::write_struct(*filled, tensors, "tensors");
  });
}

splitkv_status splitkv_args_from_dlpack(const splitkv_kernel* kernel, const splitkv_dl_step* step,
                                        splitkv_args* args, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    const auto read = splitkv::read_struct(step, "step");
    if (!read) return read.error();
    const auto given = splitkv::read_struct(args, "args");
    if (!given) return given.error();
    const auto filled = splitkv::args_from_dlpack(*kernel->prepared, *read, *given);
    if (!filled) return filled.error();
    return splitkv::write_struct(*filled, args, "args");
  });
}

}  // extern "C"
