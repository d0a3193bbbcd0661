#include "codegen/llvm/kv_walk.hpp"

#include "codegen/llvm/score.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

Value load_field(ir::Writer& w, const Value& args, size_t offset, ir::Type type,
                 std::string_view name) {
  const Value at = w.byte_offset(args, i64_constant(int64_t(offset)), std::string(name) + ".field");
  return w.load(type, at, ir::element_bytes(type.element), name);
}

}  // namespace

Value emit_pointer_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  return load_field(w, args, offset, ir::pointer, name);
}

Value emit_i64_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  return load_field(w, args, offset, ir::i64, name);
}

Value emit_i32_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  const Value narrow = load_field(w, args, offset, ir::i32, std::string(name) + ".i32");
  return w.cast("sext", narrow, ir::i64, name);
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

Value emit_valid_rows(ir::Writer& w, const KernelPlan& plan, Value row_block) {
  const Value rows = i64_constant(plan.schedule.rows);
  if (plan.group % plan.schedule.rows == 0) return rows;
  const Value left =
      w.sub(i64_constant(plan.group), w.mul(row_block, rows, "rows.before"), "rows.left");
  return w.min(left, rows, "valid_rows");
}

QueryRow emit_query_row(ir::Writer& w, const KernelPlan& plan, const Sequence& sequence,
                        Value row_in_group) {
  const int heads = group_size(plan.problem);
  const Value first_head = w.mul(sequence.kv_head, i64_constant(heads), "head.first");
  if (plan.problem.query_len == 1) {
    return {i64_constant(0), w.add(first_head, row_in_group, "q_head")};
  }
  const Value query = w.div(row_in_group, i64_constant(heads), "query");
  const Value in_group = w.rem(row_in_group, i64_constant(heads), "head.in_group");
  return {query, w.add(first_head, in_group, "q_head")};
}

RowInterval emit_row_interval(ir::Writer& w, const KernelPlan& plan, Value args, Value batch_row) {
  const Value lengths = emit_pointer_arg(w, args, offsetof(LaunchArgs, kv_len), "kv_lens");
  const Value at = w.element(lengths, ir::i32, batch_row, "kv_len.at");
  RowInterval interval;
  const Value stored =
      w.cast("sext", w.load(ir::i32, at, 4, "kv_len.i32"), ir::i64, "kv_len.stored");
  interval.kv_len = w.max(stored, i64_constant(0), "kv_len");
  interval.first_visible = emit_position(w, plan.first_visible, [&](ScoreOp) {
    return interval.kv_len;  // the only leaf this expression has
  });
  const Value tile = i64_constant(plan.schedule.tile_kv);
  const Value end =
      w.div(w.add(interval.kv_len, i64_constant(plan.schedule.tile_kv - 1), "kv_len.up"), tile,
            "tile.end");
  if (interval.first_visible.text == "0") {
    interval.first_tile = i64_constant(0);
  } else {
    interval.first_tile = w.div(interval.first_visible, tile, "tile.first");
  }
  interval.tiles = w.sub(end, interval.first_tile, "tiles");
  return interval;
}

