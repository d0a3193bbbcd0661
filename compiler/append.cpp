#include "compiler/append.hpp"

#include <fmt/format.h>

#include <cassert>
#include <limits>

#include "compiler/text.hpp"
#include "compiler/verifier_rules.hpp"

namespace splitkv {
namespace rules {
namespace {

Verdict append_type_is_floating(const Problem&, DType new_dtype, AppendPlaces) {
  if (size_bytes(new_dtype) >= 2) return {};
  return refuse(__func__, "type", name(new_dtype),
                "is none of fp32, fp16, bf16: append makes the 8-bit elements itself", "type=bf16");
}

// The shard that a key belongs to depends on its position among all shards, which kv_len is not.
Verdict append_rows_are_contiguous(const Problem& problem, DType, AppendPlaces places) {
  if (places != AppendPlaces::rows || !problem.strided_positions) return {};
  return refuse(__func__, "places", name(places),
                "counts from kv_len, which with positions=strided is the length of one shard",
                "places=slots");
}

constexpr AppendRule kTable[] = {
    {"append_type_is_floating", append_type_is_floating},
    {"append_rows_are_contiguous", append_rows_are_contiguous},
};

}  // namespace
}  // namespace rules

std::string_view name(AppendPlaces places) {
  return places == AppendPlaces::slots ? "slots" : "rows";
}

std::optional<AppendPlaces> append_places_from_name(std::string_view text) {
  for (const AppendPlaces places : {AppendPlaces::slots, AppendPlaces::rows})
    if (text == name(places)) return places;
  return std::nullopt;
}

std::span<const AppendRule> append_rules() { return rules::kTable; }

std::optional<Refusal> verify_append(const Problem& problem, DType new_dtype, AppendPlaces places) {
  for (const AppendRule& rule : append_rules())
    if (std::optional<Refusal> refusal = rule.check(problem, new_dtype, places)) return refusal;
  return std::nullopt;
}

Append append_of(const Problem& problem, DType new_dtype, AppendPlaces places) {
  assert(problem.checked != Checked::automatic && !verify_append(problem, new_dtype, places));
  Append append;
  append.new_dtype = new_dtype;
  append.places = places;
  append.k = {problem.k_dtype, problem.dim_qk, problem.k_scale};
  append.v_in_k = problem.v_in_k;
  append.v =
      problem.v_in_k ? append.k : AppendSide{problem.v_dtype, problem.dim_v, problem.v_scale};
  append.kv_heads = problem.kv_heads;
  append.page_size = problem.kv_layout.page_size;
  append.separate_tables = problem.separate_tables;
  append.align = problem.align;
  append.checked = problem.checked == Checked::on;
  return append;
}

std::string print(const Append& append) {
  std::string text = fmt::format("append new={} places={} heads={}", name(append.new_dtype),
                                 name(append.places), append.kv_heads);
  const auto print_side = [&](const char* which, const AppendSide& side) {
    text += fmt::format(" {0}={1} {0}_dim={2}", which, name(side.dtype), side.dim);
    if (side.scale != KvScale::none) text += fmt::format(" {}_scale={}", which, name(side.scale));
  };
  print_side("k", append.k);
  if (append.v_in_k) {
    text += " v_in_k=on";
  } else {
    print_side("v", append.v);
  }
  if (append.page_size > 0) text += fmt::format(" page={}", append.page_size);
  if (append.separate_tables) text += " page_tables=separate";
  if (append.align != 16) text += fmt::format(" align={}", append.align);
  if (append.checked) text += " checked=on";
  return text;
}

std::string entry_name(const Append& append) {
  std::string text =
      fmt::format("splitkv_append_{}_{}", name(append.places), name(append.new_dtype));
  if (append.k.dtype != append.new_dtype) text += fmt::format("_{}", name(append.k.dtype));
  text += fmt::format("_h{}_d{}", append.kv_heads, append.k.dim);
  if (append.v.dim != append.k.dim) text += fmt::format("x{}", append.v.dim);
  return text;
}

float scale_limit(DType type) {
  return size_bytes(type) > 1 ? 0.0f : type == DType::int8 ? 127.0f : largest_finite(type);
}

float largest_finite(DType type) {
  switch (type) {
    case DType::fp32:
      return std::numeric_limits<float>::max();
    case DType::fp16:
      return 65504.0f;
    case DType::bf16:
      return 0x1.fep127f;
    case DType::e4m3:
      return 448.0f;
    case DType::e5m2:
      return 57344.0f;
    case DType::int8:
      return 127.0f;
  }
  assert(!"unknown dtype");
  return 0;
}

float smallest_finite(DType type) { return type == DType::int8 ? -128.0f : -largest_finite(type); }

int append_width(const AppendSide& side, int align) {
  int width = 4;
  while (width > 1 && (side.dim % width != 0 || width * size_bytes(side.dtype) > align)) width /= 2;
  return width;
}

}  // namespace splitkv
