#include "codegen/llvm/merge_parts.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <functional>

#include "codegen/llvm/fields.hpp"
#include "codegen/llvm/ir_writer.hpp"
#include "codegen/llvm/math.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

using namespace llvm_codegen;
using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

constexpr double kLog2E = 1.4426950408889634;
constexpr int kFloatAlign = 4;

Value minus_infinity() { return ir::infinity(ir::f32, true); }

struct MergeRow {
  ir::Writer& w;
  bool has_l;    // mlo
  bool natural;  // unit of m and S
  int lanes;
  Value args, row;
  Value o;  // stack: the sum, kMaxMergeDim floats
};

Value field(const MergeRow& c, size_t offset, ir::Type type, const std::string& name) {
  const Value at = c.w.byte_offset(c.args, i64_constant(int64_t(offset)), name + ".field");
  return c.w.load(type, at, 8, name);
}

// base[part * stride_part + row * stride_row]
Value emit_at(const MergeRow& c, const Value& part, size_t base, size_t stride_part,
              size_t stride_row, const std::string& name) {
  ir::Writer& w = c.w;
  const Value in_parts =
      w.mul(part, field(c, stride_part, ir::i64, name + ".stride_part"), name + ".part");
  const Value in_rows =
      w.mul(c.row, field(c, stride_row, ir::i64, name + ".stride_row"), name + ".row");
  return w.element(field(c, base, ir::pointer, name), ir::f32,
                   w.add(in_parts, in_rows, name + ".offset"), name + ".at");
}

Value emit_statistic(const MergeRow& c, const Value& part, size_t base, const std::string& name) {
  const Value at = emit_at(c, part, base, offsetof(MergeArgs, statistics_stride_part),
                           offsetof(MergeArgs, statistics_stride_row), name);
  return c.w.load(ir::f32, at, kFloatAlign, name + ".value");
}

struct Part {
  Value number, exponent, l;
};

// Visits the parts in their order, carrying one float. Empties are passed over before anything else
// of theirs is read.
Value emit_for_parts(const MergeRow& c, const std::string& pass, const Value& start,
                     const std::function<Value(const Part&, const Value& so_far)>& body) {
  ir::Writer& w = c.w;
  const Value parts = field(c, offsetof(MergeArgs, parts), ir::i64, "parts");
  const auto kept = w.loop(
      pass, i64_constant(0), parts, i64_constant(1), {{pass + ".kept", start}},
      [&](const Value& number, const std::vector<Value>& carried) -> std::vector<Value> {
        Part part{number, emit_statistic(c, number, offsetof(MergeArgs, s_or_m), "exponent"), {}};
        Value filled = w.compare("ne", part.exponent, minus_infinity(), pass + ".filled");
        if (c.has_l) {
          part.l = emit_statistic(c, number, offsetof(MergeArgs, l), "l");
          const Value weighs = w.compare("ne", part.l, f32_constant(0), pass + ".weighs");
          filled = w.bit_and(filled, weighs, pass + ".counts");
        }
        return {w.choose(
            filled, pass + ".next", [&] { return body(part, carried[0]); },
            [&] { return carried[0]; })};
      });
  return kept[0];
}

// Reports parts whose statistics no partial has; how many there are. Ordered comparisons fail for
// NaN.
Value emit_count_bad_parts(const MergeRow& c) {
  ir::Writer& w = c.w;
  const Value parts = field(c, offsetof(MergeArgs, parts), ir::i64, "checked.parts");
  const Value infinity = ir::infinity(ir::f32, false);
  const auto count = w.loop(
      "checked", i64_constant(0), parts, i64_constant(1), {{"bad.parts", i64_constant(0)}},
      [&](const Value& part, const std::vector<Value>& carried) -> std::vector<Value> {
        Value wrong = emit_statistic(c, part, offsetof(MergeArgs, s_or_m), "exponent");
        const Value empty = w.compare("eq", wrong, minus_infinity(), "checked.is_empty");
        Value right = w.compare("lt", wrong, infinity, "checked.right");
        if (c.has_l) {
          const Value l = emit_statistic(c, part, offsetof(MergeArgs, l), "l");
          const Value l_right =
              w.bit_and(w.compare("ge", l, f32_constant(0), "checked.l.positive"),
                        w.compare("lt", l, infinity, "checked.l.finite"), "checked.l.right");
          wrong = w.select(right, l, wrong, "checked.wrong");
          right = w.bit_or(empty, w.bit_and(right, l_right, "checked.both"), "checked.right");
        }
        return {w.choose(
            right, "checked.next", [&] { return carried[0]; },
            [&] {
              const Value bits = w.bitcast(wrong, ir::i32, "checked.bits");
              emit_report_call(w, c.args, kBadStatistic, c.row, part,
                               w.cast("zext", bits, ir::i64, "checked.value"));
              return w.add(carried[0], i64_constant(1), "bad.more");
            })};
      });
  return count[0];
}