namespace {

struct CacheFields {
  size_t base, stride_block, stride_head, stride_token;
};
constexpr CacheFields kKeyFields{offsetof(LaunchArgs, k), offsetof(LaunchArgs, k_stride_block),
                                 offsetof(LaunchArgs, k_stride_head),
                                 offsetof(LaunchArgs, k_stride_token)};
constexpr CacheFields kValueFields{offsetof(LaunchArgs, v), offsetof(LaunchArgs, v_stride_block),
                                   offsetof(LaunchArgs, v_stride_head),
                                   offsetof(LaunchArgs, v_stride_token)};

Cache emit_one_cache(ir::Writer& w, const KernelPlan& plan, const Value& args,
                     const Sequence& sequence, DType dtype, const CacheFields& fields,
                     const std::string& name) {
  const Value size = i64_constant(size_bytes(dtype));
  const auto stride_bytes = [&](size_t field, const std::string& stride) {
    return w.mul(emit_i64_arg(w, args, field, name + "." + stride), size,
                 name + "." + stride + ".bytes");
  };
  Cache cache{dtype, {}, {}, {}};
  cache.block_bytes = stride_bytes(fields.stride_block, is_paged(plan.problem) ? "page" : "row");
  cache.token_bytes = stride_bytes(fields.stride_token, "token");
  Value offset =
      w.mul(stride_bytes(fields.stride_head, "head"), sequence.kv_head, name + ".head.offset");
  if (!is_paged(plan.problem)) {
    offset = w.add(offset, w.mul(cache.block_bytes, sequence.batch_row, name + ".row.offset"),
                   name + ".offset");
  }
  cache.base =
      w.byte_offset(emit_pointer_arg(w, args, fields.base, name + ".all"), offset, name + ".base");
  return cache;
}

// The start of a row's page ids: from the array of offsets, or row times stride without one.
Value emit_page_list(ir::Writer& w, const Value& args, const Value& batch_row) {
  const Value offsets = emit_pointer_arg(w, args, offsetof(LaunchArgs, page_offset), "page_offset");
  const Value start_at = w.stack(ir::i64, 1, 8, "page_list.start");
  const Value none = w.compare("eq", offsets, {ir::pointer, "null"}, "table.is_2d");
  w.when(
      none, "page_list",
      [&] {
        const Value stride =
            emit_i64_arg(w, args, offsetof(LaunchArgs, page_table_stride), "page_table_stride");
        w.store(w.mul(batch_row, stride, "page_list.from_row"), start_at, 8);
      },
      [&] {
        const Value at = w.element(offsets, ir::i64, batch_row, "page_offset.at");
        w.store(w.load(ir::i64, at, 8, "page_list.from_offset"), start_at, 8);
      });
  const Value table = emit_pointer_arg(w, args, offsetof(LaunchArgs, page_table), "page_table");
  return w.element(table, ir::i32, w.load(ir::i64, start_at, 8, "page_list.offset"), "page_list");
}

}  // namespace

KeyValueCache emit_cache(ir::Writer& w, const KernelPlan& plan, Value args,
                         const Sequence& sequence) {
  KeyValueCache cache{
      emit_one_cache(w, plan, args, sequence, plan.problem.k_dtype, kKeyFields, "k"),
      emit_one_cache(w, plan, args, sequence, plan.problem.v_dtype, kValueFields, "v"),
      {}};
  if (is_paged(plan.problem)) cache.page_list = emit_page_list(w, args, sequence.batch_row);
  return cache;
}

void emit_key_addresses(ir::Writer& w, const KernelPlan& plan, const KeyValueCache& cache,
                        Value first_key, Value count, Value k_addresses, Value v_addresses) {
  w.comment("addresses of the block's keys, through the page table");
  const Value page_size = i64_constant(plan.problem.kv_layout.page_size);
  w.loop("found", i64_constant(0), count, i64_constant(1), [&](const Value& index) {
    const Value key = w.add(first_key, index, "found.key");
    const Value page_number = w.div(key, page_size, "page.number");
    const Value token = w.rem(key, page_size, "page.token");
    const Value id_at = w.element(cache.page_list, ir::i32, page_number, "page.id.at");
    const Value page = w.cast("sext", w.load(ir::i32, id_at, 4, "page.id"), ir::i64, "page");
    const auto store_address = [&](const Cache& side, const Value& addresses,
                                   const std::string& name) {
      const Value offset =
          w.add(w.mul(page, side.block_bytes, name + ".page.offset"),
                w.mul(token, side.token_bytes, name + ".token.offset"), name + ".key.offset");
      w.store(w.byte_offset(side.base, offset, name + ".key"),
              w.element(addresses, ir::pointer, index, name + ".key.at"), 8);
    };
    store_address(cache.k, k_addresses, "k");
    store_address(cache.v, v_addresses, "v");
  });
}

}  // namespace splitkv::llvm_codegen
