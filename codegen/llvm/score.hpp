// Lowers score expressions. Positions, heads and lengths are integers and stay 64-bit integers for
// as long as integer operations reach, so that masks are exact at every length; what meets the dot
// product is a real number.
#pragma once

#include <functional>

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/score.hpp"

namespace splitkv::llvm_codegen {

// Gives the value of a leaf: a real number for dot, an i64 for the others, scalar or a vector.
using ScoreLeaf = std::function<ir::Value(ScoreOp)>;

// As the real numbers that `real` says (lanes 0: scalar); dot leaves have that element type. In f64
// tanh, exp and log are still taken in fp32.
ir::Value emit_score(ir::Writer& writer, const ScoreExpr& expr, ir::Type real,
                     const ScoreLeaf& leaf);
// As truth values (i1), with the lanes of `real`.
ir::Value emit_condition(ir::Writer& writer, const ScoreExpr& expr, ir::Type real,
                         const ScoreLeaf& leaf);
// As an i64 scalar.
ir::Value emit_position(ir::Writer& writer, const ScoreExpr& expr, const ScoreLeaf& leaf);

}  // namespace splitkv::llvm_codegen
