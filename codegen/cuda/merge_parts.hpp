// The public merge as CUDA C++.
#pragma once

#include "codegen/kernel_source.hpp"
#include "compiler/problem.hpp"

namespace splitkv {

// form: mlo or lse. base: natural or base2. See codegen/merge_source.hpp for the launch.
KernelSource emit_merge_cuda(Merge form, LseOutput base);

}  // namespace splitkv
