#include "codegen/llvm/ir_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace splitkv::ir {

namespace {

std::string call_arguments(const std::vector<Value>& arguments) {
  std::string text;
  for (const Value& argument : arguments) {
    if (!text.empty()) text += ", ";
    text += print(argument.type) + " " + argument.text;
  }
  return text;
}

// "v8f32": how intrinsic names spell a type.
std::string mangled(Type type) {
  const std::string scalar =
      is_float(type) ? fmt::format("f{}", 8 * element_bytes(type.element)) : print({type.element});
  return type.lanes ? fmt::format("v{}{}", type.lanes, scalar) : scalar;
}

std::string quoted_name(std::string_view name) { return fmt::format("%{}", name); }

}  // namespace

void Writer::header(std::string_view text) { module_ += fmt::format("; {}\n", text); }

std::vector<Value> Writer::begin_function(std::string_view linkage, std::string_view name,
                                          const std::vector<Parameter>& parameters) {
  names_.clear();
  std::vector<Value> values;
  std::string list;
  for (const Parameter& parameter : parameters) {
    values.push_back({parameter.type, unique(parameter.name)});
    if (!list.empty()) list += ", ";
    list += print(parameter.type);
    if (!parameter.attributes.empty()) list += " " + parameter.attributes;
    list += " " + values.back().text;
  }
  signature_ = fmt::format("define {}void @{}({}) #0 {{\n", linkage, name, list);
  block_ = unique("entry").substr(1);
  return values;
}

void Writer::end_function() {
  line("ret void");
  module_ += "\n" + signature_ + "entry:\n" + stack_ + body_ + "}\n";
  stack_.clear();
  body_.clear();
}

void Writer::comment(std::string_view text) { body_ += fmt::format("  ; {}\n", text); }

Value Writer::stack(Type type, int64_t count, int align, std::string_view hint) {
  const Value address{pointer, unique(hint)};
  stack_ +=
      fmt::format("  {} = alloca [{} x {}], align {}\n", address.text, count, print(type), align);
  return address;
}

Value Writer::load(Type type, Value address, int align, std::string_view hint) {
  return define(type, hint,
                fmt::format("load {}, ptr {}, align {}", print(type), address.text, align));
}

void Writer::store(Value value, Value address, int align) {
  line(fmt::format("store {} {}, ptr {}, align {}", print(value.type), value.text, address.text,
                   align));
}

Value Writer::byte_offset(Value address, Value bytes, std::string_view hint) {
  if (bytes.text == "0") return address;
  return define(pointer, hint,
                fmt::format("getelementptr i8, ptr {}, i64 {}", address.text, bytes.text));
}

Value Writer::element(Value address, Type type, Value index, std::string_view hint) {
  assert(index.type == i64);
  if (index.text == "0") return address;
  return define(
      pointer, hint,
      fmt::format("getelementptr {}, ptr {}, i64 {}", print(type), address.text, index.text));
}

Value Writer::atomic_add(Value address, Value amount, std::string_view hint) {
  return define(amount.type, hint,
                fmt::format("atomicrmw add ptr {}, {} {} acq_rel, align {}", address.text,
                            print(amount.type), amount.text, element_bytes(amount.type.element)));
}

void Writer::atomic_store(Value value, Value address) {
  line(fmt::format("store atomic {} {}, ptr {} release, align {}", print(value.type), value.text,
                   address.text, element_bytes(value.type.element)));
}

Value Writer::atomic_claim(Value address, Value expected, Value desired, std::string_view hint) {
  const Value pair{{}, unique(std::string(hint) + ".pair")};
  const std::string type = print(expected.type);
  line(fmt::format("{} = cmpxchg ptr {}, {} {}, {} {} acq_rel monotonic, align {}", pair.text,
                   address.text, type, expected.text, type, desired.text,
                   element_bytes(expected.type.element)));
  return define(i1, hint, fmt::format("extractvalue {{ {}, i1 }} {}, 1", type, pair.text));
}

void Writer::call(std::string_view function, const std::vector<Value>& arguments) {
  line(fmt::format("call void @{}({})", function, call_arguments(arguments)));
}

Value Writer::call(Type type, std::string_view function, const std::vector<Value>& arguments,
                   std::string_view hint) {
  return define(type, hint,
                fmt::format("call {} @{}({})", print(type), function, call_arguments(arguments)));
}

Value Writer::intrinsic(Type type, std::string_view name, const std::vector<Value>& arguments,
                        std::string_view hint) {
  const std::string full = fmt::format("llvm.{}.{}", name, mangled(arguments.back().type));
  std::string types;
  for (const Value& argument : arguments) {
    types += (types.empty() ? "" : ", ") + print(argument.type);
  }
  declarations_.insert(fmt::format("declare {} @{}({})", print(type), full, types));
  return call(type, full, arguments, hint);
}

Value Writer::mul_add(Value a, Value b, Value c, std::string_view hint) {
  const int lanes = std::max({a.type.lanes, b.type.lanes, c.type.lanes});
  a = splat(a, lanes), b = splat(b, lanes), c = splat(c, lanes);
  return intrinsic(c.type, "fmuladd", {a, b, c}, hint);
}

