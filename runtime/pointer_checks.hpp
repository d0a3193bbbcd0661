// Pointers of the C API's structs, checked by value: a field is given exactly when the problem has
// a use for it, and then aligned.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "compiler/result.hpp"

namespace splitkv {

// One pointer of a struct, "args.bias" in messages.
struct PointerField {
  const char* owner;
  const char* field;
  const void* pointer;
};

// what: what would fit, "int32 [batch]".
inline Outcome check_given(const PointerField& given, int align, const char* what) {
  if (given.pointer == nullptr) {
    return invalid_argument(
        fmt::format("{}.{} is NULL; {} would fit", given.owner, given.field, what));
  }
  if (reinterpret_cast<uintptr_t>(given.pointer) % uintptr_t(align) != 0) {
    return invalid_argument(fmt::format("{}.{}={} is not aligned to {} bytes; {} would fit",
                                        given.owner, given.field, given.pointer, align, what));
  }
  return Unit{};
}

// why: what the problem says instead; remedy: the word that would ask for it.
inline Outcome check_absent(const PointerField& given, const char* why, const char* remedy) {
  if (given.pointer == nullptr) return Unit{};
  return invalid_argument(fmt::format("{}.{}={} is given, but {}; NULL, or {}, would fit",
                                      given.owner, given.field, given.pointer, why, remedy));
}

// Either of the two above.
struct Presence {
  bool wanted;
  int align;
  const char* what;    // would fit where it is wanted
  const char* why;     // it is not wanted
  const char* remedy;  // that would make it wanted
};

inline Outcome check_presence(const PointerField& given, const Presence& presence) {
  if (presence.wanted) return check_given(given, presence.align, presence.what);
  return check_absent(given, presence.why, presence.remedy);
}

}  // namespace splitkv