// 2^(exponent - largest), or e to it, times l where the part has one.
Value emit_weight(const MergeRow& c, const Part& part, const Value& largest) {
  ir::Writer& w = c.w;
  Value less = w.sub(part.exponent, largest, "exponent.less");
  if (c.natural) less = w.mul(less, f32_constant(kLog2E), "exponent.log2");
  const Value scale = emit_exp2_nonpositive(w, less);
  return c.has_l ? w.mul(scale, part.l, "weight") : scale;
}

using ChunkBody = std::function<void(const Value& first, int lanes)>;

// Chunks of [0, dim) as wide as a vector, then single elements.
void emit_dims(const MergeRow& c, const std::string& pass, const ChunkBody& body) {
  ir::Writer& w = c.w;
  const Value dim = field(c, offsetof(MergeArgs, dim), ir::i64, pass + ".dim");
  const Value rest = w.rem(dim, i64_constant(c.lanes), pass + ".rest");
  const Value whole = w.sub(dim, rest, pass + ".whole");
  w.loop(pass, i64_constant(0), whole, i64_constant(c.lanes),
         [&](const Value& first) { body(first, c.lanes); });
  w.loop(pass + ".tail", whole, dim, i64_constant(1), [&](const Value& first) { body(first, 0); });
}

void emit_copy_out(const MergeRow& c) {
  ir::Writer& w = c.w;
  const Value stride = field(c, offsetof(MergeArgs, out_stride_row), ir::i64, "out.stride_row");
  const Value out = w.element(field(c, offsetof(MergeArgs, out), ir::pointer, "out"), ir::f32,
                              w.mul(c.row, stride, "out.offset"), "out.row");
  emit_dims(c, "copied", [&](const Value& first, int lanes) {
    const ir::Type type{ir::Element::f32, lanes};
    const Value sum = w.load(type, w.element(c.o, ir::f32, first, "o.at"), kFloatAlign, "o");
    w.store(sum, w.element(out, ir::f32, first, "out.at"), kFloatAlign);
  });
}

void emit_store_statistic(const MergeRow& c, const Value& value, size_t base,
                          const std::string& name) {
  ir::Writer& w = c.w;
  const Value stride =
      field(c, offsetof(MergeArgs, out_statistics_stride_row), ir::i64, name + ".stride_row");
  const Value at = w.element(field(c, base, ir::pointer, name), ir::f32,
                             w.mul(c.row, stride, name + ".offset"), name + ".at");
  w.store(value, at, kFloatAlign);
}

// The exponent of the joined partial: m, or S.
Value emit_joined_exponent(const MergeRow& c, const Value& largest, const Value& total) {
  if (c.has_l) return largest;
  ir::Writer& w = c.w;
  const Value log = c.natural ? emit_log(w, total) : emit_log2(w, total);
  const Value alone = w.compare("eq", total, f32_constant(1), "total.is_one");
  const Value some = w.compare("gt", total, f32_constant(0), "total.is_some");
  const Value sum = w.select(some, w.add(largest, log, "s.joined"), minus_infinity(), "s.or.empty");
  return w.select(alone, largest, sum, "s");
}

