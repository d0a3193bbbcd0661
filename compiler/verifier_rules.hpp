// What the two tables of rules share: how a rule writes its refusal. Private to the verifier.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "compiler/result.hpp"

namespace splitkv::rules {

// A rule passes its own __func__, so that the name in the refusal cannot drift from the function's.
template <class T>
std::optional<Refusal> refuse(const char* rule, std::string field, const T& value,
                              std::string limit, std::string fits) {
  return Refusal{rule, std::move(field), fmt::format("{}", value), std::move(limit),
                 std::move(fits)};
}

// Refuses a value outside [low, high] and offers the nearest end.
inline std::optional<Refusal> refuse_outside(const char* rule, const char* field, int value,
                                             int low, int high) {
  if (value < low)
    return refuse(rule, field, value, fmt::format("is below {}", low),
                  fmt::format("{}={}", field, low));
  if (value > high)
    return refuse(rule, field, value, fmt::format("is above {}", high),
                  fmt::format("{}={}", field, high));
  return std::nullopt;
}

}  // namespace splitkv::rules
