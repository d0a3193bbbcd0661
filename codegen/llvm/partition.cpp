#include "codegen/llvm/partition.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

Value zero() { return i64_constant(0); }
Value one() { return i64_constant(1); }

bool is_flat(const KernelPlan& plan) { return plan.schedule.partition == Partition::flat; }

// A row without tiles still has one piece, which writes its empty result.
Value emit_units(ir::Writer& w, const BatchRow& row) { return w.max(row.tiles, one(), "units"); }

Value emit_active(ir::Writer& w, const Value& splits, const BatchRow& row) {
  return w.min(splits, emit_units(w, row), "active");
}

// ---- flat: all units of all sequences in one line of `total` units

struct Line {
  Value total;
  Value row_start;  // first unit of the batch row that was asked for
};

Line emit_line(ir::Writer& w, const KernelPlan& plan, const Value& args, const Value& batch_row) {
  w.comment("the line of all units, and where the batch row begins in it");
  const Value batch = emit_i32_arg(w, args, offsetof(LaunchArgs, batch), "batch");
  const Value a_row = i64_constant(sequences_a_row(plan));
  const auto sums =
      w.loop("row", zero(), batch, one(), {{"total_units", zero()}, {"row_start", zero()}},
             [&](const Value& row, const std::vector<Value>& carried) -> std::vector<Value> {
               const BatchRow found = emit_batch_row(w, args, row);
               const Value units = w.mul(emit_units(w, found), a_row, "row.units");
               const Value past = w.add(carried[1], units, "row_start.past");
               const Value before = w.compare("lt", row, batch_row, "row.is_before");
               return {w.add(carried[0], units, "total_units.next"),
                       w.select(before, past, carried[1], "row_start.next")};
             });
  return {sums[0], sums[1]};
}

Value emit_first_unit(ir::Writer& w, const Value& block, const Value& total, const Value& blocks) {
  return w.div(w.mul(block, total, "block.share"), blocks, "block.first_unit");
}

Value emit_block_of_unit(ir::Writer& w, const Value& unit, const Value& total,
                         const Value& blocks) {
  const Value past = w.mul(w.add(unit, one(), "unit.past"), blocks, "unit.share");
  return w.div(w.sub(past, one(), "unit.share.last"), total, "unit.block");
}

// The blocks that share the line: never more than units, so that each has at least one.
Value emit_used_blocks(ir::Writer& w, const Value& args, const Value& total) {
  const Value blocks = emit_i32_arg(w, args, offsetof(LaunchArgs, blocks), "blocks");
  return w.min(blocks, total, "blocks.used");
}

Value emit_flat_pieces(ir::Writer& w, const Value& first_unit, const Value& units,
                       const Value& total, const Value& blocks) {
  const Value last_unit = w.sub(w.add(first_unit, units, "unit.end"), one(), "unit.last");
  const Value first_block = emit_block_of_unit(w, first_unit, total, blocks);
  const Value last_block = emit_block_of_unit(w, last_unit, total, blocks);
  return w.add(w.sub(last_block, first_block, "blocks.past"), one(), "pieces");
}

Value emit_flat_slot(ir::Writer& w, const Value& block, const Value& block_first_unit,
                     const Value& first_unit) {
  const Value later = w.compare("gt", first_unit, block_first_unit, "starts.later");
  return w.add(w.shift_left(block, 1, "slot.even"), w.cast("zext", later, ir::i64, "slot.odd"),
               "slot");
}

void emit_flat_pieces_of_block(ir::Writer& w, const KernelPlan& plan, const Value& args,
                               const Value& block, const PieceBody& body) {
  const Value batch = emit_i32_arg(w, args, offsetof(LaunchArgs, batch), "batch.rows");
  const Value total = emit_line(w, plan, args, zero()).total;
  const Value blocks = emit_used_blocks(w, args, total);
  // Blocks beyond those in use get an empty range at the line's end.
  const Value own = w.min(block, blocks, "block.own");
  const Value next = w.min(w.add(block, one(), "block.next"), blocks, "block.next.own");
  const Value begin = emit_first_unit(w, own, total, blocks);
  const Value end = emit_first_unit(w, next, total, blocks);
  const Value a_row = i64_constant(sequences_a_row(plan));

  w.comment("the batch rows whose units meet [first_unit, end) of this block");
  w.loop("batch_row", zero(), batch, one(), {{"row.start", zero()}},
         [&](const Value& row, const std::vector<Value>& carried) -> std::vector<Value> {
           const BatchRow found = emit_batch_row(w, args, row);
           const Value units = emit_units(w, found), start = carried[0];
           const Value row_end = w.add(start, w.mul(units, a_row, "row.units"), "row.end");
           const Value low = w.max(begin, start, "meet.begin");
           const Value high = w.min(end, row_end, "meet.end");
           w.when(w.compare("lt", low, high, "meets"), "row.meets", [&] {
             const Value from = w.div(w.sub(low, start, "meet.offset"), units, "in_row.first");
             const Value to =
                 w.add(w.div(w.sub(w.sub(high, one(), "meet.last"), start, "meet.last.offset"),
                             units, "in_row.last"),
                       one(), "in_row.end");
             w.loop("in_row", from, to, one(), [&](const Value& in_row) {
               Piece piece;
               piece.number = w.add(w.mul(row, a_row, "row.number"), in_row, "sequence");
               piece.sequence = {row, w.div(in_row, i64_constant(plan.row_blocks), "kv_head"),
                                 w.rem(in_row, i64_constant(plan.row_blocks), "row_block")};
               const Value first_unit =
                   w.add(start, w.mul(in_row, units, "units.before"), "first_unit");
               piece.first = w.max(w.sub(low, first_unit, "tile.low"), zero(), "piece.first");
               piece.end = w.min(w.sub(high, first_unit, "tile.high"), found.tiles, "piece.end");
               piece.step = one();
               piece.slot = emit_flat_slot(w, block, begin, first_unit);
               piece.slots = {emit_flat_pieces(w, first_unit, units, total, blocks), first_unit,
                              total};
               body(piece);
             });
           });
           return {row_end};
         });
}

}  // namespace

