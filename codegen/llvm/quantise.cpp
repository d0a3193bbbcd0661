#include "codegen/llvm/quantise.hpp"

#include "codegen/llvm/convert.hpp"
#include "compiler/append.hpp"

namespace splitkv::llvm_codegen {
namespace {

using ir::int_constant;
using ir::Value;

// How an 8-bit float sits in fp32's fields.
struct SmallFloat {
  int mantissa_bits;
  int64_t bias_less;  // how much smaller its exponents are, at fp32's place
  // Beside it an fp32 has exactly the spacing of the subnormals: the addition rounds.
  double beside;
  int64_t beside_bits;
};
constexpr SmallFloat kE4m3{3, int64_t(120) << 23, 16384, 0x46800000};
constexpr SmallFloat kE5m2{2, int64_t(112) << 23, 128, 0x43000000};

Value small_float_bits(ir::Writer& w, const SmallFloat& format, const Value& value) {
  const ir::Type i32{ir::Element::i32, value.type.lanes}, f32 = value.type;
  const int dropped = 23 - format.mantissa_bits;
  const Value bits = w.bitcast(value, i32, "value.bits");
  const Value size = w.bit_and(bits, int_constant(i32, 0x7fffffff), "size.bits");
  // Just under half a unit of the last kept bit, or half when that bit is odd.
  const Value odd =
      w.bit_and(w.shift_right(size, dropped, "kept"), int_constant(i32, 1), "last.kept");
  const Value half = int_constant(i32, (int64_t(1) << (dropped - 1)) - 1);
  const Value rounded = w.add(w.add(size, half, "rounded"), odd, "rounded");
  const Value normal = w.shift_right(
      w.sub(rounded, int_constant(i32, format.bias_less), "rebiased"), dropped, "code.normal");
  const Value beside =
      w.add(w.bitcast(size, f32, "size.value"), ir::float_constant(f32, format.beside), "beside");
  const Value subnormal = w.sub(w.bitcast(beside, i32, "beside.bits"),
                                int_constant(i32, format.beside_bits), "code.subnormal");
  const Value smallest = int_constant(i32, format.bias_less + (int64_t(1) << 23));
  const Value is_small = w.compare("lt", size, smallest, "is.subnormal");
  const Value is_nan = w.compare("gt", size, int_constant(i32, 0x7f800000), "is.nan");
  Value code = w.select(is_small, subnormal, normal, "code.finite");
  code = w.select(is_nan, int_constant(i32, 0x7f), code, "code.size");
  const Value sign =
      w.bit_and(w.shift_right(bits, 24, "sign.low"), int_constant(i32, 0x80), "sign");
  return w.bit_or(code, sign, "code");
}

// Beside 1.5 * 2^23 an fp32 has the spacing 1.
Value int8_bits(ir::Writer& w, const Value& value) {
  const ir::Type i32{ir::Element::i32, value.type.lanes};
  const Value beside = w.add(value, ir::float_constant(value.type, 0x1.8p23), "beside");
  const Value whole =
      w.sub(w.bitcast(beside, i32, "beside.bits"), int_constant(i32, 0x4b400000), "whole");
  const Value is_nan = w.compare("ne", value, value, "is.nan");
  return w.select(is_nan, int_constant(i32, 0), whole, "whole.or.0");
}

}  // namespace

// Where a comparison is unordered the second operand is kept.
Value emit_clamped(ir::Writer& w, DType dtype, Value value) {
  const Value low = ir::float_constant(value.type, smallest_finite(dtype));
  const Value high = ir::float_constant(value.type, largest_finite(dtype));
  return w.min(high, w.max(low, value, "clamped.below"), "clamped");
}

void emit_store_quantised(ir::Writer& w, DType dtype, bool native_half, Value value, Value address,
                          int align) {
  if (size_bytes(dtype) > 1) {
    emit_store_elements(w, dtype, native_half, value, address, align);
    return;
  }
  const Value wide = dtype == DType::int8
                         ? int8_bits(w, value)
                         : small_float_bits(w, dtype == DType::e4m3 ? kE4m3 : kE5m2, value);
  w.store(w.cast("trunc", wide, {ir::Element::i8, value.type.lanes}, "stored.bits"), address,
          align);
}

}  // namespace splitkv::llvm_codegen
