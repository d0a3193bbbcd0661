// The CPU form of the public merge (codegen/merge_source.hpp).
#pragma once

#include "codegen/merge_source.hpp"

namespace splitkv {

KernelSource emit_merge_llvm(Merge form, LseOutput base, const Target& target);

}  // namespace splitkv
