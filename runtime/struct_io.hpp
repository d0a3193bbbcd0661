// Structs of the C API begin with their size in bytes, so that the library and a caller built with
// another version of splitkv.h understand each other.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

#include "compiler/result.hpp"

namespace splitkv {

// A copy of *given in which fields that the caller's version lacks are zero. Refused: null, a size
// that cannot be one (forgotten SPLITKV_INIT), and newer structs that set fields unknown here.
template <class Struct>
Result<Struct> read_struct(const Struct* given, const char* name) {
  if (given == nullptr) return invalid_argument(fmt::format("{} is NULL", name));
  if (given->size <= sizeof(given->size)) {
    return invalid_argument(
        fmt::format("{}.size={} is no size of this struct; {} would fit: start "
                    "from SPLITKV_INIT",
                    name, given->size, sizeof(Struct)));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < given->size; ++i) {
    if (bytes[i] != 0) {
      return invalid_argument(
          fmt::format("{}.size={} is of a newer splitkv.h, and a field that this "
                      "library lacks is set at byte {}; {} would fit",
                      name, given->size, i, sizeof(Struct)));
    }
  }
  Struct copy{};
  std::memcpy(static_cast<void*>(&copy), given,
              given->size < sizeof(Struct) ? given->size : sizeof(Struct));
  copy.size = sizeof(Struct);
  return copy;
}

// Writes as much of `value` as the caller's version of the struct holds; its size stays.
template <class Struct>
Outcome write_struct(const Struct& value, Struct* out, const char* name) {
  if (out == nullptr) return invalid_argument(fmt::format("{} is NULL", name));
  const size_t size = out->size;
  if (size <= sizeof(out->size) || size > 16 * sizeof(Struct)) {
    return invalid_argument(
        fmt::format("{}.size={} is no size of this struct; {} would fit: start "
                    "from SPLITKV_INIT",
                    name, size, sizeof(Struct)));
  }
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &value, size < sizeof(Struct) ? size : sizeof(Struct));
  out->size = size;
  return Unit{};
}

}  // namespace splitkv
