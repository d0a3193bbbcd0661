#include "compiler/result.hpp"

#include <fmt/format.h>

namespace splitkv {

std::string to_string(const Refusal& refusal) {
  return fmt::format("{}: {}={} {}; {} would fit", refusal.rule, refusal.field, refusal.value,
                     refusal.limit, refusal.fits);
}

}  // namespace splitkv