// Everything of the parts is read before anything is written, so that the output may lie where part
// 0 does.
void emit_join(const MergeRow& c) {
  ir::Writer& w = c.w;
  w.comment("the largest exponent, then the sum of all weights");
  const Value largest =
      emit_for_parts(c, "largest", minus_infinity(), [&](const Part& part, const Value& so_far) {
        return w.max(part.exponent, so_far, "largest.more");
      });
  const Value total =
      emit_for_parts(c, "total", f32_constant(0), [&](const Part& part, const Value& so_far) {
        return w.add(so_far, emit_weight(c, part, largest), "total.more");
      });
  w.comment("o = sum of (weight / total) * o of each part; -0 is neutral, negative zeros included");
  const Value empty = w.compare("eq", total, f32_constant(0), "row.is_empty");
  const Value start = w.select(empty, f32_constant(0), f32_constant(-0.0), "o.start");
  emit_dims(c, "started", [&](const Value& first, int lanes) {
    w.store(w.splat(start, lanes), w.element(c.o, ir::f32, first, "o.start.at"), kFloatAlign);
  });
  emit_for_parts(c, "joined", f32_constant(0), [&](const Part& part, const Value& unused) {
    const Value share = w.div(emit_weight(c, part, largest), total, "share");
    const Value o =
        emit_at(c, part.number, offsetof(MergeArgs, o), offsetof(MergeArgs, o_stride_part),
                offsetof(MergeArgs, o_stride_row), "part.o");
    emit_dims(c, "dim", [&](const Value& first, int lanes) {
      const ir::Type type{ir::Element::f32, lanes};
      const Value sum_at = w.element(c.o, ir::f32, first, "o.sum.at");
      const Value own =
          w.load(type, w.element(o, ir::f32, first, "o.part.at"), kFloatAlign, "o.part");
      const Value sum = w.load(type, sum_at, kFloatAlign, "o.sum");
      w.store(w.mul_add(share, own, sum, "o.next"), sum_at, kFloatAlign);
    });
    return unused;
  });
  const Value exponent = emit_joined_exponent(c, largest, total);
  emit_copy_out(c);
  emit_store_statistic(c, exponent, offsetof(MergeArgs, out_s_or_m), "out_exponent");
  if (c.has_l) emit_store_statistic(c, total, offsetof(MergeArgs, out_l), "out_l");
}

void emit_not_a_number_row(const MergeRow& c) {
  ir::Writer& w = c.w;
  const Value nan = ir::not_a_number(ir::f32);
  emit_dims(c, "spoiled", [&](const Value& first, int lanes) {
    w.store(w.splat(nan, lanes), w.element(c.o, ir::f32, first, "o.nan.at"), kFloatAlign);
  });
  emit_copy_out(c);
  emit_store_statistic(c, nan, offsetof(MergeArgs, out_s_or_m), "out_exponent");
  if (c.has_l) emit_store_statistic(c, nan, offsetof(MergeArgs, out_l), "out_l");
}

void emit_merge_row(const MergeRow& c) {
  ir::Writer& w = c.w;
  const Value bad = emit_count_bad_parts(c);
  w.when(
      w.compare("eq", bad, i64_constant(0), "row.is_right"), "row.join", [&] { emit_join(c); },
      [&] { emit_not_a_number_row(c); });
}

}  // namespace

KernelSource emit_merge_llvm(Merge form, LseOutput base, const Target& target) {
  KernelSource source;
  source.language = SourceLanguage::llvm_ir;
  const char* const form_name = form == Merge::mlo ? "mlo" : "lse";
  const char* const base_name = base == LseOutput::base2 ? "base2" : "natural";
  source.split_entry = fmt::format("splitkv_merge_{}_{}", form_name, base_name);
  ir::Writer w;
  w.header(fmt::format("merge {} {} | {}", form_name, base_name, print(target)));
  emit_report_function(w, offsetof(MergeArgs, errors));
  const std::vector<Value> p = w.begin_function("", source.split_entry,
                                                {{ir::pointer, "args", "noalias readonly"},
                                                 {ir::i64, "first_row", ""},
                                                 {ir::i64, "end_row", ""}});
  const Value o = w.stack(ir::f32, kMaxMergeDim, 64, "o.sums");
  w.loop("row", p[1], p[2], i64_constant(1), [&](const Value& row) {
    emit_merge_row(
        {w, form == Merge::mlo, base != LseOutput::base2, target.vector_bits / 32, p[0], row, o});
  });
  w.end_function();
  source.text = w.finish(
      fmt::format("nounwind \"prefer-vector-width\"=\"{0}\" \"min-legal-vector-width\"=\"{0}\"",
                  target.vector_bits));
  return source;
}

}  // namespace splitkv
