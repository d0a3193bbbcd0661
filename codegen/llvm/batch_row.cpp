#include "codegen/llvm/batch_row.hpp"

#include "codegen/llvm/score.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

Value zero() { return i64_constant(0); }

// The stored length: int32 or int64 in an array, or one for all rows.
Value emit_stored_length(ir::Writer& w, const Value& args, const Value& number) {
  const Value lengths = emit_pointer_arg(w, args, offsetof(LaunchArgs, kv_len), "kv_lens");
  return w.choose(
      emit_is_null(w, lengths, "kv_len.is_one"), "kv_len.stored",
      [&] { return emit_i32_arg(w, args, offsetof(LaunchArgs, kv_len_host), "kv_len.host"); },
      [&] {
        const Value bytes =
            emit_i32_arg(w, args, offsetof(LaunchArgs, kv_len_bytes), "kv_len.bytes");
        return w.choose(
            w.compare("eq", bytes, i64_constant(8), "kv_len.is_wide"), "kv_len.element",
            [&] {
              return w.load(ir::i64, w.element(lengths, ir::i64, number, "kv_len.i64.at"), 8,
                            "kv_len.i64");
            },
            [&] { return emit_i32_element(w, lengths, number, "kv_len.narrow"); });
      });
}

Value emit_kv_len(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& number) {
  Value length = emit_stored_length(w, args, number);
  if (plan.checked) {
    const Value capacity = emit_i64_arg(w, args, offsetof(LaunchArgs, kv_capacity), "kv_capacity");
    const Value known = w.compare("gt", capacity, zero(), "kv_capacity.is_known");
    const Value too_long =
        w.bit_and(known, w.compare("gt", length, capacity, "kv_len.is_past"), "kv_len.is_bad");
    w.when(too_long, "bad_length",
           [&] { emit_report_call(w, args, kLengthTooLong, number, zero(), length); });
    length = w.select(too_long, capacity, length, "kv_len.held");
  }
  return w.max(length, zero(), "kv_len");
}

// queries, first_token and batch_index of the row.
void emit_queries(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& number,
                  BatchRow& row) {
  const Value offsets = emit_pointer_arg(w, args, offsetof(LaunchArgs, q_offset), "q_offset");
  const Value all_alike = emit_is_null(w, offsets, "queries.alike");
  const Value most = i64_constant(plan.problem.query_len);
  row.first_token = w.choose(
      all_alike, "first_token", [] { return zero(); },
      [&] { return emit_i32_element(w, offsets, number, "q_offset.begin"); });
  const Value count = w.choose(
      all_alike, "queries.stored", [&] { return most; },
      [&] {
        const Value next = w.add(number, i64_constant(1), "row.next");
        const Value end = emit_i32_element(w, offsets, next, "q_offset.end");
        const Value known = w.compare("ge", row.first_token, zero(), "q_offset.is_known");
        const Value rises = w.compare("gt", end, row.first_token, "q_offset.rises");
        return w.select(w.bit_and(known, rises, "queries.any"),
                        w.sub(end, row.first_token, "queries.between"), zero(), "queries.ragged");
      });
  if (plan.checked) {
    w.when(w.compare("gt", count, most, "queries.too_many"), "bad_queries",
           [&] { emit_report_call(w, args, kBadQueryOffset, number, zero(), count); });
  }
  row.queries = w.min(count, most, "queries");
  row.batch_index = w.select(all_alike, number, zero(), "batch_index");
}

// The first stored key at or past a position.
Value emit_key_at(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& position,
                  const std::string& name) {
  if (!plan.problem.strided_positions) return w.max(position, zero(), name);
  const Value pos0 = emit_i64_arg(w, args, offsetof(LaunchArgs, pos0), "pos0");
  const Value step = emit_i64_arg(w, args, offsetof(LaunchArgs, pos_step), "pos_step");
  const Value ahead = w.max(w.sub(position, pos0, name + ".past"), zero(), name + ".ahead");
  const Value up = w.sub(w.add(ahead, step, name + ".up"), i64_constant(1), name + ".up");
  return w.div(up, step, name);
}

void emit_interval(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& number,
                   BatchRow& row) {
  const auto position = [&](const ScoreExpr& expr, const Value& query_pos) {
    return emit_position(w, expr, [&](const ScoreNode& node) {
      return node.op == ScoreOp::query_pos ? query_pos : row.total;
    });
  };
  w.comment("the keys that any of the row's queries sees");
  const Value first_query = w.sub(row.total, row.queries, "query.first");
  const Value last_query = w.sub(row.total, i64_constant(1), "query.last");
  const Value seen =
      emit_key_at(w, plan, args, position(plan.first_key, first_query), "first_key.seen");
  const Value begins = emit_pointer_arg(w, args, offsetof(LaunchArgs, kv_begin), "kv_begins");
  const Value begin = w.choose(
      emit_is_null(w, begins, "kv_begin.none"), "kv_begin", [] { return zero(); },
      [&] { return emit_i32_element(w, begins, number, "kv_begin.stored"); });
  row.first_key = w.max(seen, begin, "first_key");
  const Value end = emit_key_at(w, plan, args, position(plan.end_key, last_query), "end_key.seen");
  const Value asked = w.compare("gt", row.queries, zero(), "queries.exist");
  row.end_key = w.select(asked, w.min(end, row.kv_len, "end_key.stored"), zero(), "end_key");
  const Value tile = i64_constant(plan.schedule.tile_kv);
  const Value tile_end = w.div(
      w.add(row.end_key, i64_constant(plan.schedule.tile_kv - 1), "end_key.up"), tile, "tile.end");
  const Value any = w.compare("gt", row.end_key, row.first_key, "keys.any");
  row.tiles = w.select(any, w.sub(tile_end, emit_first_tile(w, plan, row), "tiles.between"), zero(),
                       "tiles");
}