Value Writer::abs(Value a, std::string_view hint) {
  if (is_float(a.type)) return intrinsic(a.type, "fabs", {a}, hint);
  return max(a, neg(a, "negated"), hint);
}

Value Writer::copy_sign(Value size, Value sign, std::string_view hint) {
  return intrinsic(size.type, "copysign", {size, sign}, hint);
}

std::vector<Value> Writer::loop(std::string_view hint, Value begin, Value end, Value step,
                                const std::vector<Carried>& carried, const LoopBody& body) {
  const Value index{begin.type, unique(hint)};
  const std::string base = index.text.substr(1);
  const std::string before = block_, head = base + ".head", inside = base + ".body",
                    after = base + ".done";
  std::vector<Value> current;
  for (const Carried& value : carried) current.push_back({value.start.type, unique(value.hint)});
  line("br label " + quoted_name(head));
  label(head);
  const size_t phis_at = body_.size();
  const Value more = compare("lt", index, end, base + ".more");
  line(fmt::format("br i1 {}, label %{}, label %{}", more.text, inside, after));
  label(inside);
  const std::vector<Value> next = body(index, current);
  assert(next.size() == carried.size());
  const Value next_index = add(index, step, base + ".next");
  const std::string latch = block_;
  line("br label " + quoted_name(head));

  // The phis can only be written now that the names they take from the body are known.
  std::string phis = fmt::format("  {} = phi {} [ {}, %{} ], [ {}, %{} ]\n", index.text,
                                 print(index.type), begin.text, before, next_index.text, latch);
  for (size_t i = 0; i < carried.size(); ++i) {
    assert(next[i].type == current[i].type);
    phis += fmt::format("  {} = phi {} [ {}, %{} ], [ {}, %{} ]\n", current[i].text,
                        print(current[i].type), carried[i].start.text, before, next[i].text, latch);
  }
  body_.insert(phis_at, phis);
  label(after);
  return current;
}

void Writer::loop(std::string_view hint, Value begin, Value end, Value step,
                  const std::function<void(const Value& index)>& body) {
  loop(hint, begin, end, step, {}, [&](const Value& index, const std::vector<Value>&) {
    body(index);
    return std::vector<Value>{};
  });
}

void Writer::when(Value condition, std::string_view hint, const Body& then) {
  const std::string base = unique(hint).substr(1), inside = base + ".then", after = base + ".end";
  line(fmt::format("br i1 {}, label %{}, label %{}", condition.text, inside, after));
  label(inside);
  then();
  line("br label " + quoted_name(after));
  label(after);
}

void Writer::when(Value condition, std::string_view hint, const Body& then, const Body& otherwise) {
  const std::string base = unique(hint).substr(1), inside = base + ".then", other = base + ".else",
                    after = base + ".end";
  line(fmt::format("br i1 {}, label %{}, label %{}", condition.text, inside, other));
  label(inside);
  then();
  line("br label " + quoted_name(after));
  label(other);
  otherwise();
  line("br label " + quoted_name(after));
  label(after);
}

Value Writer::choose(Value condition, std::string_view hint, const Computed& then,
                     const Computed& otherwise) {
  const std::string base = unique(std::string(hint) + ".choice").substr(1);
  const std::string inside = base + ".then", other = base + ".else", after = base + ".end";
  line(fmt::format("br i1 {}, label %{}, label %{}", condition.text, inside, other));
  label(inside);
  const Value a = then();
  const std::string a_from = block_;
  line("br label " + quoted_name(after));
  label(other);
  const Value b = otherwise();
  const std::string b_from = block_;
  line("br label " + quoted_name(after));
  label(after);
  assert(a.type == b.type);
  return define(a.type, hint,
                fmt::format("phi {} [ {}, %{} ], [ {}, %{} ]", print(a.type), a.text, a_from,
                            b.text, b_from));
}

std::string Writer::finish(std::string_view attributes) {
  std::string text = module_;
  if (!declarations_.empty()) text += "\n";
  for (const std::string& declaration : declarations_) text += declaration + "\n";
  text += fmt::format("\nattributes #0 = {{ {} }}\n", attributes);
  return text;
}

// The first use of a hint is the hint itself, later ones get a number.
std::string Writer::unique(std::string_view hint) {
  const auto found = names_.find(hint);
  if (found == names_.end()) {
    names_.emplace(hint, 1);
    return quoted_name(hint);
  }
  return fmt::format("%{}.{}", hint, found->second++);
}

Value Writer::define(Type type, std::string_view hint, std::string_view right_hand_side) {
  const Value value{type, unique(hint)};
  line(fmt::format("{} = {}", value.text, right_hand_side));
  return value;
}

void Writer::line(std::string_view text) { body_ += fmt::format("  {}\n", text); }

void Writer::label(const std::string& name) {
  body_ += fmt::format("\n{}:\n", name);
  block_ = name;
}

}  // namespace splitkv::ir
