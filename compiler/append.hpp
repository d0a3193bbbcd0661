// Append: new keys and values of a step, written into the cache of a problem in the form that its
// attention kernels read. What such a kernel is made for is decided here, before code exists; of a
// problem only the memory form of its cache matters, so that many problems share one kernel.
//
// The meaning, the same on every target and bit for bit but for the bits of a NaN. v is a new
// element widened to fp32, s its scale, "rounded" is to nearest with ties to even:
//
//   quotient = v / s, rounded to fp32 (v itself without a scale)
//   stored   = quotient rounded to the cache's type
//   read     = stored * s, which is what attention makes of it
//
// Saturation: a finite v is never stored as an infinity; what is beyond the largest or smallest
// finite number of the type (of int8 127 and -128) becomes that number. Infinities stay what they
// are in fp32, fp16 and bf16, and saturate in e4m3, e5m2 and int8. NaN stays NaN; int8 has none and
// stores 0.
//
// Scales: `tensor` and `head` are given. `token` and `inline` are made of the row, the elements of
// one token and kv head: s = largest |v| / limit, rounded to fp32 and at least 2^-126, with
// infinities and NaN left out; 1 where that largest is 0. A row of int8 in which a NaN stands gets
// a scale of NaN, so that it does not go unnoticed. Types wider than 8 bits need no scale: theirs
// is 1.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"

namespace splitkv {

// How a call says where a new token goes.
enum class AppendPlaces {
  slots,  // a slot a token: block * tokens a block + place in it; negative: nowhere
  rows,   // token i of the n that batch row r brings stands at kv_len[r] - n + i
};

std::string_view name(AppendPlaces places);  // "slots", "rows"
std::optional<AppendPlaces> append_places_from_name(std::string_view);

// K or V as it lies in the cache.
struct AppendSide {
  DType dtype = DType::bf16;
  int dim = 128;
  KvScale scale = KvScale::none;

  bool operator==(const AppendSide&) const = default;
};

struct Append {
  DType new_dtype = DType::bf16;  // of the new elements: fp32, fp16 or bf16
  AppendPlaces places = AppendPlaces::slots;
  AppendSide k, v;
  bool v_in_k = false;  // V is part of K's rows: only K is written
  int kv_heads = 1;
  int page_size = 0;             // tokens a page; 0: contiguous
  bool separate_tables = false;  // K and V have pages of their own
  int align = 16;                // bytes: rows of the cache begin at multiples
  bool checked = false;          // guards against bad slots, page ids and lengths

  bool operator==(const Append&) const = default;
};

// A rule returns its refusal, or nothing when the fact holds.
struct AppendRule {
  const char* name;
  std::optional<Refusal> (*check)(const Problem&, DType new_dtype, AppendPlaces places);
};
std::span<const AppendRule> append_rules();

// The first refusal, or nothing. The problem must have passed the verifier.
std::optional<Refusal> verify_append(const Problem& problem, DType new_dtype, AppendPlaces places);

// Of a problem whose `checked` is on or off, verified.
Append append_of(const Problem& problem, DType new_dtype, AppendPlaces places);

// "append new=bf16 places=slots k=e4m3 v=e4m3 heads=8 dim=128 ...": for messages and emitted
// source.
std::string print(const Append& append);

// "splitkv_append_slots_bf16_e4m3_h8_d128", as profilers and debuggers show it: how places are
// said, the new type (then K's where it is another), kv heads, the dims of K (then V's where it is
// another).
std::string entry_name(const Append& append);

// What the largest element of a row is scaled to where append makes the scale; 0: scales are 1.
float scale_limit(DType type);

// The largest finite number of a type, and the smallest: the negative of it, or -128 of int8.
float largest_finite(DType type);
float smallest_finite(DType type);

// Whether append makes the side's scales and writes them.
constexpr bool writes_scale(const AppendSide& side) { return is_scale_of_key(side.scale); }

// Whether V's rows are found through slots or pages of their own.
constexpr bool has_own_places(const Append& append) {
  return !append.v_in_k && append.separate_tables;
}

// Elements that are stored at once: a power of two up to 4 that divides the row and keeps to the
// alignment class.
int append_width(const AppendSide& side, int align);

}  // namespace splitkv