std::vector<ir::Writer::Parameter> slot_parameters(const KernelPlan& plan) {
  if (is_flat(plan)) {
    return {{ir::i64, "pieces", ""}, {ir::i64, "first_unit", ""}, {ir::i64, "total_units", ""}};
  }
  return {{ir::i64, "pieces", ""}, {ir::i64, "first_slot", ""}};
}

PieceSlots slots_from_parameters(const KernelPlan& plan, const Value* values) {
  return {values[0], values[1], is_flat(plan) ? values[2] : Value{}};
}

std::vector<Value> slot_arguments(const KernelPlan& plan, const PieceSlots& slots) {
  if (is_flat(plan)) return {slots.pieces, slots.first, slots.total_units};
  return {slots.pieces, slots.first};
}

PieceSlots emit_sequence_slots(ir::Writer& w, const KernelPlan& plan, Value args, Value number,
                               const Sequence& sequence) {
  const BatchRow found = emit_batch_row(w, args, sequence.batch_row);
  if (!is_flat(plan)) {
    const Value splits = emit_i32_arg(w, args, offsetof(LaunchArgs, splits), "splits");
    return {emit_active(w, splits, found), w.mul(number, splits, "first_slot"), {}};
  }
  const Line line = emit_line(w, plan, args, sequence.batch_row);
  const Value blocks = emit_used_blocks(w, args, line.total);
  const Value units = emit_units(w, found);
  const Value in_row = w.rem(number, i64_constant(sequences_a_row(plan)), "in_row");
  const Value first_unit =
      w.add(line.row_start, w.mul(in_row, units, "units.before"), "first_unit");
  return {emit_flat_pieces(w, first_unit, units, line.total, blocks), first_unit, line.total};
}

Value emit_slot(ir::Writer& w, const KernelPlan& plan, Value args, const PieceSlots& slots,
                Value piece) {
  if (!is_flat(plan)) return w.add(slots.first, piece, "slot");
  const Value total = slots.total_units;
  const Value blocks = emit_used_blocks(w, args, total);
  const Value block =
      w.add(emit_block_of_unit(w, slots.first, total, blocks), piece, "piece.block");
  return emit_flat_slot(w, block, emit_first_unit(w, block, total, blocks), slots.first);
}

void emit_pieces_of_block(ir::Writer& w, const KernelPlan& plan, Value args, Value block,
                          const PieceBody& body) {
  if (is_flat(plan)) return emit_flat_pieces_of_block(w, plan, args, block, body);
  const Value splits = emit_i32_arg(w, args, offsetof(LaunchArgs, splits), "splits");
  Piece piece;
  piece.number = w.div(block, splits, "sequence");
  const Value split = w.rem(block, splits, "split");
  piece.sequence = emit_sequence(w, plan, piece.number);
  const BatchRow found = emit_batch_row(w, args, piece.sequence.batch_row);
  const Value active = emit_active(w, splits, found);
  w.when(w.compare("lt", split, active, "takes_part"), "split", [&] {
    if (plan.schedule.partition == Partition::strided) {
      piece.first = split;
      piece.end = found.tiles;
      piece.step = active;
    } else {
      const Value next = w.add(split, one(), "split.next");
      piece.first = w.div(w.mul(split, found.tiles, "share"), active, "piece.first");
      piece.end = w.div(w.mul(next, found.tiles, "share.next"), active, "piece.end");
      piece.step = one();
    }
    piece.slot = block;
    piece.slots = {active, w.mul(piece.number, splits, "first_slot"), {}};
    body(piece);
  });
}

Value emit_split_blocks(ir::Writer& w, const KernelPlan& plan, Value args) {
  if (is_flat(plan)) return emit_i32_arg(w, args, offsetof(LaunchArgs, blocks), "grid");
  const Value batch = emit_i32_arg(w, args, offsetof(LaunchArgs, batch), "grid.batch");
  const Value splits = emit_i32_arg(w, args, offsetof(LaunchArgs, splits), "grid.splits");
  return w.mul(w.mul(batch, i64_constant(sequences_a_row(plan)), "grid.sequences"), splits, "grid");
}

}  // namespace splitkv::llvm_codegen
