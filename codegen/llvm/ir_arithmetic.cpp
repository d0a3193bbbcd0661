// The arithmetic half of the IR writer: types, constants, and operations on scalars and vectors.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "codegen/llvm/ir_writer.hpp"

namespace splitkv::ir {

std::string print(Type type) {
  static constexpr const char* names[] = {"i1",   "i8",    "i16",    "i32", "i64",
                                          "half", "float", "double", "ptr"};
  const char* scalar = names[int(type.element)];
  return type.lanes ? fmt::format("<{} x {}>", type.lanes, scalar) : scalar;
}

bool is_float(Type type) {
  return type.element == Element::half || type.element == Element::f32 ||
         type.element == Element::f64;
}

int element_bytes(Element element) {
  static constexpr int bytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 8};
  return bytes[int(element)];
}

namespace {

Value constant_of(Type type, const std::string& scalar) {
  if (type.lanes == 0) return {type, scalar};
  return {type, fmt::format("splat ({} {})", print({type.element}), scalar)};
}

bool is_zero(const Value& value) { return value.text == "0"; }
bool is_one(const Value& value) { return value.text == "1"; }

// Both operands with the lanes of the wider one.
void match(Writer& writer, Value& a, Value& b) {
  const int lanes = std::max(a.type.lanes, b.type.lanes);
  a = writer.splat(a, lanes);
  b = writer.splat(b, lanes);
  assert(a.type == b.type);
}

std::string shuffle_mask(const std::vector<int>& lanes) {
  std::string text = fmt::format("<{} x i32> <", lanes.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    text += fmt::format("{}i32 {}", i ? ", " : "", lanes[i]);
  }
  return text + ">";
}

}  // namespace

Value int_constant(Type type, int64_t value) {
  if (type.element == Element::i1) return constant_of(type, value ? "true" : "false");
  return constant_of(type, fmt::format("{}", value));
}

Value float_constant(Type type, double value) {
  if (type.element == Element::f32) value = float(value);
  // LLVM takes decimals only where they are exact; hexadecimals are the bits of a double.
  if (value == std::trunc(value) && std::fabs(value) < 1e6) {
    return constant_of(type, fmt::format("{:.1f}", value));
  }
  return constant_of(type, fmt::format("0x{:016X}", std::bit_cast<uint64_t>(value)));
}

Value infinity(Type type, bool negative) {
  return constant_of(type, negative ? "0xFFF0000000000000" : "0x7FF0000000000000");
}

Value not_a_number(Type type) { return constant_of(type, "0x7FF8000000000000"); }

Value lane_numbers(Type type) {
  std::string text = "<";
  for (int lane = 0; lane < type.lanes; ++lane) {
    text += fmt::format("{}{} {}", lane ? ", " : "", print({type.element}), lane);
  }
  return {type, text + ">"};
}

Value Writer::binary(std::string_view int_op, std::string_view float_op, Value a, Value b,
                     std::string_view hint) {
  match(*this, a, b);
  const std::string_view op = is_float(a.type) ? float_op : int_op;
  assert(!op.empty());
  return define(a.type, hint, fmt::format("{} {} {}, {}", op, print(a.type), a.text, b.text));
}

Value Writer::add(Value a, Value b, std::string_view hint) {
  if (!is_float(a.type) && a.type == b.type) {
    if (is_zero(a)) return b;
    if (is_zero(b)) return a;
  }
  return binary("add", "fadd", a, b, hint);
}

Value Writer::sub(Value a, Value b, std::string_view hint) {
  if (!is_float(a.type) && is_zero(b)) return a;
  return binary("sub", "fsub", a, b, hint);
}

Value Writer::mul(Value a, Value b, std::string_view hint) {
  if (!is_float(a.type) && a.type == b.type) {
    if (is_one(a) || is_zero(b)) return b;
    if (is_one(b) || is_zero(a)) return a;
  }
  return binary("mul", "fmul", a, b, hint);
}

Value Writer::div(Value a, Value b, std::string_view hint) {
  if (!is_float(a.type) && is_one(b)) return a;
  return binary("udiv", "fdiv", a, b, hint);
}

Value Writer::rem(Value a, Value b, std::string_view hint) {
  if (is_one(b)) return int_constant(a.type, 0);
  return binary("urem", "", a, b, hint);
}

namespace {
bool is_power_of_two(int64_t value) { return std::has_single_bit(uint64_t(value)); }
}  // namespace

