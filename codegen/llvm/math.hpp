// Elementary functions on vectors or scalars, as polynomials: LLVM's own intrinsics would become
// one library call a lane. Arguments are fp32, or fp64 where it says so; of fp64, exp, log, tanh
// and sigmoid are within 4 ulp.
#pragma once

#include "codegen/llvm/ir_writer.hpp"

namespace splitkv::llvm_codegen {

// 2^x within 2 ulp; below 2^-126 exactly 0 (so exp2(-inf) = 0), from 2^128 on +inf.
ir::Value emit_exp2(ir::Writer& writer, ir::Value x);
// The same for x <= 0: what a softmax needs.
ir::Value emit_exp2_nonpositive(ir::Writer& writer, ir::Value x);
// Also fp64, where the bounds are 2^-1022 and 2^1024.
ir::Value emit_exp(ir::Writer& writer, ir::Value x);
// log(0) = -inf, log(inf) = inf, NaN below 0; subnormals are right.
ir::Value emit_log2(ir::Writer& writer, ir::Value x);
ir::Value emit_log(ir::Writer& writer, ir::Value x);  // also fp64
// Within 3 ulp, of any finite x and of the infinities. Also fp64.
ir::Value emit_tanh(ir::Writer& writer, ir::Value x);
// 1 / (1 + e^-x), of any finite x and of the infinities. Also fp64.
ir::Value emit_sigmoid(ir::Writer& writer, ir::Value x);

}  // namespace splitkv::llvm_codegen
