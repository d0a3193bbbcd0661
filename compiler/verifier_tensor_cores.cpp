// Rules of what the families of tensor cores take of a problem.
#include <algorithm>
#include <string>
#include <utility>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {

// ---- mma ----------------------------------------------------------------------------------------

namespace {

bool is_mma(const Schedule& schedule) { return schedule.family == Family::mma; }

Verdict refuse_mma(const char* rule, std::string limit) {
  return refuse(rule, "family", "mma", std::move(limit), "family=simt");
}

}  // namespace

Verdict mma_takes_16_bit_q(const Problem& problem, const Schedule& schedule, const Target&) {
  if (!is_mma(schedule) || size_bytes(problem.q_dtype) == 2) return {};
  return refuse_mma(__func__,
                    fmt::format("takes fp16 and bf16 queries, not q={}", name(problem.q_dtype)));
}

// Dots multiply two operands of one type: K as it is, or made of 8 bits.
Verdict mma_takes_k_like_q_or_of_8_bits(const Problem& problem, const Schedule& schedule,
                                        const Target&) {
  if (!is_mma(schedule) || problem.k_dtype == problem.q_dtype || size_bytes(problem.k_dtype) == 1)
    return {};
  return refuse_mma(__func__, fmt::format("takes K of q's type or of 8 bits, not q={} with k={}",
                                          name(problem.q_dtype), name(problem.k_dtype)));
}

Verdict mma_takes_v_of_16_or_8_bits(const Problem& problem, const Schedule& schedule,
                                    const Target&) {
  if (!is_mma(schedule) || problem.v_dtype != DType::fp32) return {};
  return refuse_mma(__func__, "takes V of 16 or 8 bits, not v=fp32");
}

// Asynchronous copies bring 4, 8 or 16 bytes.
Verdict mma_copies_words(const Problem& problem, const Schedule& schedule, const Target&) {
  if (!is_mma(schedule) || problem.align >= 4) return {};
  return refuse_mma(__func__, fmt::format("copies 4 bytes at least, not align={}", problem.align));
}

Verdict mma_holds_a_row_of_v(const Problem& problem, const Schedule& schedule, const Target&) {
  if (!is_mma(schedule) || most_mma_rows(problem) > 0) return {};
  return refuse_mma(__func__, fmt::format("holds at most {} columns of V, not dim_v={}",
                                          kMmaAccumulatorColumns, problem.dim_v));
}

// ---- wgmma --------------------------------------------------------------------------------------

namespace {

constexpr Verdict (*kRulesOfMma[])(const Problem&, const Schedule&, const Target&) = {
    mma_takes_16_bit_q, mma_takes_k_like_q_or_of_8_bits, mma_takes_v_of_16_or_8_bits,
    mma_copies_words, mma_holds_a_row_of_v};

bool is_wgmma(const Schedule& schedule) { return schedule.family == Family::wgmma; }

Verdict refuse_wgmma(const char* rule, const Problem& problem, const Target& target,
                     std::string limit) {
  const Schedule mma{.family = Family::mma};
  const bool fits_mma = std::none_of(
      std::begin(kRulesOfMma), std::end(kRulesOfMma),
      [&](const auto& rule_of_mma) { return rule_of_mma(problem, mma, target).has_value(); });
  return refuse(rule, "family", "wgmma", std::move(limit), fits_mma ? "family=mma" : "family=simt");
}

}  // namespace

// Later architectures multiply in another way, and have no such instructions.
Verdict wgmma_is_of_sm_90a(const Problem& problem, const Schedule& schedule, const Target& target) {
  if (!is_wgmma(schedule) || target.arch == "sm_90a") return {};
  return refuse_wgmma(__func__, problem, target,
                      fmt::format("runs on sm_90a alone, not on {}", print(target)));
}

Verdict wgmma_takes_one_16_bit_type(const Problem& problem, const Schedule& schedule,
                                    const Target& target) {
  const DType type = problem.q_dtype;
  if (!is_wgmma(schedule) ||
      (size_bytes(type) == 2 && problem.k_dtype == type && problem.v_dtype == type))
    return {};
  return refuse_wgmma(
      __func__, problem, target,
      fmt::format("takes q, k and v all fp16 or all bf16, not q={} with k={} and v={}", name(type),
                  name(problem.k_dtype), name(problem.v_dtype)));
}

Verdict wgmma_takes_whole_columns(const Problem& problem, const Schedule& schedule,
                                  const Target& target) {
  if (!is_wgmma(schedule) ||
      (problem.dim_qk % kWgmmaColumn == 0 && problem.dim_v % kWgmmaColumn == 0))
    return {};
  return refuse_wgmma(__func__, problem, target,
                      fmt::format("takes dims that are multiples of {}, not dim={}/{}",
                                  kWgmmaColumn, problem.dim_qk, problem.dim_v));
}

Verdict wgmma_holds_a_row_of_v(const Problem& problem, const Schedule& schedule,
                               const Target& target) {
  if (!is_wgmma(schedule) || problem.dim_v <= kMaxWgmmaDimV) return {};
  return refuse_wgmma(
      __func__, problem, target,
      fmt::format("holds at most {} columns of V, not dim_v={}", kMaxWgmmaDimV, problem.dim_v));
}

// Tensor maps begin at multiples of 16 bytes.
Verdict wgmma_copies_16_bytes(const Problem& problem, const Schedule& schedule,
                              const Target& target) {
  if (!is_wgmma(schedule) || problem.align >= 16) return {};
  return refuse_wgmma(__func__, problem, target,
                      fmt::format("takes align=16, not align={}", problem.align));
}

Verdict wgmma_takes_tiles_of_one_page(const Problem& problem, const Schedule& schedule,
                                      const Target& target) {
  const int page_size = problem.kv_layout.page_size;
  if (!is_wgmma(schedule) || !is_paged(problem) || page_size % kWgmmaTile == 0) return {};
  return refuse_wgmma(__func__, problem, target,
                      fmt::format("takes {} keys of one page at a time, not of pages of {}",
                                  kWgmmaTile, page_size));
}

Verdict wgmma_takes_no_scales_of_keys(const Problem& problem, const Schedule& schedule,
                                      const Target& target) {
  if (!is_wgmma(schedule) ||
      (!is_scale_of_key(problem.k_scale) && !is_scale_of_key(problem.v_scale)))
    return {};
  return refuse_wgmma(__func__, problem, target, "takes no scales of keys");
}

}  // namespace rules
}  // namespace splitkv
