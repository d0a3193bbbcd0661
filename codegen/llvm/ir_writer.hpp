// Writes one module of textual LLVM IR: typed values with readable names, structured loops and
// conditionals, and the vector operations that the kernels need. It knows nothing of attention.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace splitkv::ir {

enum class Element { i1, i8, i16, i32, i64, half, f32, f64, pointer };

// `lanes` is 0 for a scalar.
struct Type {
  Element element = Element::i64;
  int lanes = 0;

  bool operator==(const Type&) const = default;
};

inline constexpr Type i1{Element::i1}, i8{Element::i8}, i16{Element::i16}, i32{Element::i32},
    i64{Element::i64}, f32{Element::f32}, f64{Element::f64}, pointer{Element::pointer};

std::string print(Type type);  // "i64", "<8 x float>"
bool is_float(Type type);
constexpr Type with_lanes(Type type, int lanes) { return {type.element, lanes}; }
int element_bytes(Element element);

// An SSA name or a constant, printed as an operand.
struct Value {
  Type type;
  std::string text;
};

Value int_constant(Type type, int64_t value);  // a vector type gives a splat
Value float_constant(Type type, double value);
inline Value i64_constant(int64_t value) { return int_constant(i64, value); }
inline Value f32_constant(double value) { return float_constant(f32, value); }
Value infinity(Type type, bool negative);
Value not_a_number(Type type);
Value lane_numbers(Type type);  // <0, 1, 2, ...>

// A value that a loop carries from one round to the next.
struct Carried {
  std::string hint;
  Value start;
};

class Writer {
 public:
  using Body = std::function<void()>;
  using LoopBody =
      std::function<std::vector<Value>(const Value& index, const std::vector<Value>& carried)>;

  // Text before the first function, each line as a comment.
  void header(std::string_view line);

  // ---- functions: everything between begin and end belongs to it; parameters are named by hint.
  struct Parameter {
    Type type;
    std::string name;
    std::string attributes;  // "noalias readonly"
  };
  std::vector<Value> begin_function(std::string_view linkage, std::string_view name,
                                    const std::vector<Parameter>& parameters);
  void end_function();

  void comment(std::string_view text);

  // Stack memory of `count` elements, in the entry block whatever the current block is.
  Value stack(Type type, int64_t count, int align, std::string_view hint);

  // ---- arithmetic; a scalar operand beside a vector one is splatted
  Value add(Value a, Value b, std::string_view hint);
  Value sub(Value a, Value b, std::string_view hint);
  Value mul(Value a, Value b, std::string_view hint);
  Value div(Value a, Value b, std::string_view hint);  // integers: unsigned
  Value rem(Value a, Value b, std::string_view hint);  // unsigned
  // floor(a / divisor) and a - divisor * floor(a / divisor) of signed integers, divisor above 0.
  Value floor_div(Value a, int64_t divisor, std::string_view hint);
  Value floor_rem(Value a, int64_t divisor, std::string_view hint);
  Value bit_and(Value a, Value b, std::string_view hint);
  Value bit_or(Value a, Value b, std::string_view hint);
  Value bit_xor(Value a, Value b, std::string_view hint);
  Value shift_left(Value a, int bits, std::string_view hint);
  Value shift_right(Value a, int bits, std::string_view hint);  // logical
  Value shift_right(Value a, Value bits, std::string_view hint);
  Value shift_right_signed(Value a, int bits, std::string_view hint);
  Value neg(Value a, std::string_view hint);
  Value copy_sign(Value size, Value sign, std::string_view hint);
  Value abs(Value a, std::string_view hint);
  // The larger (smaller) one; floats: b where they are unordered.
  Value max(Value a, Value b, std::string_view hint);
  Value min(Value a, Value b, std::string_view hint);
  // a * b + c, fused where the target has it; never a library call.
  Value mul_add(Value a, Value b, Value c, std::string_view hint);
  // predicate: eq ne lt le gt ge, signed or ordered; ne is "unordered or unequal" for floats.
  Value compare(std::string_view predicate, Value a, Value b, std::string_view hint);
  Value select(Value condition, Value a, Value b, std::string_view hint);
  Value cast(std::string_view op, Value a, Type to, std::string_view hint);
  Value bitcast(Value a, Type to, std::string_view hint) { return cast("bitcast", a, to, hint); }
  Value splat(Value scalar, int lanes);
  // The lanes of `a`, then zeros up to `lanes`.
  Value widen(Value a, int lanes, std::string_view hint);
  Value sum_lanes(Value a, std::string_view hint);
  // Lane i of the result is the sum of the lanes of vectors[i]; a power of two of them, at most as
  // many as each has lanes.
  Value sum_each(std::vector<Value> vectors, std::string_view hint);
  Value max_lanes(Value a, std::string_view hint);
  // Lanes [first, first + count) of `a`.
  Value slice(Value a, int first, int count, std::string_view hint);

  // ---- memory
  Value load(Type type, Value address, int align, std::string_view hint);
  void store(Value value, Value address, int align);
  Value byte_offset(Value address, Value bytes, std::string_view hint);
  Value element(Value address, Type type, Value index, std::string_view hint);  // &address[index]
  Value atomic_add(Value address, Value amount, std::string_view hint);  // acq_rel; the old value
  void atomic_store(Value value, Value address);                         // release
  // Writes `desired` where `expected` stands, acq_rel; whether it did.
  Value atomic_claim(Value address, Value expected, Value desired, std::string_view hint);

  void call(std::string_view function, const std::vector<Value>& arguments);
  Value call(Type type, std::string_view function, const std::vector<Value>& arguments,
             std::string_view hint);

  // ---- control flow
  // for (index = begin; index < end; index += step); returns the carried values afterwards.
  std::vector<Value> loop(std::string_view hint, Value begin, Value end, Value step,
                          const std::vector<Carried>& carried, const LoopBody& body);
  void loop(std::string_view hint, Value begin, Value end, Value step,
            const std::function<void(const Value& index)>& body);
  void when(Value condition, std::string_view hint, const Body& then);
  void when(Value condition, std::string_view hint, const Body& then, const Body& otherwise);
  // The value of the one body that runs; both give the same type.
  using Computed = std::function<Value()>;
  Value choose(Value condition, std::string_view hint, const Computed& then,
               const Computed& otherwise);

  // The whole module. Attribute group #0 belongs to every function.
  std::string finish(std::string_view attributes);

 private:
  std::string unique(std::string_view hint);
  Value define(Type type, std::string_view hint, std::string_view right_hand_side);
  Value binary(std::string_view int_op, std::string_view float_op, Value a, Value b,
               std::string_view hint);
  Value intrinsic(Type type, std::string_view name, const std::vector<Value>& arguments,
                  std::string_view hint);
  Value shuffle(Value a, Value b, const std::vector<int>& lanes, std::string_view hint);
  void line(std::string_view text);
  void label(const std::string& name);

  std::string module_;
  std::string signature_;
  std::string stack_;
  std::string body_;
  std::string block_;
  std::map<std::string, int, std::less<>> names_;
  std::set<std::string> declarations_;
};

}  // namespace splitkv::ir
