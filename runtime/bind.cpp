#include <fmt/format.h>

#include <limits>

#include "runtime/launch.hpp"

namespace splitkv {
namespace {

struct DenseTensor {
  int64_t stride_block, stride_head, stride_token;
};

DenseTensor dense_tensor(const Problem& problem, int64_t capacity, int64_t dim) {
  const int64_t heads = problem.kv_heads;
  const bool paged = is_paged(problem);
  const int64_t tokens = paged ? problem.kv_layout.page_size : capacity;
  const bool token_major = paged ? problem.kv_layout.page_order == PageOrder::nhd
                                 : problem.kv_layout.kind == KvLayoutKind::bthd;
  if (token_major) {
    return {.stride_block = tokens * heads * dim, .stride_head = dim, .stride_token = heads * dim};
  }
  return {.stride_block = tokens * heads * dim, .stride_head = tokens * dim, .stride_token = dim};
}

Outcome check_pointer(const char* field, const void* pointer, int align) {
  if (pointer == nullptr) return invalid_argument(fmt::format("tensors.{} is NULL", field));
  if (reinterpret_cast<uintptr_t>(pointer) % align != 0) {
    return invalid_argument(fmt::format(
        "tensors.{}={} is no multiple of the problem's align={} bytes; a weaker align= would fit",
        field, pointer, align));
  }
  return Unit{};
}

struct Stride {
  const char* field;
  int64_t elements;
  int element_bytes;
  bool used;  // false where the dimension has one entry: its stride is never applied
};

Outcome check_stride(const Stride& stride, int align) {
  if (!stride.used || stride.elements % align * stride.element_bytes % align == 0) return Unit{};
  return invalid_argument(fmt::format(
      "tensors.{}={} elements of {} bytes is no multiple of the problem's align={} "
      "bytes; a multiple of {} elements, or a weaker align=, would fit",
      stride.field, stride.elements, stride.element_bytes, align, align / stride.element_bytes));
}

}  // namespace

Result<splitkv_tensors> dense_strides(const Problem& problem, int64_t capacity) {
  if (!is_paged(problem) && capacity < 0) {
    return invalid_argument(
        fmt::format("capacity={} is negative; the tokens that a row can hold would fit", capacity));
  }
  if (!is_paged(problem) && capacity > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(
        fmt::format("capacity={} is above {}, the largest length; that or less would fit", capacity,
                    std::numeric_limits<int32_t>::max()));
  }
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  const DenseTensor k = dense_tensor(problem, capacity, problem.dim_qk);
  const DenseTensor v = dense_tensor(problem, capacity, problem.dim_v);
  tensors.k_stride_block = k.stride_block;
  tensors.k_stride_head = k.stride_head;
  tensors.k_stride_token = k.stride_token;
  tensors.v_stride_block = v.stride_block;
  tensors.v_stride_head = v.stride_head;
  tensors.v_stride_token = v.stride_token;
  return tensors;
}

Result<splitkv_binding> bind(const PreparedKernel& kernel, const splitkv_tensors& tensors) {
  const Problem& problem = kernel.problem;
  const bool heads = problem.kv_heads > 1;
  const bool tokens = !is_paged(problem) || problem.kv_layout.page_size > 1;
  const int k_bytes = size_bytes(problem.k_dtype);
  const int v_bytes = size_bytes(problem.v_dtype);
  const Stride strides[] = {{"k_stride_block", tensors.k_stride_block, k_bytes, true},
                            {"k_stride_head", tensors.k_stride_head, k_bytes, heads},
                            {"k_stride_token", tensors.k_stride_token, k_bytes, tokens},
                            {"v_stride_block", tensors.v_stride_block, v_bytes, true},
                            {"v_stride_head", tensors.v_stride_head, v_bytes, heads},
                            {"v_stride_token", tensors.v_stride_token, v_bytes, tokens}};
  if (Outcome k = check_pointer("k", tensors.k, problem.align); !k) return k.error();
  if (Outcome v = check_pointer("v", tensors.v, problem.align); !v) return v.error();
  for (const Stride& stride : strides) {
    if (Outcome fits = check_stride(stride, problem.align); !fits) return fits.error();
  }
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  binding.tensors = tensors;
  binding.kernel_id = kernel.binding_id;
  return binding;
}

}  // namespace splitkv
