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

// fp64. Where the interval is this small, Taylor series are as short as fits of the same error.
// (e^r - 1 - r) / r^2 for |r| up to ln 2 / 2: 1 / 2!, 1 / 3!, ...; the next term is below 5e-18.
constexpr double kExpDouble[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                 1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
// As kAtanh; the next term is below 1e-17 of s.
constexpr double kAtanhDouble[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                   1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};

bool is_double(const Value& x) { return x.type.element == ir::Element::f64; }

int mantissa_bits(const Value& x) { return is_double(x) ? 52 : 23; }

// Above ln 2 and below: the upper part has so few bits that its product with any exponent is exact.
double upper_ln2(const Value& x) { return is_double(x) ? 0x1.62e42fefp-1 : 0.693359375; }
double lower_ln2(const Value& x) {
  return is_double(x) ? 7.440617110012397e-11 : kLn2 - 0.693359375;
}

ir::Type integer_of(ir::Type type) {
  const bool wide = type.element == ir::Element::f64;
  return {wide ? ir::Element::i64 : ir::Element::i32, type.lanes};
}

template <size_t N>
Value polynomial(ir::Writer& w, const double (&coefficients)[N], const Value& x) {
  Value sum = float_constant(x.type, coefficients[N - 1]);
  for (size_t i = N - 1; i-- > 0;) {
    sum = w.mul_add(sum, x, float_constant(x.type, coefficients[i]), "poly");
  }
  return sum;
}

// 1.5 * 2^23, or 2^52 of fp64: added to a small number it leaves no bits for a fraction.
Value magic_of(const Value& x) {
  return float_constant(x.type, is_double(x) ? 0x1.8p52 : 0x1.8p23);
}

// A float whose low mantissa bits are the nearest integer to x, and that integer as a float.
struct Rounded {
  Value bits;
  Value value;
};
Rounded round_nearest(ir::Writer& w, const Value& x) {
  const Value magic = magic_of(x);
  const Value shifted = w.add(x, magic, "rounding");
  return {w.bitcast(shifted, integer_of(x.type), "whole.bits"), w.sub(shifted, magic, "whole")};
}

// mantissa * 2^whole: its exponent field grows by the whole part, of which the shift keeps as many
// bits as the field and the sign have.
Value scaled(ir::Writer& w, const Rounded& whole, const Value& mantissa) {
  const Value bits =
      w.add(w.bitcast(mantissa, integer_of(mantissa.type), "mantissa.bits"),
            w.shift_left(whole.bits, mantissa_bits(mantissa), "exponent"), "power.bits");
  return w.bitcast(bits, mantissa.type, "power");
}

// 2^(whole + fraction).
Value scaled_exp2(ir::Writer& w, const Rounded& whole, const Value& fraction) {
  const Value one = float_constant(fraction.type, 1.0);
  return scaled(w, whole, w.mul_add(polynomial(w, kExp2, fraction), fraction, one, "mantissa"));
}

// x = whole * ln 2 + rest.
struct Reduced {
  Rounded whole;
  Value rest;
};
Reduced by_ln2(ir::Writer& w, const Value& x) {
  const Rounded whole = round_nearest(w, w.mul(x, float_constant(x.type, kLog2E), "exponent.log2"));
  const Value minus = w.neg(whole.value, "whole.negated");
  const Value rest = w.mul_add(minus, float_constant(x.type, upper_ln2(x)), x, "rest");
  return {whole, w.mul_add(minus, float_constant(x.type, lower_ln2(x)), rest, "rest")};
}

// fp64: e^r - 1 for |r| up to ln 2 / 2.
Value exp_less_one(ir::Writer& w, const Value& r) {
  const Value square = w.mul(r, r, "rest.square");
  return w.mul_add(polynomial(w, kExpDouble, r), square, r, "power.less_one");
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

Value emit_exp(ir::Writer& w, Value x) {
  const Value lowest =
      float_constant(x.type, is_double(x) ? -708.396418532264 : -87.33654022216797);
  const Value highest = float_constant(x.type, is_double(x) ? 709.782712893384 : 88.72283172607422);
  const Value clamped = w.min(w.max(x, lowest, "exponent.clamped"), highest, "exponent.clamped");
  const auto [whole, rest] = by_ln2(w, clamped);
  const Value power =
      is_double(x)
          ? scaled(w, whole, w.add(exp_less_one(w, rest), float_constant(x.type, 1.0), "mantissa"))
          : scaled_exp2(w, whole, w.mul(rest, float_constant(x.type, kLog2E), "fraction"));
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
// An integer far below 2^51 as a float. x86 converts vectors of i64 only from AVX-512 on; elsewhere
// it is put into the mantissa of 1.5 * 2^52.
Value small_integer(ir::Writer& w, const Value& x, ir::Type type) {
  if (type.element != ir::Element::f64) return w.cast("sitofp", x, type, "exponent.value");
  const Value magic_bits = int_constant(x.type, 0x4338000000000000);
  const Value shifted = w.bitcast(w.add(x, magic_bits, "exponent.bits"), type, "exponent.shifted");
  return w.sub(shifted, float_constant(type, 0x1.8p52), "exponent.value");
}

LogParts log_parts(ir::Writer& w, const Value& x) {
  const ir::Type type = x.type, bits_type = integer_of(type);
  const int width = mantissa_bits(x);
  const Value smallest = float_constant(type, is_double(x) ? 0x1p-1022 : 0x1p-126);
  const Value tiny = w.compare("lt", x, smallest, "tiny");
  const Value normal = w.select(
      tiny, w.mul(x, float_constant(type, double(int64_t(1) << width)), "lifted"), x, "normal");
  const Value bias =
      w.select(tiny, int_constant(bits_type, width), int_constant(bits_type, 0), "lift");
  const Value bits = w.bitcast(normal, bits_type, "bits");
  // Measured from sqrt(1/2), the exponent field counts the powers of two to take out.
  const int64_t half_root = is_double(x) ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  const Value from_half_root = w.sub(bits, int_constant(bits_type, half_root), "from.root");
  const Value powers = w.shift_right_signed(from_half_root, width, "powers");
  const Value m =
      w.bitcast(w.sub(bits, w.shift_left(powers, width, "powers.bits"), "m.bits"), type, "m");
  const Value one = float_constant(type, 1.0);
  const Value s = w.div(w.sub(m, one, "m.less"), w.add(m, one, "m.more"), "s");
  const Value square = w.mul(s, s, "s.square");
  const Value twice = w.add(s, s, "s.twice");
  const Value series =
      is_double(x) ? polynomial(w, kAtanhDouble, square) : polynomial(w, kAtanh, square);
  const Value tail = w.mul(w.mul(series, square, "tail"), twice, "tail");
  return {small_integer(w, w.sub(powers, bias, "exponent"), type), w.add(twice, tail, "log.m")};
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
      w.mul_add(parts.exponent, float_constant(x.type, lower_ln2(x)), parts.log_m, "log.low");
  return log_at_edges(w, x,
                      w.mul_add(parts.exponent, float_constant(x.type, upper_ln2(x)), low, "log"));
}

// With e = e^(2|x|) - 1 it is e / (e + 2), which keeps the relative accuracy of e near 0; at 20 it
// is 1.
Value tanh_double(ir::Writer& w, const Value& x) {
  const Value one = float_constant(x.type, 1.0), two = float_constant(x.type, 2.0);
  const Value size = w.min(w.abs(x, "x.size"), float_constant(x.type, 20.0), "x.clamped");
  const auto [whole, rest] = by_ln2(w, w.add(size, size, "x.twice"));
  const Value power = scaled(w, whole, one);
  const Value e = w.mul_add(power, exp_less_one(w, rest), w.sub(power, one, "power.less"), "e");
  return w.copy_sign(w.div(e, w.add(e, two, "e.more"), "tanh.size"), x, "tanh");
}

// Near 0 an odd polynomial, so that small arguments keep their relative accuracy; elsewhere
// 1 - 2 / (e^(2|x|) + 1), whose quotient fades to 0 where the exponential overflows.
Value emit_tanh(ir::Writer& w, Value x) {
  if (is_double(x)) return tanh_double(w, x);
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
