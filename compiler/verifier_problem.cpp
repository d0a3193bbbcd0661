#include <algorithm>
#include <charconv>
#include <cmath>

#include "compiler/arithmetic.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {
namespace {

constexpr int kMaxHeads = 65536;
constexpr int kMaxPageSize = 65536;
constexpr int kSmallestDim = 8;
constexpr int kLargestDim = 576;
constexpr int kMaxQueryLen = 64;
constexpr int kMaxQueryRows = 65536;
constexpr int kMaxKeys = 1 << 30;
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

bool is_floating(DType type) { return size_bytes(type) >= 2; }

// q is what dots are made of and out what they become: 8 bits would lose both.
Verdict q_is_floating(const Problem& problem, const Target&) {
  if (is_floating(problem.q_dtype)) return {};
  return refuse(__func__, "q", name(problem.q_dtype), "is none of fp32, fp16, bf16", "q=bf16");
}

Verdict out_is_floating(const Problem& problem, const Target&) {
  if (is_floating(problem.out_dtype)) return {};
  return refuse(__func__, "out", name(problem.out_dtype), "is none of fp32, fp16, bf16, partial",
                "out=bf16");
}

Verdict head_dims_are_in_range(const Problem& problem, const Target&) {
  const int low = std::min(problem.dim_qk, problem.dim_v);
  if (low < kSmallestDim) return refuse_outside(__func__, "dim", low, kSmallestDim, kLargestDim);
  const int high = std::max(problem.dim_qk, problem.dim_v);
  return refuse_outside(__func__, "dim", high, kSmallestDim, kLargestDim);
}

// Refuses a dim that is not a multiple of `unit` and offers the next one.
Verdict refuse_dim(const char* rule, int dim, int unit, const std::string& why) {
  if (dim % unit == 0) return {};
  return refuse(rule, "dim", dim, fmt::format("is not a multiple of {}{}", unit, why),
                fmt::format("dim={}", round_up(dim, unit)));
}

// Elements are handled in pairs, which fill at least 4 bytes of the 16-bit types.
Verdict head_dims_are_even(const Problem& problem, const Target&) {
  if (Verdict qk = refuse_dim(__func__, problem.dim_qk, 2, "")) return qk;
  return refuse_dim(__func__, problem.dim_v, 2, "");
}

Verdict rows_of_8_bit_types_are_whole_words(const Problem& problem, const Target&) {
  const auto check = [](int dim, DType type) -> Verdict {
    if (size_bytes(type) != 1) return {};
    return refuse_dim("rows_of_8_bit_types_are_whole_words", dim, 4,
                      fmt::format(" as {} needs", name(type)));
  };
  if (Verdict k = check(problem.dim_qk, problem.k_dtype)) return k;
  return check(problem.dim_v, problem.v_dtype);
}

Verdict q_rope_is_a_part_of_q(const Problem& problem, const Target&) {
  const int rope = problem.dim_rope;
  if (rope >= 0 && rope < problem.dim_qk && rope % 2 == 0) return {};
  return refuse(__func__, "q_rope", rope,
                fmt::format("is not an even number from 0 to {}", problem.dim_qk - 2),
                fmt::format("q_rope={}", std::clamp(rope, 0, problem.dim_qk - 2) / 2 * 2));
}

// ---- V within K ---------------------------------------------------------------------------------

Verdict v_in_k_has_the_type_of_k(const Problem& problem, const Target&) {
  if (!problem.v_in_k || problem.v_dtype == problem.k_dtype) return {};
  return refuse(
      __func__, "v", name(problem.v_dtype),
      fmt::format("is not the type of K, {}, whose rows v_in_k=on reads", name(problem.k_dtype)),
      fmt::format("v={}", name(problem.k_dtype)));
}

Verdict v_in_k_is_not_wider_than_k(const Problem& problem, const Target&) {
  if (!problem.v_in_k || problem.dim_v <= problem.dim_qk) return {};
  return refuse(__func__, "dim", fmt::format("{}/{}", problem.dim_qk, problem.dim_v),
                "has a V that is wider than the rows of K, where v_in_k=on puts it",
                fmt::format("dim={}/{}", problem.dim_qk, problem.dim_qk));
}

Verdict v_in_k_has_the_scale_of_k(const Problem& problem, const Target&) {
  if (!problem.v_in_k || problem.v_scale == problem.k_scale) return {};
  return refuse(__func__, "v_scale", name(problem.v_scale),
                fmt::format("is not K's, {}, which v_in_k=on shares", name(problem.k_scale)),
                fmt::format("v_scale={}", name(problem.k_scale)));
}

Verdict v_in_k_has_the_pages_of_k(const Problem& problem, const Target&) {
  if (!problem.v_in_k || !problem.separate_tables) return {};
  return refuse(__func__, "page_tables", "separate",
                "gives V pages of its own, which v_in_k=on rules out", "page_tables=shared");
}

// ---- queries and pages --------------------------------------------------------------------------

Verdict query_len_is_in_range(const Problem& problem, const Target&) {
  return refuse_outside(__func__, "query_len", problem.query_len, 1, kMaxQueryLen);
}

Verdict query_rows_are_in_range(const Problem& problem, const Target&) {
  const int64_t rows = int64_t(group_size(problem)) * problem.query_len;
  if (rows <= kMaxQueryRows) return {};
  return refuse(__func__, "query_len", problem.query_len,
                fmt::format("makes {} query rows of a kv head, above {}", rows, kMaxQueryRows),
                fmt::format("query_len={}", kMaxQueryRows / group_size(problem)));
}

Verdict separate_tables_have_pages(const Problem& problem, const Target&) {
  if (!problem.separate_tables || is_paged(problem)) return {};
  return refuse(__func__, "page_tables", "separate", "is given without pages",
                "page_tables=shared or kv_layout=paged:16:nhd");
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

// Positions are int32 on the device: less than 2^30 either way they cannot overflow.
Verdict window_is_in_range(const Problem& problem, const Target&) {
  return refuse_outside(__func__, "window", problem.window, 0, kMaxKeys);
}

Verdict chunk_is_in_range(const Problem& problem, const Target&) {
  return refuse_outside(__func__, "chunk", problem.chunk, 0, kMaxKeys);
}

Verdict bias_is_fp32_or_fp16(const Problem& problem, const Target&) {
  if (!problem.bias || *problem.bias == DType::fp32 || *problem.bias == DType::fp16) return {};
  return refuse(__func__, "bias", name(*problem.bias), "is neither fp32 nor fp16", "bias=fp16");
}

// The bits of a tree belong to the newest keys of the row, which a shard may not hold.
Verdict tree_keys_are_contiguous(const Problem& problem, const Target&) {
  if (problem.mask != Mask::tree || !problem.strided_positions) return {};
  return refuse(__func__, "positions", "strided", "leaves the keys of mask=tree on several shards",
                "positions=contiguous or mask=causal");
}

Verdict partial_is_fp32(const Problem& problem, const Target&) {
  if (!problem.out_partial || problem.out_dtype == DType::fp32) return {};
  return refuse(__func__, "out", name(problem.out_dtype), "is not the fp32 of a partial",
                "out=partial");
}

// A sink belongs to a row once, and partials of one row are many.
Verdict partial_has_no_sink(const Problem& problem, const Target&) {
  if (!problem.out_partial || !problem.sink) return {};
  return refuse(__func__, "sink", "on", "would count once for every partial of out=partial",
                "sink=off");
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

// The scale follows the elements of its row, so it lies as the row does.
Verdict inline_scale_is_aligned(const Problem& problem, const Target&) {
  const bool inline_scale = problem.k_scale == KvScale::inl || problem.v_scale == KvScale::inl;
  if (!inline_scale || problem.align >= 4) return {};
  return refuse(__func__, "align", problem.align, "is less than the 4 bytes of an inline scale",
                "align=4");
}

constexpr ProblemRule kTable[] = {
    {"target_architecture_is_supported", target_architecture_is_supported},
    {"target_facts_are_complete", target_facts_are_complete},
    {"target_vector_width_is_supported", target_vector_width_is_supported},
    {"kv_heads_are_in_range", kv_heads_are_in_range},
    {"q_heads_are_a_multiple_of_kv_heads", q_heads_are_a_multiple_of_kv_heads},
    {"q_is_floating", q_is_floating},
    {"out_is_floating", out_is_floating},
    {"head_dims_are_in_range", head_dims_are_in_range},
    {"head_dims_are_even", head_dims_are_even},
    {"rows_of_8_bit_types_are_whole_words", rows_of_8_bit_types_are_whole_words},
    {"q_rope_is_a_part_of_q", q_rope_is_a_part_of_q},
    {"v_in_k_has_the_type_of_k", v_in_k_has_the_type_of_k},
    {"v_in_k_is_not_wider_than_k", v_in_k_is_not_wider_than_k},
    {"v_in_k_has_the_scale_of_k", v_in_k_has_the_scale_of_k},
    {"v_in_k_has_the_pages_of_k", v_in_k_has_the_pages_of_k},
    {"query_len_is_in_range", query_len_is_in_range},
    {"query_rows_are_in_range", query_rows_are_in_range},
    {"page_size_is_in_range", page_size_is_in_range},
    {"separate_tables_have_pages", separate_tables_have_pages},
    {"scale_fits_fp32", scale_fits_fp32},
    {"softcap_fits_fp32", softcap_fits_fp32},
    {"window_is_in_range", window_is_in_range},
    {"chunk_is_in_range", chunk_is_in_range},
    {"bias_is_fp32_or_fp16", bias_is_fp32_or_fp16},
    {"tree_keys_are_contiguous", tree_keys_are_contiguous},
    {"partial_is_fp32", partial_is_fp32},
    {"partial_has_no_sink", partial_has_no_sink},
    {"align_is_a_load_width", align_is_a_load_width},
    {"align_covers_an_element", align_covers_an_element},
    {"inline_scale_is_aligned", inline_scale_is_aligned},
    {"params_are_few", params_are_few},
    {"param_names_are_new_words", param_names_are_new_words},
    {"param_names_differ", param_names_differ},
    {"expressions_are_short", expressions_are_short},
    {"expressions_are_in_text_order", expressions_are_in_text_order},
    {"expressions_use_what_is_there", expressions_use_what_is_there},
    {"predicate_does_not_use_score", predicate_does_not_use_score},
    {"expression_constants_fit_fp32", expression_constants_fit_fp32},
    {"floor_division_is_of_whole_numbers", floor_division_is_of_whole_numbers},
    {"whole_numbers_fit_64_bits", whole_numbers_fit_64_bits},
    {"negative_numbers_are_numbers", negative_numbers_are_numbers},
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
