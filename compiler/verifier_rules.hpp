// What the two tables of rules share: how a rule writes its refusal. Private to the verifier.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv::rules {

using Verdict = std::optional<Refusal>;

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

// Rules of parameters and expressions (verifier_expr.cpp), in the order of the table.
Verdict params_are_few(const Problem& problem, const Target&);
Verdict param_names_are_new_words(const Problem& problem, const Target&);
Verdict param_names_differ(const Problem& problem, const Target&);
Verdict expressions_are_short(const Problem& problem, const Target&);
Verdict expressions_are_in_text_order(const Problem& problem, const Target&);
Verdict expressions_use_what_is_there(const Problem& problem, const Target&);
Verdict predicate_does_not_use_score(const Problem& problem, const Target&);
Verdict expression_constants_fit_fp32(const Problem& problem, const Target&);
Verdict floor_division_is_of_whole_numbers(const Problem& problem, const Target&);
Verdict whole_numbers_fit_64_bits(const Problem& problem, const Target&);
Verdict negative_numbers_are_numbers(const Problem& problem, const Target&);

// Rules of what the families of tensor cores take (verifier_tensor_cores.cpp), likewise.
Verdict mma_takes_16_bit_q(const Problem& problem, const Schedule& schedule, const Target&);
Verdict mma_takes_k_like_q_or_of_8_bits(const Problem& problem, const Schedule& schedule,
                                        const Target&);
Verdict mma_takes_v_of_16_or_8_bits(const Problem& problem, const Schedule& schedule,
                                    const Target&);
Verdict mma_copies_words(const Problem& problem, const Schedule& schedule, const Target&);
Verdict mma_holds_a_row_of_v(const Problem& problem, const Schedule& schedule, const Target&);
Verdict wgmma_is_of_sm_90a(const Problem& problem, const Schedule& schedule, const Target& target);
Verdict wgmma_takes_one_16_bit_type(const Problem& problem, const Schedule& schedule,
                                    const Target& target);
Verdict wgmma_takes_whole_columns(const Problem& problem, const Schedule& schedule,
                                  const Target& target);
Verdict wgmma_holds_a_row_of_v(const Problem& problem, const Schedule& schedule,
                               const Target& target);
Verdict wgmma_copies_16_bytes(const Problem& problem, const Schedule& schedule,
                              const Target& target);
Verdict wgmma_takes_tiles_of_one_page(const Problem& problem, const Schedule& schedule,
                                      const Target& target);
Verdict wgmma_takes_no_scales_of_keys(const Problem& problem, const Schedule& schedule,
                                      const Target& target);

}  // namespace splitkv::rules
