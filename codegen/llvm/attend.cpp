#include "codegen/llvm/attend.hpp"

#include "codegen/llvm/convert.hpp"

namespace splitkv::llvm_codegen {

using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

namespace {

constexpr int kStackAlign = 64;

PieceState emit_state(ir::Writer& w, const KernelPlan& plan) {
  const int rows = plan.schedule.rows;
  PieceState state;
  state.q = w.stack({plan.real}, int64_t(rows) * plan.padded_qk, kStackAlign, "q");
  state.m = w.stack(ir::f32, rows, kStackAlign, "m");
  state.l = w.stack(ir::f32, rows, kStackAlign, "l");
  state.acc = w.stack(ir::f32, int64_t(rows) * plan.padded_v, kStackAlign, "acc");
  state.rescale = w.stack(ir::f32, rows, kStackAlign, "rescale");
  state.scores = w.stack({plan.real}, int64_t(rows) * plan.padded_keys, kStackAlign, "scores");
  state.weights = w.stack(ir::f32, int64_t(rows) * plan.padded_keys, kStackAlign, "weights");
  if (plan.problem.bias) state.bias = w.stack(ir::f32, plan.padded_keys, kStackAlign, "bias");
  if (plan.uses_tree) state.tree = w.stack(ir::i8, plan.padded_keys, kStackAlign, "tree");
  state.keys = emit_key_tables(w, plan);
  return state;
}

struct QueryPart {
  size_t base;
  QueryStrides strides;
  int begin, dim;  // the dims of q it holds
};
constexpr QueryStrides kQueryStrides{offsetof(LaunchArgs, q_stride_batch),
                                     offsetof(LaunchArgs, q_stride_query),
                                     offsetof(LaunchArgs, q_stride_head)};
constexpr QueryStrides kRopeStrides{offsetof(LaunchArgs, q_rope_stride_batch),
                                    offsetof(LaunchArgs, q_rope_stride_query),
                                    offsetof(LaunchArgs, q_rope_stride_head)};

// The dims of one of q's tensors, converted, to their place in the row of the state.
void emit_load_query_part(const AttendContext& c, const QueryRow& asked, const Value& to,
                          const QueryPart& part, const std::string& name) {
  ir::Writer& w = c.w;
  const DType dtype = c.plan.problem.q_dtype;
  const Value size = i64_constant(size_bytes(dtype));
  const Value offset = emit_query_offset(w, c.args, c.row, asked, part.strides, name);
  const Value all = emit_pointer_arg(w, c.args, part.base, name + ".all");
  const Value from = w.byte_offset(all, w.mul(offset, size, name + ".bytes"), name + ".from");
  const Value begin = w.element(to, {c.plan.real}, i64_constant(part.begin), name + ".to");
  emit_chunks(w, part.dim, c.plan.lanes, [&](const Value& first, int lanes) {
    const Value at = w.byte_offset(from, w.mul(first, size, "dim.bytes"), name + ".at");
    Value value = emit_load_elements(w, dtype, c.plan.native_half, at, lanes, size_bytes(dtype),
                                     name + ".value");
    value = w.cast("fpext", value, {c.plan.real, lanes}, name + ".double");
    w.store(value, w.element(begin, {c.plan.real}, first, name + ".row.at"),
            ir::element_bytes(c.plan.real));
  });
}

void emit_load_query_row(const AttendContext& c, const Value& row) {
  ir::Writer& w = c.w;
  const Problem& problem = c.plan.problem;
  const int lanes = c.plan.lanes, plain = problem.dim_qk - problem.dim_rope;
  const QueryRow asked = emit_query_row(w, c.plan, c.sequence, c.row, row);
  const Value to = emit_row_at(w, c.state.q, {c.plan.real}, row, c.plan.padded_qk, "q.row");
  if (c.plan.padded_qk != problem.dim_qk) {
    w.store(ir::float_constant({c.plan.real, lanes}, 0),
            w.element(to, {c.plan.real}, i64_constant(c.plan.padded_qk - lanes), "q.tail"),
            ir::element_bytes(c.plan.real));
  }
  emit_load_query_part(c, asked, to, {offsetof(LaunchArgs, q), kQueryStrides, 0, plain}, "q");
  if (problem.dim_rope == 0) return;
  emit_load_query_part(
      c, asked, to, {offsetof(LaunchArgs, q_rope), kRopeStrides, plain, problem.dim_rope}, "rope");
}

void emit_load_queries(const AttendContext& c) {
  ir::Writer& w = c.w;
  w.comment("q of the row block, converted once; nothing attended to yet");
  const Value rows = i64_constant(c.plan.schedule.rows);
  w.loop("q_row", i64_constant(0), rows, i64_constant(1), [&](const Value& row) {
    emit_load_query_row(c, row);
    w.store(ir::infinity(ir::f32, true), w.element(c.state.m, ir::f32, row, "m.at"), 4);
    w.store(f32_constant(0), w.element(c.state.l, ir::f32, row, "l.at"), 4);
    const Value acc = emit_row_at(w, c.state.acc, ir::f32, row, c.plan.padded_v, "acc.row");
    emit_chunks(w, c.plan.padded_v, c.plan.lanes, [&](const Value& first, int lanes) {
      w.store(ir::float_constant({ir::Element::f32, lanes}, 0),
              w.element(acc, ir::f32, first, "acc.at"), 4);
    });
  });
}

void emit_key_block(const AttendContext& c, const KeyBlock& block) {
  emit_look_up_keys(c.w, c.plan, c.args, c.sequence, c.cache, block.first_key, block.count,
                    c.state.keys);
  emit_dots(c, block);
  emit_softmax(c, block);
  emit_accumulate(c, block);
}

// The keys of one tile that lie in the row's interval, in blocks.
void emit_tile(const AttendContext& c, const Value& tile) {
  ir::Writer& w = c.w;
  const Value tile_keys = i64_constant(c.plan.schedule.tile_kv);
  const Value tile_begin = w.mul(w.add(emit_first_tile(w, c.plan, c.row), tile, "tile.absolute"),
                                 tile_keys, "tile.begin");
  const Value begin = w.max(tile_begin, c.row.first_key, "keys.begin");
  const Value end = w.min(w.add(tile_begin, tile_keys, "tile.end"), c.row.end_key, "keys.end");
  if (c.plan.block_keys == c.plan.schedule.tile_kv) {
    return emit_key_block(c, {begin, w.sub(end, begin, "keys")});
  }
  const Value block_keys = i64_constant(c.plan.block_keys);
  w.loop("keys.first", begin, end, block_keys, [&](const Value& first) {
    emit_key_block(c, {first, w.min(w.sub(end, first, "keys.left"), block_keys, "keys")});
  });
}

// acc / l in place, for the rows that are written; a row without keys stays 0.
RowState emit_normalised_row(const AttendContext& c, const Value& row) {
  ir::Writer& w = c.w;
  RowState state;
  state.m = w.load(ir::f32, w.element(c.state.m, ir::f32, row, "m.at"), 4, "m.row");
  state.l = w.load(ir::f32, w.element(c.state.l, ir::f32, row, "l.at"), 4, "l.row");
  state.o = emit_row_at(w, c.state.acc, ir::f32, row, c.plan.padded_v, "o");
  const Value empty = w.compare("eq", state.l, f32_constant(0), "row.is_empty");
  const Value divisor = w.select(empty, f32_constant(1), state.l, "divisor");
  emit_chunks(w, c.plan.problem.dim_v, c.plan.lanes, [&](const Value& first, int lanes) {
    const Value at = w.element(state.o, ir::f32, first, "o.at");
    const Value acc = w.load({ir::Element::f32, lanes}, at, 4, "acc.value");
    w.store(w.div(acc, divisor, "o.value"), at, 4);
  });
  return state;
}

// The block that counts the last piece of a sequence joins them all and leaves the counter at zero.
// acq_rel: every piece's partial is published by its arrival and seen by the last.
void emit_arrive(const AttendContext& c, const Value& number, const PieceSlots& slots) {
  ir::Writer& w = c.w;
  w.comment("arrive; the last of the sequence's pieces joins them");
  const Value counters = emit_pointer_arg(w, c.args, offsetof(LaunchArgs, arrivals), "arrivals");
  const Value counter = w.element(counters, ir::i32, number, "arrival");
  const Value before = w.atomic_add(counter, ir::int_constant(ir::i32, 1), "arrived.before");
  const Value arrived =
      w.add(w.cast("zext", before, ir::i64, "arrived"), i64_constant(1), "arrived");
  w.when(w.compare("eq", arrived, slots.pieces, "is_last"), "last", [&] {
    w.atomic_store(ir::int_constant(ir::i32, 0), counter);
    emit_join_call(w, c.plan, c.args, c.sequence, slots);
  });
}

void emit_write_piece(const AttendContext& c, const Value& number, const Value& slot,
                      const PieceSlots& slots, const Value& rows) {
  ir::Writer& w = c.w;
  const Value alone = w.compare("eq", slots.pieces, i64_constant(1), "is_alone");
  w.loop("row", i64_constant(0), rows, i64_constant(1), [&](const Value& row) {
    const RowState state = emit_normalised_row(c, row);
    w.when(
        alone, "write", [&] { emit_finish_row(w, c.plan, c.args, c.sequence, c.row, row, state); },
        [&] { emit_store_partial(w, c.plan, c.args, slot, row, state); });
  });
  if (c.plan.schedule.reduce != Reduce::last_block) return;
  const Value shared = w.compare("gt", slots.pieces, i64_constant(1), "is_shared");
  w.when(shared, "shared", [&] { emit_arrive(c, number, slots); });
}

}  // namespace

Value emit_row_at(ir::Writer& w, Value array, ir::Type type, Value row, int stride,
                  std::string_view hint) {
  const Value offset = w.mul(row, i64_constant(stride), std::string(hint) + ".offset");
  return w.element(array, type, offset, hint);
}

void emit_attend_function(ir::Writer& w, const KernelPlan& plan) {
  std::vector<ir::Writer::Parameter> parameters = {{ir::pointer, "args", "noalias readonly"}};
  for (const char* name : {"sequence", "batch_row", "kv_head", "row_block", "piece.first",
                           "piece.end", "piece.step", "slot"}) {
    parameters.push_back({ir::i64, name, ""});
  }
  for (const auto& parameter : slot_parameters(plan)) parameters.push_back(parameter);
  const std::vector<Value> p = w.begin_function("internal ", "attend_piece", parameters);
  const Sequence sequence{p[2], p[3], p[4]};
  const BatchRow row = emit_batch_row(w, p[0], sequence.batch_row);
  const Value rows = emit_valid_rows(w, plan, row, sequence.row_block);
  w.comment("a row block without queries has nothing to write: none of its pieces arrives");
  w.when(w.compare("gt", rows, i64_constant(0), "rows.exist"), "attend", [&] {
    const PieceState state = emit_state(w, plan);
    const KeyValueCache cache = emit_cache(w, plan, p[0], sequence);
    const AttendContext context{w, plan, p[0], sequence, row, cache, state};
    emit_load_queries(context);
    w.loop("tile", p[5], p[6], p[7], [&](const Value& tile) { emit_tile(context, tile); });
    emit_write_piece(context, p[1], p[8], slots_from_parameters(plan, &p[9]), rows);
  });
  w.end_function();
}

void emit_attend_call(ir::Writer& w, const KernelPlan& plan, Value args, const Piece& piece) {
  std::vector<Value> arguments = {args,
                                  piece.number,
                                  piece.sequence.batch_row,
                                  piece.sequence.kv_head,
                                  piece.sequence.row_block,
                                  piece.first,
                                  piece.end,
                                  piece.step,
                                  piece.slot};
  for (const Value& value : slot_arguments(plan, piece.slots)) arguments.push_back(value);
  w.call("attend_piece", arguments);
}

}  // namespace splitkv::llvm_codegen
