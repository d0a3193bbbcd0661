#include "codegen/append_source.hpp"

#include "codegen/cuda/append.hpp"
#include "codegen/llvm/append.hpp"

namespace splitkv {

KernelSource emit_append(const Append& append, const Target& target) {
  return target.kind == TargetKind::cuda ? emit_append_cuda(append)
                                         : emit_append_llvm(append, target);
}

int64_t append_blocks(const Append& append, int64_t tokens) {
  const int64_t rows = tokens * append.kv_heads * (append.v_in_k ? 1 : 2);
  return (rows + kAppendWarps - 1) / kAppendWarps;
}

}  // namespace splitkv
