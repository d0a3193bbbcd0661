#include "codegen/llvm/append.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "codegen/append_source.hpp"
#include "codegen/llvm/append_places.hpp"
#include "codegen/llvm/convert.hpp"
#include "codegen/llvm/fields.hpp"
#include "codegen/llvm/finish.hpp"
#include "codegen/llvm/kernel_plan.hpp"
#include "codegen/llvm/quantise.hpp"

namespace splitkv {
namespace {

using namespace llvm_codegen;
using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

constexpr int kFloatBytes = 4;
constexpr double kSmallestNormal = 0x1p-126;

struct Strides {
  size_t block, head, token;
};

struct SideFields {
  size_t fresh, fresh_token, fresh_head;  // the new elements
  size_t cache;
  Strides strides;
  size_t scales;
  Strides scale_strides;
};

constexpr SideFields kKeys{
    offsetof(AppendArgs, k_new),
    offsetof(AppendArgs, k_new_stride_token),
    offsetof(AppendArgs, k_new_stride_head),
    offsetof(AppendArgs, k),
    {offsetof(AppendArgs, k_stride_block), offsetof(AppendArgs, k_stride_head),
     offsetof(AppendArgs, k_stride_token)},
    offsetof(AppendArgs, k_scale),
    {offsetof(AppendArgs, k_scale_stride_block), offsetof(AppendArgs, k_scale_stride_head),
     offsetof(AppendArgs, k_scale_stride_token)}};
constexpr SideFields kValues{
    offsetof(AppendArgs, v_new),
    offsetof(AppendArgs, v_new_stride_token),
    offsetof(AppendArgs, v_new_stride_head),
    offsetof(AppendArgs, v),
    {offsetof(AppendArgs, v_stride_block), offsetof(AppendArgs, v_stride_head),
     offsetof(AppendArgs, v_stride_token)},
    offsetof(AppendArgs, v_scale),
    {offsetof(AppendArgs, v_scale_stride_block), offsetof(AppendArgs, v_scale_stride_head),
     offsetof(AppendArgs, v_scale_stride_token)}};

struct RowContext {
  ir::Writer& w;
  DType new_dtype;
  AppendSide side;
  SideFields fields;
  std::string name;  // "k" or "v"
  int lanes;
  bool native_half;
  Value args, token, head;
  Value block, place;  // in the cache
  Value from;          // the new elements
};

// value[field] * factor
Value term(const RowContext& c, const Value& factor, size_t field, const std::string& name) {
  return c.w.mul(factor, emit_i64_arg(c.w, c.args, field, name + ".stride"), name + ".offset");
}

// Of an array over (block, head, token): the element of this row, in bytes of `size` each.
Value emit_at(const RowContext& c, size_t base, const Strides& strides, int size,
              const std::string& name) {
  ir::Writer& w = c.w;
  const Value in_block = term(c, c.block, strides.block, name + ".block");
  const Value in_head = term(c, c.head, strides.head, name + ".head");
  const Value in_token = term(c, c.place, strides.token, name + ".token");
  const Value elements =
      w.add(w.add(in_block, in_head, name + ".before"), in_token, name + ".elements");
  return w.byte_offset(emit_pointer_arg(w, c.args, base, name + ".all"),
                       w.mul(elements, i64_constant(size), name + ".bytes"), name + ".row");
}

Value emit_new_elements(const RowContext& c, const Value& first, int lanes) {
  ir::Writer& w = c.w;
  const int size = size_bytes(c.new_dtype);
  const Value at = w.byte_offset(c.from, w.mul(first, i64_constant(size), "new.bytes"), "new.at");
  return emit_load_elements(w, c.new_dtype, c.native_half, at, lanes, size, "new");
}

// Largest |v| / limit, at least 2^-126; 1 for a row of zeros. NaN for a row of int8 that has one.
Value emit_made_scale(const RowContext& c) {
  ir::Writer& w = c.w;
  if (size_bytes(c.side.dtype) > 1) return f32_constant(1);
  w.comment("the row's scale: infinities and NaN are left out");
  const ir::Type whole{ir::Element::f32, c.lanes};
  const Value largest_at = w.stack(whole, 1, 64, c.name + ".largest");
  const Value missing_at = w.stack(whole, 1, 64, c.name + ".missing");
  for (const Value& at : {largest_at, missing_at}) {
    w.store(ir::float_constant(whole, 0), at, 64);
  }
  emit_chunks(w, c.side.dim, c.lanes, [&](const Value& first, int lanes) {
    const Value value = emit_new_elements(c, first, lanes);
    const Value none = ir::float_constant(value.type, 0);
    const Value size = w.abs(value, "size");
    const Value most = ir::float_constant(value.type, largest_finite(DType::fp32));
    const Value kept = w.select(w.compare("le", size, most, "is.finite"), size, none, "size.kept");
    const auto collect = [&](const Value& more, const Value& at) {
      const Value so_far = w.load(whole, at, 64, "so_far");
      w.store(w.max(w.widen(more, c.lanes, "more"), so_far, "so_far.next"), at, 64);
    };
    collect(kept, largest_at);
    if (c.side.dtype != DType::int8) return;
    const Value is_nan = w.compare("ne", value, value, "is.nan");
    collect(w.select(is_nan, ir::float_constant(value.type, 1), none, "nan.counted"), missing_at);
  });
  const Value largest = w.max_lanes(w.load(whole, largest_at, 64, "largest.lanes"), "largest");
  const Value limit = f32_constant(scale_limit(c.side.dtype));
  const Value made =
      w.max(w.div(largest, limit, "scale.exact"), f32_constant(kSmallestNormal), "scale.made");
  const Value is_zero = w.compare("eq", largest, f32_constant(0), "row.is_zero");
  const Value scale = w.select(is_zero, f32_constant(1), made, "scale.or.1");
  if (c.side.dtype != DType::int8) return scale;
  const Value missing = w.max_lanes(w.load(whole, missing_at, 64, "missing.lanes"), "missing");
  const Value spoiled = w.compare("gt", missing, f32_constant(0), "row.has_nan");
  return w.select(spoiled, ir::not_a_number(ir::f32), scale, "scale.or.nan");
}

// The scale of the row, given or made and written.
Value emit_scale(const RowContext& c, const Value& to) {
  ir::Writer& w = c.w;
  if (!writes_scale(c.side)) {
    const Value all = emit_pointer_arg(w, c.args, c.fields.scales, c.name + ".scales");
    const Value index = c.side.scale == KvScale::head ? c.head : i64_constant(0);
    return w.load(ir::f32, w.element(all, ir::f32, index, c.name + ".scale.at"), kFloatBytes,
                  c.name + ".scale");
  }
  const Value scale = emit_made_scale(c);
  const bool inside = c.side.scale == KvScale::inl;
  const Value at =
      inside ? w.byte_offset(to, i64_constant(int64_t(c.side.dim) * size_bytes(c.side.dtype)),
                             c.name + ".scale.at")
             : emit_at(c, c.fields.scales, c.fields.scale_strides, kFloatBytes, c.name + ".scale");
  w.store(scale, at, inside ? 1 : kFloatBytes);
  return scale;
}

// Infinities that were given stay in types that have them.
Value emit_saturated(const RowContext& c, const Value& value, const Value& quotient) {
  ir::Writer& w = c.w;
  const Value clamped = emit_clamped(w, c.side.dtype, quotient);
  if (size_bytes(c.side.dtype) == 1) return clamped;
  const Value most = ir::float_constant(value.type, largest_finite(DType::fp32));
  const Value finite = w.compare("le", w.abs(value, "size"), most, "is.finite");
  return w.select(finite, clamped, quotient, "saturated");
}

void emit_row(RowContext c) {
  ir::Writer& w = c.w;
  w.comment("one row of " + c.name);
  const Value first =
      w.add(term(c, c.token, c.fields.fresh_token, c.name + ".new.token"),
            term(c, c.head, c.fields.fresh_head, c.name + ".new.head"), c.name + ".new.elements");
  c.from = w.byte_offset(emit_pointer_arg(w, c.args, c.fields.fresh, c.name + ".new.all"),
                         w.mul(first, i64_constant(size_bytes(c.new_dtype)), c.name + ".new.bytes"),
                         c.name + ".new.row");
  const int size = size_bytes(c.side.dtype);
  const Value to = emit_at(c, c.fields.cache, c.fields.strides, size, c.name);
  Value scale;
  if (c.side.scale != KvScale::none) scale = emit_scale(c, to);
  const bool divides =
      c.side.scale != KvScale::none && !(writes_scale(c.side) && size_bytes(c.side.dtype) > 1);
  emit_chunks(w, c.side.dim, c.lanes, [&](const Value& at, int lanes) {
    const Value value = emit_new_elements(c, at, lanes);
    const Value quotient = divides ? w.div(value, scale, "quotient") : value;
    const Value place =
        w.byte_offset(to, w.mul(at, i64_constant(size), "to.bytes"), c.name + ".to");
    emit_store_quantised(w, c.side.dtype, c.native_half, emit_saturated(c, value, quotient), place,
                         size);
  });
}

struct TokenContext {
  ir::Writer& w;
  const Append& append;
  int lanes;
  bool native_half;
  Value args, token, where;
};

// All heads of a side, where the token has a place.
void emit_side(const TokenContext& c, bool is_v) {
  ir::Writer& w = c.w;
  const auto field = [&](AppendPlaceField number, const char* name) {
    return w.load(ir::i64, w.element(c.where, ir::i64, i64_constant(number), "place.at"), 8, name);
  };
  const std::string name = is_v ? "v" : "k";
  const Value exists = w.compare("ne", field(kPlaceExists, "exists"), i64_constant(0), "is.placed");
  w.when(exists, name + ".rows", [&] {
    const Value block = field(kPlaceBlock, "block"), place = field(kPlaceToken, "place");
    w.loop(name + ".head", i64_constant(0), i64_constant(c.append.kv_heads), i64_constant(1),
           [&](const Value& head) {
             emit_row({w,
                       c.append.new_dtype,
                       is_v ? c.append.v : c.append.k,
                       is_v ? kValues : kKeys,
                       name,
                       c.lanes,
                       c.native_half,
                       c.args,
                       c.token,
                       head,
                       block,
                       place,
                       {}});
           });
  });
}

void emit_token(const TokenContext& c) {
  c.w.call("place_k", {c.args, c.token, c.where});
  emit_side(c, false);
  if (c.append.v_in_k) return;
  if (has_own_places(c.append)) c.w.call("place_v", {c.args, c.token, c.where});
  emit_side(c, true);
}

}  // namespace

KernelSource emit_append_llvm(const Append& append, const Target& target) {
  KernelSource source;
  source.language = SourceLanguage::llvm_ir;
  source.split_entry = entry_name(append);
  ir::Writer w;
  w.header(fmt::format("{} | {}", print(append), print(target)));
  emit_report_function(w, offsetof(AppendArgs, errors));
  emit_append_place_functions(w, append);
  const std::vector<Value> p = w.begin_function("", source.split_entry,
                                                {{ir::pointer, "args", "noalias readonly"},
                                                 {ir::i64, "first_token", ""},
                                                 {ir::i64, "end_token", ""}});
  const Value where = w.stack(ir::i64, kPlaceFields, 8, "where");
  w.store(i64_constant(0), w.element(where, ir::i64, i64_constant(kPlaceRow), "row.kept.to"), 8);
  const Value counter = emit_pointer_arg(w, p[0], offsetof(AppendArgs, token_count), "count");
  const Value end = w.choose(
      emit_is_null(w, counter, "count.none"), "end", [&] { return p[2]; },
      [&] { return w.min(p[2], emit_i32_element(w, counter, i64_constant(0), "tokens"), "held"); });
  w.loop("token", p[1], end, i64_constant(1), [&](const Value& token) {
    emit_token({w, append, target.vector_bits / 32, converts_half(target), p[0], token, where});
  });
  w.end_function();
  source.text = w.finish(
      fmt::format("nounwind \"prefer-vector-width\"=\"{0}\" \"min-legal-vector-width\"=\"{0}\"",
                  target.vector_bits));
  return source;
}

}  // namespace splitkv