// Powers of two shift, which a vector does in one instruction.
Value Writer::floor_div(Value a, int64_t divisor, std::string_view hint) {
  if (is_power_of_two(divisor)) {
    return shift_right_signed(a, std::countr_zero(uint64_t(divisor)), hint);
  }
  const Value rest = floor_rem(a, divisor, std::string(hint) + ".rest");
  return binary("sdiv", "", sub(a, rest, std::string(hint) + ".whole"),
                int_constant(a.type, divisor), hint);
}

Value Writer::floor_rem(Value a, int64_t divisor, std::string_view hint) {
  if (is_power_of_two(divisor)) return bit_and(a, int_constant(a.type, divisor - 1), hint);
  const Value by = int_constant(a.type, divisor);
  const Value rest = binary("srem", "", a, by, std::string(hint) + ".signed");
  const Value below = compare("lt", rest, int_constant(a.type, 0), std::string(hint) + ".below");
  return select(below, add(rest, by, std::string(hint) + ".lifted"), rest, hint);
}

Value Writer::bit_and(Value a, Value b, std::string_view hint) {
  return binary("and", "", a, b, hint);
}
Value Writer::bit_or(Value a, Value b, std::string_view hint) {
  return binary("or", "", a, b, hint);
}
Value Writer::bit_xor(Value a, Value b, std::string_view hint) {
  return binary("xor", "", a, b, hint);
}

Value Writer::shift_left(Value a, int bits, std::string_view hint) {
  return binary("shl", "", a, int_constant(a.type, bits), hint);
}

Value Writer::shift_right(Value a, int bits, std::string_view hint) {
  return binary("lshr", "", a, int_constant(a.type, bits), hint);
}

Value Writer::shift_right(Value a, Value bits, std::string_view hint) {
  return binary("lshr", "", a, bits, hint);
}

Value Writer::shift_right_signed(Value a, int bits, std::string_view hint) {
  return binary("ashr", "", a, int_constant(a.type, bits), hint);
}

Value Writer::neg(Value a, std::string_view hint) {
  if (is_float(a.type))
    return define(a.type, hint, fmt::format("fneg {} {}", print(a.type), a.text));
  return sub(int_constant(a.type, 0), a, hint);
}

Value Writer::max(Value a, Value b, std::string_view hint) {
  match(*this, a, b);
  return select(compare("gt", a, b, "larger"), a, b, hint);
}

Value Writer::min(Value a, Value b, std::string_view hint) {
  match(*this, a, b);
  return select(compare("lt", a, b, "smaller"), a, b, hint);
}

Value Writer::compare(std::string_view predicate, Value a, Value b, std::string_view hint) {
  match(*this, a, b);
  const bool equality = predicate == "eq" || predicate == "ne";
  const char* prefix = is_float(a.type) ? (predicate == "ne" ? "u" : "o") : (equality ? "" : "s");
  return define(with_lanes(i1, a.type.lanes), hint,
                fmt::format("{} {}{} {} {}, {}", is_float(a.type) ? "fcmp" : "icmp", prefix,
                            predicate, print(a.type), a.text, b.text));
}

Value Writer::select(Value condition, Value a, Value b, std::string_view hint) {
  match(*this, a, b);
  if (condition.type.lanes > 0 && a.type.lanes == 0) {
    a = splat(a, condition.type.lanes);
    b = splat(b, condition.type.lanes);
  }
  return define(a.type, hint,
                fmt::format("select {} {}, {} {}, {} {}", print(condition.type), condition.text,
                            print(a.type), a.text, print(b.type), b.text));
}

Value Writer::cast(std::string_view op, Value a, Type to, std::string_view hint) {
  if (a.type == to) return a;
  return define(to, hint, fmt::format("{} {} {} to {}", op, print(a.type), a.text, print(to)));
}

Value Writer::splat(Value scalar, int lanes) {
  if (scalar.type.lanes == lanes) return scalar;
  assert(scalar.type.lanes == 0);
  const Type type = with_lanes(scalar.type, lanes);
  if (scalar.text[0] != '%') return constant_of(type, scalar.text);
  const std::string base = scalar.text.substr(1);
  const Value first = define(type, base + ".first",
                             fmt::format("insertelement {} poison, {} {}, i64 0", print(type),
                                         print(scalar.type), scalar.text));
  return define(type, base + ".splat",
                fmt::format("shufflevector {0} {1}, {0} poison, <{2} x i32> zeroinitializer",
                            print(type), first.text, lanes));
}

