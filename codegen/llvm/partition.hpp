// How tiles are dealt out: the pieces of a sequence, and the partial slots they write. The rules
// are those of codegen/launch_shape.hpp.
#pragma once

#include "codegen/llvm/kv_walk.hpp"

namespace splitkv::llvm_codegen {

// Finds the slots of a sequence's pieces, in order.
struct PieceSlots {
  ir::Value pieces;
  ir::Value first;        // fixed, strided: the first slot. flat: the sequence's first unit
  ir::Value total_units;  // flat
};
std::vector<ir::Writer::Parameter> slot_parameters(const KernelPlan& plan);
PieceSlots slots_from_parameters(const KernelPlan& plan, const ir::Value* values);
std::vector<ir::Value> slot_arguments(const KernelPlan& plan, const PieceSlots& slots);

// The slots of sequence `number`, as the reduce kernel needs them.
PieceSlots emit_sequence_slots(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                               ir::Value number, const Sequence& sequence);

ir::Value emit_slot(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                    const PieceSlots& slots, ir::Value piece);

// One piece of a sequence: tiles first, first + step, ... below end, counted from the row's first.
struct Piece {
  ir::Value number;  // of the sequence
  Sequence sequence;
  ir::Value first, end, step;
  ir::Value slot;
  PieceSlots slots;
};
using PieceBody = std::function<void(const Piece&)>;

// Runs `body` for every piece that split block `block` holds.
void emit_pieces_of_block(ir::Writer& writer, const KernelPlan& plan, ir::Value args,
                          ir::Value block, const PieceBody& body);

// Blocks of the split grid.
ir::Value emit_split_blocks(ir::Writer& writer, const KernelPlan& plan, ir::Value args);

}  // namespace splitkv::llvm_codegen
