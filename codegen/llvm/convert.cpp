#include "codegen/llvm/convert.hpp"

namespace splitkv::llvm_codegen {
namespace {

using ir::int_constant;
using ir::Value;

Value float_from_bf16(ir::Writer& w, const Value& bits, std::string_view hint) {
  const ir::Type i32{ir::Element::i32, bits.type.lanes};
  const Value upper = w.shift_left(w.cast("zext", bits, i32, "bits.wide"), 16, "bits.upper");
  return w.bitcast(upper, {ir::Element::f32, bits.type.lanes}, hint);
}

// Moved into fp32's fields, an fp16's exponent is too small by 112: one exact multiplication mends
// that for normal and subnormal numbers alike. Infinities and NaN get fp32's exponent instead.
Value float_from_fp16(ir::Writer& w, const Value& half_bits, std::string_view hint) {
  const ir::Type i32{ir::Element::i32, half_bits.type.lanes};
  const ir::Type f32{ir::Element::f32, half_bits.type.lanes};
  const Value bits = w.cast("zext", half_bits, i32, "bits.wide");
  const Value sign = w.shift_left(w.bit_and(bits, int_constant(i32, 0x8000), "sign"), 16, "sign");
  const Value size = w.shift_left(w.bit_and(bits, int_constant(i32, 0x7fff), "size"), 13, "size");
  const Value finite = w.bitcast(
      w.mul(w.bitcast(size, f32, "size.value"), ir::float_constant(f32, 0x1p112), "finite"), i32,
      "finite.bits");
  const Value special = w.bit_or(size, int_constant(i32, 0x7f800000), "special.bits");
  const Value is_special = w.compare("ge", size, int_constant(i32, 0x0f800000), "is.special");
  const Value merged = w.select(is_special, special, finite, "size.bits");
  return w.bitcast(w.bit_or(merged, sign, "value.bits"), f32, hint);
}

// Like fp16, with an exponent that is too small by 120; the only special value is NaN.
Value float_from_e4m3(ir::Writer& w, const Value& raw, std::string_view hint) {
  const ir::Type i32{ir::Element::i32, raw.type.lanes};
  const ir::Type f32{ir::Element::f32, raw.type.lanes};
  const Value bits = w.cast("zext", raw, i32, "bits.wide");
  const Value sign = w.shift_left(w.bit_and(bits, int_constant(i32, 0x80), "sign"), 24, "sign");
  const Value narrow = w.bit_and(bits, int_constant(i32, 0x7f), "size.narrow");
  const Value size = w.bitcast(w.shift_left(narrow, 20, "size"), f32, "size.value");
  const Value finite =
      w.bitcast(w.mul(size, ir::float_constant(f32, 0x1p120), "finite"), i32, "finite.bits");
  const Value is_nan = w.compare("eq", narrow, int_constant(i32, 0x7f), "is.nan");
  const Value merged = w.select(is_nan, int_constant(i32, 0x7fc00000), finite, "size.bits");
  return w.bitcast(w.bit_or(merged, sign, "value.bits"), f32, hint);
}

Value load_byte_elements(ir::Writer& w, DType dtype, bool native_half, const Value& raw,
                         std::string_view hint) {
  const int lanes = raw.type.lanes;
  const ir::Type f32{ir::Element::f32, lanes};
  if (dtype == DType::e4m3) return float_from_e4m3(w, raw, hint);
  if (dtype == DType::int8) {
    return w.cast("sitofp", w.cast("sext", raw, {ir::Element::i32, lanes}, "whole"), f32, hint);
  }
  // An e5m2 is the upper byte of an fp16.
  const Value wide = w.cast("zext", raw, {ir::Element::i16, lanes}, "half.low");
  const Value bits = w.shift_left(wide, 8, "half.bits");
  if (!native_half) return float_from_fp16(w, bits, hint);
  return w.cast("fpext", w.bitcast(bits, {ir::Element::half, lanes}, "half"), f32, hint);
}

// Adds just under half a unit of the last kept bit, or half when that bit is odd.
Value round_to_even(ir::Writer& w, const Value& bits, int dropped_bits) {
  const Value last =
      w.bit_and(w.shift_right(bits, dropped_bits, "kept"), int_constant(bits.type, 1), "last.kept");
  const Value half = int_constant(bits.type, (int64_t(1) << (dropped_bits - 1)) - 1);
  return w.add(w.add(bits, half, "rounded"), last, "rounded");
}

Value bf16_from_float(ir::Writer& w, const Value& value) {
  const ir::Type i32{ir::Element::i32, value.type.lanes};
  const Value bits = w.bitcast(value, i32, "value.bits");
  const Value rounded = w.shift_right(round_to_even(w, bits, 16), 16, "rounded.bits");
  const Value quiet =
      w.bit_or(w.shift_right(bits, 16, "nan.bits"), int_constant(i32, 0x40), "nan.quiet");
  const Value is_nan = w.compare("ne", value, value, "is.nan");
  return w.cast("trunc", w.select(is_nan, quiet, rounded, "bf16.wide"),
                {ir::Element::i16, value.type.lanes}, "bf16.bits");
}

Value fp16_from_float(ir::Writer& w, const Value& value) {
  const ir::Type i32{ir::Element::i32, value.type.lanes};
  const ir::Type f32{ir::Element::f32, value.type.lanes};
  const Value bits = w.bitcast(value, i32, "value.bits");
  const Value size = w.bit_and(bits, int_constant(i32, 0x7fffffff), "size.bits");
  const Value sign = w.shift_right(w.bit_xor(bits, size, "sign.wide"), 16, "sign.bits");
  const Value normal = w.shift_right(
      w.sub(round_to_even(w, size, 13), int_constant(i32, 112 << 23), "rebiased"), 13, "normal");
  // Beside 1/2 an fp32 has exactly the spacing of fp16's subnormals: the addition rounds.
  const Value half = ir::float_constant(f32, 0.5);
  const Value beside = w.add(w.bitcast(size, f32, "size.value"), half, "beside.half");
  const Value subnormal =
      w.sub(w.bitcast(beside, i32, "beside.bits"), int_constant(i32, 0x3f000000), "subnormal");
  // Below 2^-14; from 65520 on, which rounds to infinity; NaN.
  const Value is_small = w.compare("lt", size, int_constant(i32, 0x38800000), "is.subnormal");
  const Value is_large = w.compare("ge", size, int_constant(i32, 0x477ff000), "is.infinite");
  const Value is_nan = w.compare("gt", size, int_constant(i32, 0x7f800000), "is.nan");
  Value result = w.select(is_small, subnormal, normal, "fp16.finite");
  result = w.select(is_large, int_constant(i32, 0x7c00), result, "fp16.or.inf");
  result = w.select(is_nan, int_constant(i32, 0x7e00), result, "fp16.or.nan");
  return w.cast("trunc", w.bit_or(result, sign, "fp16.wide"), {ir::Element::i16, value.type.lanes},
                "fp16.bits");
}

}  // namespace

ir::Value emit_load_elements(ir::Writer& w, DType dtype, bool native_half, ir::Value address,
                             int lanes, int align, std::string_view hint) {
  const ir::Type f32{ir::Element::f32, lanes};
  if (dtype == DType::fp32) return w.load(f32, address, align, hint);
  const std::string raw_hint = std::string(hint) + ".raw";
  if (dtype == DType::fp16 && native_half) {
    const Value half = w.load({ir::Element::half, lanes}, address, align, raw_hint);
    return w.cast("fpext", half, f32, hint);
  }
  if (size_bytes(dtype) == 1) {
    const Value raw = w.load({ir::Element::i8, lanes}, address, align, raw_hint);
    return load_byte_elements(w, dtype, native_half, raw, hint);
  }
  const Value raw = w.load({ir::Element::i16, lanes}, address, align, raw_hint);
  return dtype == DType::bf16 ? float_from_bf16(w, raw, hint) : float_from_fp16(w, raw, hint);
}

void emit_store_elements(ir::Writer& w, DType dtype, bool native_half, ir::Value value,
                         ir::Value address, int align) {
  if (dtype == DType::bf16) value = bf16_from_float(w, value);
  if (dtype == DType::fp16) {
    value = native_half
                ? w.cast("fptrunc", value, {ir::Element::half, value.type.lanes}, "fp16.value")
                : fp16_from_float(w, value);
  }
  w.store(value, address, align);
}

}  // namespace splitkv::llvm_codegen
