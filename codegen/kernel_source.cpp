#include "codegen/kernel_source.hpp"

namespace splitkv {

KernelSource emit(const Problem& problem, const Schedule& schedule, const Target& target) {
  return target.kind == TargetKind::cuda ? emit_cuda(problem, schedule)
                                         : emit_llvm(problem, schedule, target);
}

}  // namespace splitkv
