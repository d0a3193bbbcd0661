// Where a token's rows go in the cache: the CPU form of what templates/append.cuh does.
#pragma once

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/append.hpp"

namespace splitkv::llvm_codegen {

// What @place_k and @place_v write, i64 each; `row` is kept from token to token, where places are
// found by rows: the next token mostly belongs to the same one.
enum AppendPlaceField { kPlaceBlock, kPlaceToken, kPlaceExists, kPlaceRow, kPlaceFields };

// Defines @place_k(args, token, where), and @place_v where V goes elsewhere.
void emit_append_place_functions(ir::Writer& writer, const Append& append);

}  // namespace splitkv::llvm_codegen
