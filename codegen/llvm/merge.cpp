#include "codegen/llvm/merge.hpp"

#include "codegen/llvm/convert.hpp"
#include "codegen/llvm/math.hpp"

namespace splitkv::llvm_codegen {

using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

namespace {

constexpr int kFloatAlign = 4;

Value minus_infinity() { return ir::infinity(ir::f32, true); }

int statistics_a_row(const KernelPlan& plan) { return plan.merge == Merge::mlo ? 2 : 1; }

// Where row `row` of partial `slot` keeps its statistics and its o.
struct PartialRow {
  Value statistics, o;
};
PartialRow emit_partial_row(ir::Writer& w, const KernelPlan& plan, const Value& args,
                            const Value& slot, const Value& row) {
  const Value partials = emit_pointer_arg(w, args, offsetof(LaunchArgs, partials), "partials");
  const Value o_offset =
      emit_i64_arg(w, args, offsetof(LaunchArgs, partial_o_offset), "partial_o_offset");
  const Value number =
      w.add(w.mul(slot, i64_constant(plan.schedule.rows), "slot.rows"), row, "partial.row");
  const Value statistics = w.mul(number, i64_constant(statistics_a_row(plan)), "statistics.offset");
  const Value o =
      w.add(o_offset, w.mul(number, i64_constant(plan.problem.dim_v), "o.offset"), "o.from_start");
  return {w.element(partials, ir::f32, statistics, "statistics"),
          w.element(partials, ir::f32, o, "partial.o")};
}

// The exponent of a partial's weight: m, or S.
Value emit_weight_exponent(ir::Writer& w, const PartialRow& partial) {
  return w.load(ir::f32, partial.statistics, kFloatAlign, "exponent");
}

// 2^(exponent - largest), times l where the partial carries one. Never called for an empty.
Value emit_weight(ir::Writer& w, const KernelPlan& plan, const PartialRow& partial,
                  const Value& exponent, const Value& largest) {
  const Value scale = emit_exp2_nonpositive(w, w.sub(exponent, largest, "exponent.less"));
  if (plan.merge != Merge::mlo) return scale;
  const Value l_at = w.element(partial.statistics, ir::f32, i64_constant(1), "l.at");
  return w.mul(scale, w.load(ir::f32, l_at, kFloatAlign, "l"), "weight");
}

struct JoinContext {
  ir::Writer& w;
  const KernelPlan& plan;
  Value args;
  PieceSlots slots;
  Value row;
  Value o;  // [dim_v] floats on the stack
};

using OnPartial = std::function<Value(const PartialRow&, const Value& exponent, const Value& sum)>;

// Visits the partials of the row in slot order, carrying one float; empties (exponent -inf) are
// passed over before anything of theirs is read.
Value emit_for_partials(const JoinContext& c, const std::string& pass, const Value& start,
                        const OnPartial& body) {
  ir::Writer& w = c.w;
  const Value kept_at = w.stack(ir::f32, 1, kFloatAlign, pass + ".kept");
  w.store(start, kept_at, kFloatAlign);
  w.loop(pass, i64_constant(0), c.slots.pieces, i64_constant(1), [&](const Value& piece) {
    const Value slot = emit_slot(w, c.plan, c.args, c.slots, piece);
    const PartialRow partial = emit_partial_row(w, c.plan, c.args, slot, c.row);
    const Value exponent = emit_weight_exponent(w, partial);
    const Value filled = w.compare("gt", exponent, minus_infinity(), pass + ".filled");
    w.when(filled, pass + ".partial", [&] {
      const Value sum = w.load(ir::f32, kept_at, kFloatAlign, pass + ".sum");
      w.store(body(partial, exponent, sum), kept_at, kFloatAlign);
    });
  });
  return w.load(ir::f32, kept_at, kFloatAlign, pass + ".result");
}

// Joins one row into c.o. The exponents take the place of m, and the sum of weights that of l.
RowState emit_join_row(const JoinContext& c) {
  ir::Writer& w = c.w;
  const int lanes = c.plan.lanes, dim = c.plan.problem.dim_v;
  w.comment("the largest exponent, then the sum of all weights");
  const Value largest =
      emit_for_partials(c, "largest", minus_infinity(),
                        [&](const PartialRow&, const Value& exponent, const Value& so_far) {
                          return w.max(exponent, so_far, "largest.next");
                        });
  const Value total = emit_for_partials(
      c, "total", f32_constant(0),
      [&](const PartialRow& partial, const Value& exponent, const Value& so_far) {
        return w.add(so_far, emit_weight(w, c.plan, partial, exponent, largest), "total.next");
      });

  // Sums that start at -0 give back a single partial's o bit for bit, negative zeros included; a
  // row of nothing but empties is +0.
  w.comment("o = sum of (weight / total) * o of each partial");
  const Value empty = w.compare("eq", largest, minus_infinity(), "row.is_empty");
  const Value start = w.select(empty, f32_constant(0), f32_constant(-0.0), "o.start");
  emit_chunks(w, dim, lanes, [&](const Value& first, int count) {
    w.store(w.splat(start, count), w.element(c.o, ir::f32, first, "o.start.at"), kFloatAlign);
  });
  emit_for_partials(c, "join", f32_constant(0),
                    [&](const PartialRow& partial, const Value& exponent, const Value& unused) {
                      const Value share =
                          w.div(emit_weight(w, c.plan, partial, exponent, largest), total, "share");
                      emit_chunks(w, dim, lanes, [&](const Value& first, int count) {
                        const ir::Type type{ir::Element::f32, count};
                        const Value sum_at = w.element(c.o, ir::f32, first, "o.at");
                        const Value o =
                            w.load(type, w.element(partial.o, ir::f32, first, "partial.o.at"),
                                   kFloatAlign, "o.partial");
                        const Value sum = w.load(type, sum_at, kFloatAlign, "o.sum");
                        w.store(w.mul_add(share, o, sum, "o.next"), sum_at, kFloatAlign);
                      });
                      return unused;
                    });
  return {largest, total, c.o};
}

}  // namespace

void emit_store_partial(ir::Writer& w, const KernelPlan& plan, Value args, Value slot, Value row,
                        const RowState& state) {
  w.comment("the row's partial, to scratch");
  const PartialRow partial = emit_partial_row(w, plan, args, slot, row);
  if (plan.merge == Merge::mlo) {
    w.store(state.m, partial.statistics, kFloatAlign);
    w.store(state.l, w.element(partial.statistics, ir::f32, i64_constant(1), "l.at"), kFloatAlign);
  } else {
    w.store(emit_log2_sum(w, state), partial.statistics, kFloatAlign);
  }
  emit_chunks(w, plan.problem.dim_v, plan.lanes, [&](const Value& first, int lanes) {
    const Value o = w.load({ir::Element::f32, lanes}, w.element(state.o, ir::f32, first, "o.at"),
                           kFloatAlign, "o.value");
    w.store(o, w.element(partial.o, ir::f32, first, "partial.o.at"), kFloatAlign);
  });
}

void emit_join_function(ir::Writer& w, const KernelPlan& plan) {
  std::vector<ir::Writer::Parameter> parameters = {{ir::pointer, "args", "noalias readonly"},
                                                   {ir::i64, "batch_row", ""},
                                                   {ir::i64, "kv_head", ""},
                                                   {ir::i64, "row_block", ""}};
  for (const auto& parameter : slot_parameters(plan)) parameters.push_back(parameter);
  const std::vector<Value> values = w.begin_function("internal ", "join_sequence", parameters);
  const Sequence sequence{values[1], values[2], values[3]};
  const Value o = w.stack(ir::f32, plan.problem.dim_v, 64, "o");
  const BatchRow batch_row = emit_batch_row(w, values[0], sequence.batch_row);
  const Value rows = emit_valid_rows(w, plan, batch_row, sequence.row_block);
  w.loop("row", i64_constant(0), rows, i64_constant(1), [&](const Value& row) {
    const RowState state =
        emit_join_row({w, plan, values[0], slots_from_parameters(plan, &values[4]), row, o});
    emit_finish_row(w, plan, values[0], sequence, batch_row, row, state);
  });
  w.end_function();
}

void emit_join_call(ir::Writer& w, const KernelPlan& plan, Value args, const Sequence& sequence,
                    const PieceSlots& slots) {
  std::vector<Value> arguments = {args, sequence.batch_row, sequence.kv_head, sequence.row_block};
  for (const Value& value : slot_arguments(plan, slots)) arguments.push_back(value);
  w.call("join_sequence", arguments);
}

}  // namespace splitkv::llvm_codegen
