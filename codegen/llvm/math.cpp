#include "codegen/llvm/math.hpp"

#include <iterator>

namespace splitkv::llvm_codegen {
namespace {

using ir::float_constant;
using ir::int_constant;
using ir::Value;

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

// Chebyshev fits, lowest power first.
// (2^f - 1) / f on [-1/2, 1/2], error 4e-9.
constexpr double kExp2[] = {0.693147188026,   0.240226507606,   0.0555035711422,
                            0.00961808255728, 0.00133908633647, 0.000154531629451};
// (atanh(s) / s - 1) / s^2 as a polynomial in s^2, for s up to (sqrt 2 - 1) / (sqrt 2 + 1).
constexpr double kAtanh[] = {0.333333426749, 0.199943269691, 0.147928403873};
// (tanh(x) / x - 1) / x^2 as a polynomial in x^2, for x up to 5/8.
constexpr double kTanh[] = {-0.333333289441, 0.13332769737, -0.0538509095785, 0.0209971789991,
                            -0.00609671416591};

ir::Type integer_of(ir::Type type) { return {ir::Element::i32, type.lanes}; }

template <size_t N>
Value polynomial(ir::Writer& w, const double (&coefficients)[N], const Value& x) {
  Value sum = float_constant(x.type, coefficients[N - 1]);
  for (size_t i = N - 1; i-- > 0;) {
    sum = w.mul_add(sum, x, float_constant(x.type, coefficients[i]), "poly");
  }
  return sum;
}

// An fp32 whose low mantissa bits are the nearest integer to x, and that integer as a float. Adding
// 1.5 * 2^23 leaves no bits for a fraction.
struct Rounded {
  Value bits;
  Value value;
};
Rounded round_nearest(ir::Writer& w, const Value& x) {
  const Value magic = float_constant(x.type, 12582912.0);
  const Value shifted = w.add(x, magic, "rounding");
  return {w.bitcast(shifted, integer_of(x.type), "whole.bits"), w.sub(shifted, magic, "whole")};
}

// 2^(whole + fraction): the polynomial's exponent field grows by the whole part, whose low nine
// bits are all that a shift by 23 keeps.
Value scaled_exp2(ir::Writer& w, const Rounded& whole, const Value& fraction) {
  const Value one = float_constant(fraction.type, 1.0);
  const Value mantissa = w.mul_add(polynomial(w, kExp2, fraction), fraction, one, "mantissa");
  const Value bits = w.add(w.bitcast(mantissa, integer_of(fraction.type), "mantissa.bits"),
                           w.shift_left(whole.bits, 23, "exponent"), "power.bits");
  return w.bitcast(bits, fraction.type, "power");
}

Value zero_if(ir::Writer& w, const Value& condition, const Value& x) {
  return w.select(condition, float_constant(x.type, 0.0), x, "power.or.zero");
}

}  // namespace

Value emit_exp2_nonpositive(ir::Writer& w, Value x) {
  const Value lowest = float_constant(x.type, -126.0);
  const Value clamped = w.max(x, lowest, "exponent.clamped");
  const Rounded whole = round_nearest(w, clamped);
  const Value power = scaled_exp2(w, whole, w.sub(clamped, whole.value, "fraction"));
  return zero_if(w, w.compare("lt", x, lowest, "underflows"), power);
}

Value emit_exp2(ir::Writer& w, Value x) {
  const Value limit = float_constant(x.type, 128.0);
  const Value below = w.min(x, float_constant(x.type, 127.99999237060547), "exponent.below");
  const Value power = emit_exp2_nonpositive(w, below);
  return w.select(w.compare("ge", x, limit, "overflows"), ir::infinity(x.type, false), power,
                  "power.or.inf");
}

// x = whole * ln 2 + rest, with ln 2 in two parts of which the upper one has few enough bits that
// whole * upper is exact.
Value emit_exp(ir::Writer& w, Value x) {
  const Value lowest = float_constant(x.type, -87.33654022216797);
  const Value highest = float_constant(x.type, 88.72283172607422);
  const Value clamped = w.min(w.max(x, lowest, "exponent.clamped"), highest, "exponent.clamped");
  const Rounded whole =
      round_nearest(w, w.mul(clamped, float_constant(x.type, kLog2E), "exponent.log2"));
  const Value minus = w.neg(whole.value, "whole.negated");
  Value rest = w.mul_add(minus, float_constant(x.type, 0.693359375), clamped, "rest");
  rest = w.mul_add(minus, float_constant(x.type, kLn2 - 0.693359375), rest, "rest");
  const Value power =
      scaled_exp2(w, whole, w.mul(rest, float_constant(x.type, kLog2E), "fraction"));
  const Value bounded = w.select(w.compare("gt", x, highest, "overflows"),
                                 ir::infinity(x.type, false), power, "power.or.inf");
  return zero_if(w, w.compare("lt", x, lowest, "underflows"), bounded);
}

namespace {

// log(x) = exponent * ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), with m in [sqrt 1/2, sqrt 2).
struct LogParts {
  Value exponent;  // a whole number
  Value log_m;     // natural
};
LogParts log_parts(ir::Writer& w, const Value& x) {
  const ir::Type type = x.type, bits_type = integer_of(type);
  const Value tiny = w.compare("lt", x, float_constant(type, 1.1754943508222875e-38), "tiny");
  const Value scaled =
      w.select(tiny, w.mul(x, float_constant(type, 8388608.0), "lifted"), x, "normal");
  const Value bias =
      w.select(tiny, int_constant(bits_type, 23), int_constant(bits_type, 0), "lift");
  const Value bits = w.bitcast(scaled, bits_type, "bits");
  // Measured from sqrt(1/2), the exponent field counts the powers of two to take out.
  const Value from_half_root = w.sub(bits, int_constant(bits_type, 0x3f3504f3), "from.root");
  const Value powers = w.shift_right_signed(from_half_root, 23, "powers");
  const Value m =
      w.bitcast(w.sub(bits, w.shift_left(powers, 23, "powers.bits"), "m.bits"), type, "m");
  const Value one = float_constant(type, 1.0);
  const Value s = w.div(w.sub(m, one, "m.less"), w.add(m, one, "m.more"), "s");
  const Value square = w.mul(s, s, "s.square");
  const Value twice = w.add(s, s, "s.twice");
  const Value tail = w.mul(w.mul(polynomial(w, kAtanh, square), square, "tail"), twice, "tail");
  return {w.cast("sitofp", w.sub(powers, bias, "exponent"), type, "exponent.value"),
          w.add(twice, tail, "log.m")};
}

// The values a logarithm has outside the positive finite numbers.
Value log_at_edges(ir::Writer& w, const Value& x, Value log) {
  const Value zero = float_constant(x.type, 0.0);
  const Value inf = ir::infinity(x.type, false);
  log = w.select(w.compare("eq", x, inf, "is.inf"), inf, log, "log.or.inf");
  log = w.select(w.compare("eq", x, zero, "is.zero"), ir::infinity(x.type, true), log,
                 "log.or.minus.inf");
  const Value valid = w.compare("ge", x, zero, "is.valid");
  return w.select(valid, log, ir::not_a_number(x.type), "log.checked");
}

}  // namespace

Value emit_log2(ir::Writer& w, Value x) {
  const LogParts parts = log_parts(w, x);
  return log_at_edges(
      w, x, w.mul_add(parts.log_m, float_constant(x.type, kLog2E), parts.exponent, "log2"));
}

Value emit_log(ir::Writer& w, Value x) {
  const LogParts parts = log_parts(w, x);
  const Value low =
      w.mul_add(parts.exponent, float_constant(x.type, kLn2 - 0.693359375), parts.log_m, "log.low");
  return log_at_edges(w, x,
                      w.mul_add(parts.exponent, float_constant(x.type, 0.693359375), low, "log"));
}

// Near 0 an odd polynomial, so that small arguments keep their relative accuracy; elsewhere
// 1 - 2 / (e^(2|x|) + 1), whose quotient fades to 0 where the exponential overflows.
Value emit_tanh(ir::Writer& w, Value x) {
  const Value square = w.mul(x, x, "x.square");
  const Value one = float_constant(x.type, 1.0);
  const Value near =
      w.mul(x, w.mul_add(polynomial(w, kTanh, square), square, one, "near.factor"), "tanh.near");
  const Value size = w.abs(x, "x.size");
  const Value e = emit_exp(w, w.add(size, size, "x.twice"));
  const Value quotient = w.div(float_constant(x.type, 2.0), w.add(e, one, "e.more"), "quotient");
  const Value far = w.copy_sign(w.sub(one, quotient, "tanh.size"), x, "tanh.far");
  const Value is_near = w.compare("lt", size, float_constant(x.type, 0.625), "is.near");
  return w.select(is_near, near, far, "tanh");
}

// Where e^-x overflows the quotient fades to 0.
Value emit_sigmoid(ir::Writer& w, Value x) {
  const Value one = float_constant(x.type, 1.0);
  return w.div(one, w.add(one, emit_exp(w, w.neg(x, "x.negated")), "sigmoid.sum"), "sigmoid");
}

}  // namespace splitkv::llvm_codegen