constexpr const char* kNames[] = {"queries", "first_token", "batch_index", "total",
                                  "kv_len",  "first_key",   "end_key",     "tiles"};

template <class Row, class Body>
void for_members(Row& row, const Body& body) {
  int index = 0;
  for (auto* member : {&row.queries, &row.first_token, &row.batch_index, &row.total, &row.kv_len,
                       &row.first_key, &row.end_key, &row.tiles}) {
    body(*member, index++);
  }
}

}  // namespace

void emit_find_row_function(ir::Writer& w, const KernelPlan& plan) {
  const std::vector<Value> p = w.begin_function("internal ", "find_row",
                                                {{ir::pointer, "args", "noalias readonly"},
                                                 {ir::i64, "number", ""},
                                                 {ir::pointer, "where", "noalias"}});
  BatchRow row;
  row.kv_len = emit_kv_len(w, plan, p[0], p[1]);
  row.total = row.kv_len;
  if (plan.problem.strided_positions) {
    const Value totals = emit_pointer_arg(w, p[0], offsetof(LaunchArgs, total_len), "total_len");
    row.total = w.max(emit_i32_element(w, totals, p[1], "total.stored"), zero(), "total");
  }
  emit_queries(w, plan, p[0], p[1], row);
  emit_interval(w, plan, p[0], p[1], row);
  for_members(row, [&](const Value& member, int index) {
    const std::string name = std::string(kNames[index]) + ".to";
    w.store(member, w.element(p[2], ir::i64, i64_constant(index), name), 8);
  });
  w.end_function();
}

BatchRow emit_batch_row(ir::Writer& w, Value args, Value number) {
  const Value where = w.stack(ir::i64, 8, 8, "batch_row.found");
  w.call("find_row", {args, number, where});
  BatchRow row;
  for_members(row, [&](Value& member, int index) {
    const Value at =
        w.element(where, ir::i64, i64_constant(index), std::string(kNames[index]) + ".at");
    member = w.load(ir::i64, at, 8, kNames[index]);
  });
  return row;
}

Value emit_first_tile(ir::Writer& w, const KernelPlan& plan, const BatchRow& row) {
  return w.div(row.first_key, i64_constant(plan.schedule.tile_kv), "tile.first");
}

Sequence emit_sequence(ir::Writer& w, const KernelPlan& plan, Value number) {
  const Value a_row = i64_constant(sequences_a_row(plan));
  const Value row_blocks = i64_constant(plan.row_blocks);
  Sequence sequence;
  sequence.batch_row = w.div(number, a_row, "batch_row");
  const Value in_row = w.rem(number, a_row, "sequence.in_row");
  sequence.kv_head = w.div(in_row, row_blocks, "kv_head");
  sequence.row_block = w.rem(in_row, row_blocks, "row_block");
  return sequence;
}

Value emit_valid_rows(ir::Writer& w, const KernelPlan& plan, const BatchRow& row, Value row_block) {
  const Value rows = i64_constant(plan.schedule.rows);
  const Value all = w.mul(row.queries, i64_constant(plan.heads), "query_rows");
  const Value left = w.sub(all, w.mul(row_block, rows, "rows.before"), "rows.left");
  return w.min(left, rows, "valid_rows");
}

QueryRow emit_query_row(ir::Writer& w, const KernelPlan& plan, const Sequence& sequence,
                        const BatchRow& row, Value row_in_block) {
  const Value before = w.mul(sequence.row_block, i64_constant(plan.schedule.rows), "rows.before");
  Value in_group = w.add(before, row_in_block, "group.row");
  const Value heads = i64_constant(plan.heads);
  const Value first_head = w.mul(sequence.kv_head, heads, "head.first");
  if (plan.problem.query_len == 1) {
    if (plan.group % plan.schedule.rows != 0) {
      in_group = w.min(in_group, i64_constant(plan.group - 1), "group.row.held");
    }
    return {zero(), w.add(first_head, in_group, "q_head")};
  }
  const Value last = w.sub(w.mul(row.queries, heads, "query_rows"), i64_constant(1), "group.last");
  in_group = w.min(in_group, last, "group.row.held");
  return {w.div(in_group, heads, "query"),
          w.add(first_head, w.rem(in_group, heads, "head.in_group"), "q_head")};
}

Value emit_query_offset(ir::Writer& w, Value args, const BatchRow& row, const QueryRow& asked,
                        const QueryStrides& strides, const std::string& name) {
  const auto stride = [&](size_t field, const char* which) {
    return emit_i64_arg(w, args, field, name + "." + which);
  };
  const Value token = w.add(row.first_token, asked.query, name + ".token");
  const Value in_batch =
      w.mul(row.batch_index, stride(strides.batch, "stride_batch"), name + ".batch");
  const Value in_query = w.mul(token, stride(strides.query, "stride_query"), name + ".query");
  const Value in_head = w.mul(asked.head, stride(strides.head, "stride_head"), name + ".head");
  return w.add(w.add(in_batch, in_query, name + ".before"), in_head, name + ".offset");
}

}  // namespace splitkv::llvm_codegen
