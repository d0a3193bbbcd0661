// Lowers score expressions. Positions, heads and lengths are integers and stay 64-bit integers for
// as long as integer operations reach, so that masks are exact at every length; what meets the dot
// product is fp32.
#pragma once

#include <functional>

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/score.hpp"

namespace splitkv::llvm_codegen {

// Gives the value of a leaf: an fp32 for dot, an i64 for the others, scalar or a vector.
using ScoreLeaf = std::function<ir::Value(ScoreOp)>;

// As fp32, of `lanes` lanes (0: scalar).
ir::Value emit_score(ir::Writer& writer, const ScoreExpr& expr, int lanes, const ScoreLeaf& leaf);
// As a truth value (i1), of `lanes` lanes.
ir::Value emit_condition(ir::Writer& writer, const ScoreExpr& expr, int lanes,
                         const ScoreLeaf& leaf);
// As an i64 scalar.
ir::Value emit_position(ir::Writer& writer, const ScoreExpr& expr, const ScoreLeaf& leaf);

}  // namespace splitkv::llvm_codegen
