// The CPU form of the KV writer (codegen/append_source.hpp).
#pragma once

#include "codegen/kernel_source.hpp"
#include "compiler/append.hpp"
#include "compiler/target.hpp"

namespace splitkv {

KernelSource emit_append_llvm(const Append& append, const Target& target);

}  // namespace splitkv
