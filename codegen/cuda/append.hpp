// The KV writer as CUDA C++.
#pragma once

#include "codegen/kernel_source.hpp"
#include "compiler/append.hpp"

namespace splitkv {

// See codegen/append_source.hpp for the launch.
KernelSource emit_append_cuda(const Append& append);

}  // namespace splitkv
