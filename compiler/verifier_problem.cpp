#include <algorithm>
#include <charconv>
#include <cmath>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {
namespace {

using Verdict = std::optional<Refusal>;

constexpr int kMaxHeads = 65536;
constexpr int kMaxPageSize = 65536;
// A factor of log2(e), and the quotient of both, stay finite in fp32.
constexpr double kLargestConstant = 1e15;
constexpr double kSmallestSoftcap = 1e-6;

// The architecture's number: 90 of "sm_90a"; 0 where there is none.
int compute_capability(std::string_view arch) {
  int number = 0;
  if (arch.starts_with("sm_")) std::from_chars(arch.data() + 3, arch.data() + arch.size(), number);
  return number;
}

Verdict target_architecture_is_supported(const Problem&, const Target& target) {
  if (target.kind != TargetKind::cuda || compute_capability(target.arch) >= 80) return {};
  return refuse(__func__, "target", print(target), "is below sm_80",
                "cuda:sm_80 and above, or cpu,");
}

// A target filled in by hand or by a driver must bring what the schedule rules weigh.
Verdict target_facts_are_complete(const Problem&, const Target& target) {
  if (target.kind != TargetKind::cuda) return {};
  const auto needs = [&](const char* field, int64_t value, int64_t least) -> Verdict {
    if (value >= least) return {};
    return refuse("target_facts_are_complete", field, value, fmt::format("is below {}", least),
                  fmt::format("{}={}", field, least));
  };
  if (Verdict sms = needs("sm_count", target.sm_count, 1)) return sms;
  if (Verdict threads = needs("max_threads_per_sm", target.max_threads_per_sm, 1024))
    return threads;
  if (Verdict blocks = needs("max_blocks_per_sm", target.max_blocks_per_sm, 1)) return blocks;
  if (Verdict file = needs("registers_per_sm", target.registers_per_sm, 32768)) return file;
  return needs("smem_per_block_bytes", target.smem_per_block_bytes, 48 * 1024);
}

Verdict target_vector_width_is_supported(const Problem&, const Target& target) {
  const int bits = target.vector_bits;
  if (target.kind != TargetKind::cpu || bits == 128 || bits == 256 || bits == 512) return {};
  return refuse(__func__, "target", print(target),
                fmt::format("has vectors of {} bits, which is none of 128, 256, 512", bits),
                fmt::format("cpu:{}:256", target.arch));
}

Verdict kv_heads_are_in_range(const Problem& problem, const Target&) {
  if (problem.kv_heads >= 1 && problem.kv_heads <= kMaxHeads) return {};
  const int near = std::clamp(problem.kv_heads, 1, kMaxHeads);
  return refuse(__func__, "heads", fmt::format("{}/{}", problem.q_heads, problem.kv_heads),
                fmt::format("has kv heads outside 1 to {}", kMaxHeads),
                fmt::format("heads={}/{}", std::max(problem.q_heads, near), near));
}

Verdict q_heads_are_a_multiple_of_kv_heads(const Problem& problem, const Target&) {
  const int kv = problem.kv_heads;
  if (problem.q_heads >= 1 && problem.q_heads <= kMaxHeads && problem.q_heads % kv == 0) return {};
  const int below = std::clamp(problem.q_heads, 0, kMaxHeads) / kv * kv;
  return refuse(__func__, "heads", fmt::format("{}/{}", problem.q_heads, kv),
                fmt::format("has q heads that are not a multiple of {} from {} to {}", kv, kv,
                            kMaxHeads / kv * kv),
                fmt::format("heads={}/{}", std::max(below, kv), kv));
}

Verdict head_dims_are_in_range(const Problem& problem, const Target&) {
  const int low = std::min(problem.dim_qk, problem.dim_v);
  if (low < 8) return refuse_outside(__func__, "dim", low, 8, 256);
  return refuse_outside(__func__, "dim", std::max(problem.dim_qk, problem.dim_v), 8, 256);
}

// Rows of K and V are then multiples of 16 bytes for every type, which every align divides.
Verdict head_dims_are_multiples_of_8(const Problem& problem, const Target&) {
  const int odd_one = problem.dim_qk % 8 != 0 ? problem.dim_qk : problem.dim_v;
  if (odd_one % 8 == 0) return {};
  return refuse(__func__, "dim", odd_one, "is not a multiple of 8",
                fmt::format("dim={}", (odd_one + 7) / 8 * 8));
}

Verdict query_len_is_one(const Problem& problem, const Target&) {
  return refuse_outside(__func__, "query_len", problem.query_len, 1, 1);
}

Verdict page_size_is_in_range(const Problem& problem, const Target&) {
  const KvLayout& layout = problem.kv_layout;
  const int size = layout.page_size;
  if (!is_paged(problem)) {
    if (size == 0) return {};
    return refuse(__func__, "page_size", size, "is given without pages",
                  fmt::format("kv_layout=paged:{}:nhd", std::clamp(size, 1, kMaxPageSize)));
  }
  if (size >= 1 && size <= kMaxPageSize) return {};
  KvLayout near = layout;
  near.page_size = std::clamp(size, 1, kMaxPageSize);
  return refuse(__func__, "kv_layout", print(layout),
                fmt::format("has a page size outside 1 to {}", kMaxPageSize),
                "kv_layout=" + print(near));
}

Verdict scale_fits_fp32(const Problem& problem, const Target&) {
  if (!problem.scale) return {};
  const double scale = *problem.scale;
  if (std::isfinite(scale) && std::fabs(scale) <= kLargestConstant) return {};
  return refuse(__func__, "scale", scale,
                fmt::format("is not a finite number up to {}", kLargestConstant),
                fmt::format("scale={}", 1 / std::sqrt(double(problem.dim_qk))));
}

Verdict softcap_fits_fp32(const Problem& problem, const Target&) {
  const double cap = problem.softcap;
  if (cap == 0 || (cap >= kSmallestSoftcap && cap <= kLargestConstant)) return {};
  return refuse(__func__, "softcap", cap,
                fmt::format("is neither 0 nor from {} to {}", kSmallestSoftcap, kLargestConstant),
                "softcap=0 (none) or softcap=50");
}

// kv_len is an int32 on the device, and so is kv_len - window: up to 2^30 neither can overflow.
Verdict window_is_in_range(const Problem& problem, const Target&) {
  return refuse_outside(__func__, "window", problem.window, 0, 1 << 30);
}

Verdict align_is_a_load_width(const Problem& problem, const Target&) {
  const int align = problem.align;
  if (align == 2 || align == 4 || align == 8 || align == 16) return {};
  return refuse(__func__, "align", align, "is none of 2, 4, 8, 16 bytes",
                "align=16, align=8, align=4 or align=2");
}

Verdict align_covers_an_element(const Problem& problem, const Target&) {
  const bool k_is_wider = size_bytes(problem.k_dtype) >= size_bytes(problem.v_dtype);
  const DType widest = k_is_wider ? problem.k_dtype : problem.v_dtype;
  if (problem.align >= size_bytes(widest)) return {};
  return refuse(
      __func__, "align", problem.align,
      fmt::format("is less than the {} bytes of a {} element", size_bytes(widest), name(widest)),
      fmt::format("align={}", size_bytes(widest)));
}

constexpr ProblemRule kTable[] = {
    {"target_architecture_is_supported", target_architecture_is_supported},
    {"target_facts_are_complete", target_facts_are_complete},
    {"target_vector_width_is_supported", target_vector_width_is_supported},
    {"kv_heads_are_in_range", kv_heads_are_in_range},
    {"q_heads_are_a_multiple_of_kv_heads", q_heads_are_a_multiple_of_kv_heads},
    {"head_dims_are_in_range", head_dims_are_in_range},
    {"head_dims_are_multiples_of_8", head_dims_are_multiples_of_8},
    {"query_len_is_one", query_len_is_one},
    {"page_size_is_in_range", page_size_is_in_range},
    {"scale_fits_fp32", scale_fits_fp32},
    {"softcap_fits_fp32", softcap_fits_fp32},
    {"window_is_in_range", window_is_in_range},
    {"align_is_a_load_width", align_is_a_load_width},
    {"align_covers_an_element", align_covers_an_element},
};

}  // namespace
}  // namespace rules

std::span<const ProblemRule> problem_rules() { return rules::kTable; }

std::optional<Refusal> verify(const Problem& problem, const Target& target) {
  for (const ProblemRule& rule : problem_rules())
    if (std::optional<Refusal> refusal = rule.check(problem, target)) return refusal;
  return std::nullopt;
}

}  // namespace splitkv
