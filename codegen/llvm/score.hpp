// Lowers score expressions. Positions, heads and lengths are integers and stay 64-bit integers for
// as long as integer operations reach, so that masks are exact at every length; what meets the dot
// product or a parameter is a real number.
#pragma once

#include <functional>

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/score.hpp"

namespace splitkv::llvm_codegen {

// Gives the value of a leaf, scalar or a vector: f32 or f64 for dot, bias and params, i64 for the
// others.
using ScoreLeaf = std::function<ir::Value(const ScoreNode&)>;

// As the real numbers that `real` says (lanes 0: scalar). In f64 tanh, exp, log and sigmoid are
// still taken in fp32.
ir::Value emit_score(ir::Writer& writer, const ScoreExpr& expr, ir::Type real,
                     const ScoreLeaf& leaf);
// As truth values (i1) of `lanes` lanes. Real numbers are taken in f64.
ir::Value emit_condition(ir::Writer& writer, const ScoreExpr& expr, int lanes,
                         const ScoreLeaf& leaf);
// As an i64 scalar, rounded down.
ir::Value emit_position(ir::Writer& writer, const ScoreExpr& expr, const ScoreLeaf& leaf);

}  // namespace splitkv::llvm_codegen
