// fp32 in registers into the types of a KV cache, as compiler/append.hpp says: clamped to what the
// type holds, rounded to nearest with ties to even.
#pragma once

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/dtype.hpp"

namespace splitkv::llvm_codegen {

// `value` held to the finite numbers of a type; NaN stays NaN.
ir::Value emit_clamped(ir::Writer& writer, DType dtype, ir::Value value);

// Elements at `address`, which is a multiple of `align` bytes. 8-bit types: clamped before.
void emit_store_quantised(ir::Writer& writer, DType dtype, bool native_half, ir::Value value,
                          ir::Value address, int align);

}  // namespace splitkv::llvm_codegen
