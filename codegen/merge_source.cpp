#include "codegen/merge_source.hpp"

#include "codegen/cuda/merge_parts.hpp"
#include "codegen/llvm/merge_parts.hpp"

namespace splitkv {

KernelSource emit_merge(Merge form, LseOutput base, const Target& target) {
  return target.kind == TargetKind::cuda ? emit_merge_cuda(form, base)
                                         : emit_merge_llvm(form, base, target);
}

}  // namespace splitkv
