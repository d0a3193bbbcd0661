// Elements of q, k, v and out in memory, as fp32 in registers. Rounding to a narrower type is to
// nearest, ties to even.
#pragma once

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/dtype.hpp"

namespace splitkv::llvm_codegen {

// `lanes` elements at `address`, which is a multiple of `align` bytes.
ir::Value emit_load_elements(ir::Writer& writer, DType dtype, bool native_half, ir::Value address,
                             int lanes, int align, std::string_view hint);

void emit_store_elements(ir::Writer& writer, DType dtype, bool native_half, ir::Value value,
                         ir::Value address, int align);

}  // namespace splitkv::llvm_codegen
