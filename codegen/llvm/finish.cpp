#include "codegen/llvm/finish.hpp"

#include "codegen/llvm/convert.hpp"
#include "codegen/llvm/math.hpp"

namespace splitkv::llvm_codegen {

using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLargestFloat = 0x1.fffffep127;
constexpr int kFloatAlign = 4;

constexpr QueryStrides kOutStrides{offsetof(LaunchArgs, out_stride_batch),
                                   offsetof(LaunchArgs, out_stride_query),
                                   offsetof(LaunchArgs, out_stride_head)};
constexpr QueryStrides kLseStrides{offsetof(LaunchArgs, lse_stride_batch),
                                   offsetof(LaunchArgs, lse_stride_query),
                                   offsetof(LaunchArgs, lse_stride_head)};

// m and l with the sink in them, and what is left of o.
struct Finished {
  Value m, l;
  Value share;  // no value: all of o
  Value sink;   // natural units
};

// A sink is one more partial, (m = sink, l = 1, o = 0). In log2 units it is held below infinity, so
// that a huge one outweighs everything and gives no NaN; an infinite negative one is none.
Finished emit_with_sink(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& head,
                        const RowState& state) {
  if (!plan.problem.sink) return {state.m, state.l, {}, {}};
  const Value sinks = emit_pointer_arg(w, args, offsetof(LaunchArgs, sink), "sinks");
  const Value sink = w.load(ir::f32, w.element(sinks, ir::f32, head, "sink.at"), 4, "sink");
  const Value most = f32_constant(kLargestFloat), least = f32_constant(-kLargestFloat);
  const Value wide = w.mul(sink, f32_constant(kLog2E), "sink.log2.wide");
  const Value exponent = w.min(w.max(wide, least, "sink.log2.low"), most, "sink.log2");
  const Value m = w.max(state.m, exponent, "m.sunk");
  const Value kept = w.mul(state.l, emit_exp2_nonpositive(w, w.sub(state.m, m, "m.less")), "kept");
  const Value weight = emit_exp2_nonpositive(w, w.sub(exponent, m, "sink.less"));
  const Value l = w.add(kept, weight, "l.sunk");
  const Value none = w.compare("eq", sink, ir::infinity(ir::f32, true), "sink.is_none");
  return {w.select(none, state.m, m, "m.finished"), w.select(none, state.l, l, "l.finished"),
          w.select(none, f32_constant(1), w.div(kept, l, "share.sunk"), "share.finished"), sink};
}

// log2 units to the problem's base.
Value emit_outward(ir::Writer& w, const KernelPlan& plan, const Value& value, const char* name) {
  return plan.base2 ? value : w.mul(value, f32_constant(kLn2), name);
}

// The row's number in lse (`exponent`: S, or m), and l where that goes out too, at `offset`.
void emit_store_outward(ir::Writer& w, const KernelPlan& plan, const Value& args,
                        const Value& offset, const Value& exponent, const Value& l) {
  const auto store = [&](const Value& value, size_t field, const std::string& name) {
    const Value all = emit_pointer_arg(w, args, field, name);
    w.store(value, w.element(all, ir::f32, offset, name + ".at"), kFloatAlign);
  };
  store(exponent, offsetof(LaunchArgs, lse), "lse");
  if (writes_partial_l(plan.problem)) store(l, offsetof(LaunchArgs, partial_l), "out_l");
}

// What goes to lse of a finished row: its log-sum-exp in the problem's base, or m.
Value emit_outward_exponent(ir::Writer& w, const KernelPlan& plan, const Finished& row) {
  if (writes_partial_l(plan.problem)) return emit_outward(w, plan, row.m, "m.outward");
  const Value log2_sum = emit_log2_sum(w, {row.m, row.l, {}});
  const Value lse = emit_outward(w, plan, log2_sum, "lse.natural");
  if (!plan.problem.sink || plan.base2) return lse;
  // At the bound of a sink the sum is the sink alone.
  const Value bound =
      w.compare("eq", w.abs(log2_sum, "log2_sum.size"), f32_constant(kLargestFloat), "lse.is_sink");
  return w.select(bound, row.sink, lse, "lse.or.sink");
}

}  // namespace

void emit_chunks(ir::Writer& w, int dim, int lanes,
                 const std::function<void(const Value& first, int lanes)>& body) {
  const int whole = dim / lanes * lanes;
  if (whole == lanes) {
    body(i64_constant(0), lanes);
  } else if (whole > 0) {
    w.loop("dim", i64_constant(0), i64_constant(whole), i64_constant(lanes),
           [&](const Value& first) { body(first, lanes); });
  }
  if (whole < dim) body(i64_constant(whole), dim - whole);
}

Value emit_log2_sum(ir::Writer& w, const RowState& state) {
  return w.add(state.m, emit_log2(w, state.l), "log2_sum");
}