Value Writer::widen(Value a, int lanes, std::string_view hint) {
  if (a.type.lanes == lanes) return a;
  std::vector<int> from(lanes);
  for (int lane = 0; lane < lanes; ++lane) from[lane] = std::min(lane, a.type.lanes);
  return define(with_lanes(a.type, lanes), hint,
                fmt::format("shufflevector {0} {1}, {0} zeroinitializer, {2}", print(a.type),
                            a.text, shuffle_mask(from)));
}

Value Writer::shuffle(Value a, Value b, const std::vector<int>& lanes, std::string_view hint) {
  return define(with_lanes(a.type, int(lanes.size())), hint,
                fmt::format("shufflevector {0} {1}, {0} {2}, {3}", print(a.type), a.text, b.text,
                            shuffle_mask(lanes)));
}

Value Writer::slice(Value a, int first, int count, std::string_view hint) {
  if (count == a.type.lanes) return a;
  std::vector<int> lanes;
  for (int lane = 0; lane < count; ++lane) lanes.push_back(first + lane);
  return shuffle(a, {a.type, "poison"}, lanes, hint);
}

// Every vector is a row of segments, one for each of the vectors folded into it so far. A step adds
// the upper half of each segment to the lower one; two vectors share the result, segment beside
// segment, so that lanes move little. A last vector alone is folded into fewer lanes.
Value Writer::sum_each(std::vector<Value> vectors, std::string_view hint) {
  const int count = int(vectors.size());
  std::vector<std::vector<int>> owners;  // of the segments of each vector
  for (int i = 0; i < count; ++i) owners.push_back({i});
  for (int segment = vectors[0].type.lanes; segment > 1; segment /= 2) {
    std::vector<Value> folded;
    std::vector<std::vector<int>> folded_owners;
    for (size_t i = 0; i < vectors.size(); i += 2) {
      const bool pair = i + 1 < vectors.size();
      const int lanes = vectors[i].type.lanes;
      std::vector<int> lower, upper, owner;
      for (int s = 0; s < lanes / segment; ++s) {
        for (int side = 0; side < (pair ? 2 : 1); ++side) {
          owner.push_back(owners[i + side][s]);
          for (int lane = 0; lane < segment / 2; ++lane) {
            lower.push_back(side * lanes + s * segment + lane);
            upper.push_back(lower.back() + segment / 2);
          }
        }
      }
      const Value other = pair ? vectors[i + 1] : Value{vectors[i].type, "poison"};
      folded.push_back(add(shuffle(vectors[i], other, lower, std::string(hint) + ".lower"),
                           shuffle(vectors[i], other, upper, std::string(hint) + ".upper"),
                           std::string(hint) + ".folded"));
      folded_owners.push_back(owner);
    }
    vectors = std::move(folded);
    owners = std::move(folded_owners);
  }
  std::vector<int> in_order(count);
  bool ordered = true;
  for (int lane = 0; lane < count; ++lane) {
    in_order[owners[0][lane]] = lane;
    ordered &= owners[0][lane] == lane;
  }
  if (ordered) return vectors[0];
  return shuffle(vectors[0], {vectors[0].type, "poison"}, in_order, hint);
}

Value Writer::sum_lanes(Value a, std::string_view hint) {
  const Value start = float_constant({a.type.element}, -0.0);
  const std::string full = fmt::format("llvm.vector.reduce.fadd.v{}f{}", a.type.lanes,
                                       8 * element_bytes(a.type.element));
  declarations_.insert(
      fmt::format("declare {0} @{1}({0}, {2})", print(start.type), full, print(a.type)));
  return define(start.type, hint,
                fmt::format("call reassoc {0} @{1}({0} {2}, {3} {4})", print(start.type), full,
                            start.text, print(a.type), a.text));
}

// Folds the upper half of the lanes onto the lower half until one is left.
Value Writer::max_lanes(Value a, std::string_view hint) {
  for (int half = a.type.lanes / 2; half >= 1; half /= 2) {
    std::string mask = fmt::format("<{} x i32> <", a.type.lanes);
    for (int lane = 0; lane < a.type.lanes; ++lane) {
      mask += lane ? ", " : "";
      mask += lane < half ? fmt::format("i32 {}", lane + half) : "i32 poison";
    }
    const Value folded =
        define(a.type, std::string(hint) + ".upper",
               fmt::format("shufflevector {0} {1}, {0} poison, {2}>", print(a.type), a.text, mask));
    a = max(a, folded, std::string(hint) + ".lanes");
  }
  return define({a.type.element}, hint,
                fmt::format("extractelement {} {}, i64 0", print(a.type), a.text));
}

}  // namespace splitkv::ir
