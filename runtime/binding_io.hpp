// splitkv_binding holds a splitkv_tensors in its middle, which grows: the kernel's id lies behind
// as much of it as the caller's version has.
#pragma once

#include "runtime/splitkv.h"
#include "runtime/struct_io.hpp"

namespace splitkv {

// {size, tensors, kernel_id} with tensors of the size that is left over.
inline constexpr size_t kBindingFrame = sizeof(size_t) + sizeof(uint64_t);

inline Outcome check_binding_size(const splitkv_binding* binding) {
  if (binding == nullptr) return invalid_argument("binding is NULL");
  const size_t size = binding->size;
  if (size > kBindingFrame + sizeof(size_t) && size % 8 == 0 &&
      size <= 16 * sizeof(splitkv_binding))
    return Unit{};
  return invalid_argument(fmt::format(
      "binding.size={} is no size of this struct; {} would fit: start from SPLITKV_INIT", size,
      sizeof(splitkv_binding)));
}

inline Result<splitkv_binding> read_binding(const splitkv_binding* given) {
  if (Outcome fits = check_binding_size(given); !fits) return fits.error();
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const size_t tensors_bytes = given->size - kBindingFrame;
  for (size_t i = sizeof(splitkv_tensors); i < tensors_bytes; ++i) {
    if (bytes[sizeof(size_t) + i] == 0) continue;
    return invalid_argument(
        fmt::format("binding.size={} is of a newer splitkv.h, and a field of its tensors that this "
                    "library lacks is set at byte {}; {} would fit",
                    given->size, i, sizeof(splitkv_binding)));
  }
  splitkv_binding copy = SPLITKV_INIT(splitkv_binding);
  std::memcpy(static_cast<void*>(&copy.tensors), bytes + sizeof(size_t),
              tensors_bytes < sizeof(splitkv_tensors) ? tensors_bytes : sizeof(splitkv_tensors));
  copy.tensors.size = sizeof(splitkv_tensors);
  std::memcpy(&copy.kernel_id, bytes + sizeof(size_t) + tensors_bytes, sizeof(copy.kernel_id));
  return copy;
}

// Refused: a caller's binding that is too small for tensors that were given.
inline Outcome write_binding(const splitkv_binding& value, splitkv_binding* out) {
  if (Outcome fits = check_binding_size(out); !fits) return fits;
  const size_t tensors_bytes = out->size - kBindingFrame;
  const auto* tensors = reinterpret_cast<const unsigned char*>(&value.tensors);
  for (size_t i = tensors_bytes; i < sizeof(splitkv_tensors); ++i) {
    if (tensors[i] == 0) continue;
    return invalid_argument(
        fmt::format("binding.size={} is of an older splitkv.h and has no room for the tensors that "
                    "are given; {} would fit",
                    out->size, sizeof(splitkv_binding)));
  }
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memset(bytes + sizeof(size_t), 0, out->size - sizeof(size_t));
  std::memcpy(bytes + sizeof(size_t), tensors,
              tensors_bytes < sizeof(splitkv_tensors) ? tensors_bytes : sizeof(splitkv_tensors));
  std::memcpy(bytes + sizeof(size_t), &tensors_bytes, sizeof(tensors_bytes));  // tensors.size
  std::memcpy(bytes + sizeof(size_t) + tensors_bytes, &value.kernel_id, sizeof(value.kernel_id));
  return Unit{};
}

}  // namespace splitkv