void emit_finish_row(ir::Writer& w, const KernelPlan& plan, Value args, const Sequence& sequence,
                     const BatchRow& batch_row, Value row, const RowState& state) {
  w.comment("the finished row, to out and lse");
  const QueryRow asked = emit_query_row(w, plan, sequence, batch_row, row);
  const Finished finished = emit_with_sink(w, plan, args, asked.head, state);
  const DType dtype = plan.problem.out_dtype;
  const Value size = i64_constant(size_bytes(dtype));
  const Value offset = emit_query_offset(w, args, batch_row, asked, kOutStrides, "out");
  const Value all = emit_pointer_arg(w, args, offsetof(LaunchArgs, out), "out");
  const Value out = w.byte_offset(all, w.mul(offset, size, "out.bytes"), "out.row");
  emit_chunks(w, plan.problem.dim_v, plan.lanes, [&](const Value& first, int lanes) {
    Value value = w.load({ir::Element::f32, lanes}, w.element(state.o, ir::f32, first, "o.at"),
                         kFloatAlign, "o.value");
    if (plan.problem.sink) value = w.mul(value, finished.share, "o.share");
    const Value at = w.byte_offset(out, w.mul(first, size, "dim.bytes"), "out.at");
    emit_store_elements(w, dtype, plan.native_half, value, at, size_bytes(dtype));
  });
  if (written_lse(plan.problem) == LseOutput::none) return;
  const Value to = emit_query_offset(w, args, batch_row, asked, kLseStrides, "lse");
  emit_store_outward(w, plan, args, to, emit_outward_exponent(w, plan, finished), finished.l);
}

namespace {

// The token after the last query: the last entry of q_offset that is one.
Value emit_token_end(ir::Writer& w, const Value& args) {
  const Value offsets = emit_pointer_arg(w, args, offsetof(LaunchArgs, q_offset), "q_offset");
  const Value batch = emit_i32_arg(w, args, offsetof(LaunchArgs, batch), "batch");
  const Value entries = w.add(batch, i64_constant(1), "offsets");
  const auto last =
      w.loop("entry", i64_constant(0), entries, i64_constant(1), {{"last", i64_constant(0)}},
             [&](const Value& entry, const std::vector<Value>& carried) -> std::vector<Value> {
               const Value offset = emit_i32_element(w, offsets, entry, "offset");
               const Value known = w.compare("ge", offset, i64_constant(0), "offset.is_known");
               return {w.select(known, offset, carried[0], "last.next")};
             });
  return last[0];
}

// Element `token`, `head` of out or lse.
Value emit_token_offset(ir::Writer& w, const Value& args, const Value& token, const Value& head,
                        const QueryStrides& strides, const std::string& name) {
  const Value by_token = emit_i64_arg(w, args, strides.query, name + ".stride_query");
  const Value by_head = emit_i64_arg(w, args, strides.head, name + ".stride_head");
  return w.add(w.mul(token, by_token, name + ".token"), w.mul(head, by_head, name + ".head"),
               name + ".offset");
}

}  // namespace

void emit_clear_function(ir::Writer& w, const KernelPlan& plan) {
  const std::vector<Value> p = w.begin_function(
      "internal ", "clear_tokens",
      {{ir::pointer, "args", "noalias readonly"}, {ir::i64, "block", ""}, {ir::i64, "blocks", ""}});
  const DType dtype = plan.problem.out_dtype;
  const Value size = i64_constant(size_bytes(dtype)), heads = i64_constant(plan.problem.q_heads);
  const Value first = emit_token_end(w, p[0]);
  const Value tokens = emit_i64_arg(w, p[0], offsetof(LaunchArgs, query_rows), "query_rows");
  const Value rows = w.mul(w.sub(tokens, first, "tokens.beyond"), heads, "rows.beyond");
  const Value all = emit_pointer_arg(w, p[0], offsetof(LaunchArgs, out), "out");
  w.loop("beyond", p[1], rows, p[2], [&](const Value& index) {
    const Value token = w.add(first, w.div(index, heads, "token.past"), "token");
    const Value head = w.rem(index, heads, "head");
    const Value offset = emit_token_offset(w, p[0], token, head, kOutStrides, "out");
    const Value out = w.byte_offset(all, w.mul(offset, size, "out.bytes"), "out.row");
    emit_chunks(w, plan.problem.dim_v, plan.lanes, [&](const Value& dim, int lanes) {
      const Value zeros = dtype == DType::fp32 ? ir::float_constant({ir::Element::f32, lanes}, 0)
                                               : ir::int_constant({ir::Element::i16, lanes}, 0);
      w.store(zeros, w.byte_offset(out, w.mul(dim, size, "dim.bytes"), "out.at"),
              size_bytes(dtype));
    });
    if (written_lse(plan.problem) == LseOutput::none) return;
    const Value to = emit_token_offset(w, p[0], token, head, kLseStrides, "lse");
    emit_store_outward(w, plan, p[0], to, ir::infinity(ir::f32, true), f32_constant(0));
  });
  w.end_function();
}

}  // namespace splitkv::llvm_codegen
