#include "codegen/llvm/append_places.hpp"

#include "codegen/append_source.hpp"
#include "codegen/llvm/fields.hpp"

namespace splitkv::llvm_codegen {
namespace {

using ir::i64_constant;
using ir::Value;

struct PlaceFields {
  size_t slots, page_table, page_offset, page_table_stride;
};
constexpr PlaceFields kKeyPlaces{offsetof(AppendArgs, slots), offsetof(AppendArgs, page_table),
                                 offsetof(AppendArgs, page_offset),
                                 offsetof(AppendArgs, page_table_stride)};
constexpr PlaceFields kValuePlaces{
    offsetof(AppendArgs, v_slots), offsetof(AppendArgs, v_page_table),
    offsetof(AppendArgs, v_page_offset), offsetof(AppendArgs, v_page_table_stride)};

struct Placing {
  ir::Writer& w;
  const Append& append;
  PlaceFields fields;
  bool own;  // V's
  Value args, token, where;
};

Value zero() { return i64_constant(0); }

Value i64_field(const Placing& p, size_t offset, const char* name) {
  return emit_i64_arg(p.w, p.args, offset, name);
}

Value emit_i64_element(ir::Writer& w, const Value& array, const Value& index, const char* name) {
  return w.load(ir::i64, w.element(array, ir::i64, index, std::string(name) + ".at"), 8, name);
}

void put(const Placing& p, AppendPlaceField field, const Value& value) {
  p.w.store(value, p.w.element(p.where, ir::i64, i64_constant(field), "place.to"), 8);
}

void put_place(const Placing& p, const Value& block, const Value& token) {
  put(p, kPlaceBlock, block);
  put(p, kPlaceToken, token);
  put(p, kPlaceExists, i64_constant(1));
}

// Not `value` >= `limit` of a field, where that is above 0; else a record.
Value emit_is_within(const Placing& p, const Value& value, size_t limit_field, FaultCode code,
                     const Value& row, const Value& slot, const Value& told) {
  ir::Writer& w = p.w;
  const Value limit = i64_field(p, limit_field, "limit");
  const Value below = w.compare("lt", value, zero(), "is.below");
  const Value past = w.compare("ge", value, limit, "is.past");
  const Value outside = w.bit_or(below, past, "is.outside");
  const Value bad = w.bit_and(w.compare("gt", limit, zero(), "limit.is_known"), outside, "is.bad");
  w.when(bad, "bad", [&] { emit_report_call(w, p.args, code, row, slot, told); });
  return w.bit_xor(bad, ir::int_constant(ir::i1, 1), "is.good");
}

void emit_place_of_slot(const Placing& p) {
  ir::Writer& w = p.w;
  const Value slots = emit_pointer_arg(w, p.args, p.fields.slots, "slots");
  const Value slot = emit_i64_element(w, slots, p.token, "slot");
  w.when(w.compare("ge", slot, zero(), "slot.is_given"), "given", [&] {
    const auto store = [&] {
      const Value a_block = p.append.page_size > 0
                                ? i64_constant(p.append.page_size)
                                : i64_field(p, offsetof(AppendArgs, slots_a_row), "slots_a_row");
      put_place(p, w.div(slot, a_block, "slot.block"), w.rem(slot, a_block, "slot.token"));
    };
    if (!p.append.checked) return store();
    const Value good = emit_is_within(p, slot, offsetof(AppendArgs, slot_count), kBadSlot, p.token,
                                      i64_constant(p.own ? 1 : 0), slot);
    w.when(good, "good", store);
  });
}

// Whether a row brings the token; a row whose offsets are negative or fall brings none.
Value emit_brings(const Placing& p, const Value& offsets, const Value& row) {
  ir::Writer& w = p.w;
  const Value begin = emit_i32_element(w, offsets, row, "begin");
  const Value end = emit_i32_element(w, offsets, w.add(row, i64_constant(1), "row.next"), "end");
  const Value known = w.compare("ge", begin, zero(), "begin.is_known");
  const Value begun = w.compare("le", begin, p.token, "has.begun");
  const Value ends = w.compare("lt", p.token, end, "ends.later");
  return w.bit_and(known, w.bit_and(begun, ends, "is.between"), "brings");
}

// The row that brings the token, -1 where none does: the last one found, else the one of the
// token's number, as a step that decodes has it, else the first of all.
Value emit_row_of_token(const Placing& p, const Value& offsets) {
  ir::Writer& w = p.w;
  const Value batch = i64_field(p, offsetof(AppendArgs, batch), "batch");
  const Value last = w.sub(batch, i64_constant(1), "row.last");
  const Value kept_at = w.element(p.where, ir::i64, i64_constant(kPlaceRow), "row.kept.at");
  const Value kept = w.load(ir::i64, kept_at, 8, "row.kept");
  const Value row = w.choose(
      emit_brings(p, offsets, kept), "row", [&] { return kept; },
      [&] {
        const Value guess = w.min(p.token, last, "row.guess");
        return w.choose(
            emit_brings(p, offsets, guess), "row.near", [&] { return guess; },
            [&] {
              return w.loop(
                  "row.any", zero(), batch, i64_constant(1), {{"row.found", i64_constant(-1)}},
                  [&](const Value& any, const std::vector<Value>& found) {
                    const Value brings = emit_brings(p, offsets, any);
                    const Value none = w.compare("lt", found[0], zero(), "found.none");
                    const Value takes = w.bit_and(brings, none, "takes");
                    return std::vector<Value>{w.select(takes, any, found[0], "row.found.next")};
                  })[0];
            });
      });
  w.store(w.max(row, zero(), "row.to.keep"), kept_at, 8);
  return row;
}

Value emit_length_after(const Placing& p, const Value& row) {
  ir::Writer& w = p.w;
  const Value lengths = emit_pointer_arg(w, p.args, offsetof(AppendArgs, kv_len), "kv_lens");
  return w.choose(
      emit_is_null(w, lengths, "kv_len.is_one"), "kv_len",
      [&] { return emit_i32_arg(w, p.args, offsetof(AppendArgs, kv_len_host), "kv_len.host"); },
      [&] {
        const Value bytes =
            emit_i32_arg(w, p.args, offsetof(AppendArgs, kv_len_bytes), "kv_len.bytes");
        return w.choose(
            w.compare("eq", bytes, i64_constant(8), "kv_len.is_wide"), "kv_len.element",
            [&] { return emit_i64_element(w, lengths, row, "kv_len.i64"); },
            [&] { return emit_i32_element(w, lengths, row, "kv_len.i32"); });
      });
}

void emit_place_in_pages(const Placing& p, const Value& row, const Value& position) {
  ir::Writer& w = p.w;
  const Value page_size = i64_constant(p.append.page_size);
  const Value slot = w.div(position, page_size, "page.slot");
  const Value offsets = emit_pointer_arg(w, p.args, p.fields.page_offset, "page_offset");
  const Value start = w.choose(
      emit_is_null(w, offsets, "table.is_2d"), "list.start",
      [&] { return w.mul(row, i64_field(p, p.fields.page_table_stride, "stride"), "list.row"); },
      [&] { return emit_i64_element(w, offsets, row, "list.offset"); });
  const Value table = emit_pointer_arg(w, p.args, p.fields.page_table, "page_table");
  const Value page = emit_i32_element(w, table, w.add(start, slot, "page.index"), "page");
  Value good = w.compare("ge", page, zero(), "page.is_one");
  if (p.append.checked) {
    good = w.bit_and(
        good,
        emit_is_within(p, page, offsetof(AppendArgs, page_count), kBadPageId, row, slot, page),
        "page.is_known");
  }
  w.when(good, "page.good", [&] { put_place(p, page, w.rem(position, page_size, "page.token")); });
}

// Token `number` of the `count` that a row brings.
void emit_place_in_row(const Placing& p, const Value& row, const Value& number,
                       const Value& count) {
  ir::Writer& w = p.w;
  const Value length = emit_length_after(p, row);
  const Value position = w.add(w.sub(length, count, "kv_len.before"), number, "position");
  w.when(w.compare("ge", position, zero(), "position.is_one"), "placed", [&] {
    const auto store = [&] {
      if (p.append.page_size > 0) return emit_place_in_pages(p, row, position);
      put_place(p, row, position);
    };
    if (!p.append.checked) return store();
    const Value good = emit_is_within(p, position, offsetof(AppendArgs, kv_capacity),
                                      kLengthTooLong, row, zero(), length);
    w.when(good, "fits", store);
  });
}

void emit_place_of_row(const Placing& p) {
  ir::Writer& w = p.w;
  const Value offsets = emit_pointer_arg(w, p.args, offsetof(AppendArgs, q_offset), "q_offset");
  w.when(
      emit_is_null(w, offsets, "rows.are_alike"), "alike",
      [&] {
        const Value a_row = i64_field(p, offsetof(AppendArgs, tokens_a_row), "tokens_a_row");
        emit_place_in_row(p, w.div(p.token, a_row, "alike.row"),
                          w.rem(p.token, a_row, "alike.number"), a_row);
      },
      [&] {
        const Value row = emit_row_of_token(p, offsets);
        w.when(w.compare("ge", row, zero(), "row.exists"), "ragged", [&] {
          const Value begin = emit_i32_element(w, offsets, row, "row.begin");
          const Value next = w.add(row, i64_constant(1), "row.after");
          const Value end = emit_i32_element(w, offsets, next, "row.end");
          emit_place_in_row(p, row, w.sub(p.token, begin, "number"), w.sub(end, begin, "count"));
        });
      });
}

void emit_place_function(ir::Writer& w, const Append& append, bool own) {
  const std::vector<Value> p = w.begin_function("internal ", own ? "place_v" : "place_k",
                                                {{ir::pointer, "args", "noalias readonly"},
                                                 {ir::i64, "token", ""},
                                                 {ir::pointer, "where", "noalias"}});
  const Placing placing{w, append, own ? kValuePlaces : kKeyPlaces, own, p[0], p[1], p[2]};
  put(placing, kPlaceExists, zero());
  if (append.places == AppendPlaces::slots) {
    emit_place_of_slot(placing);
  } else {
    emit_place_of_row(placing);
  }
  w.end_function();
}

}  // namespace

void emit_append_place_functions(ir::Writer& w, const Append& append) {
  emit_place_function(w, append, false);
  if (has_own_places(append)) emit_place_function(w, append, true);
}

}  // namespace splitkv::llvm_codegen
