#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/launch.hpp"
#include "runtime/pointer_checks.hpp"

namespace splitkv {
namespace {

struct DenseTensor {
  int64_t stride_block, stride_head, stride_token;
};

// Elements from one row to the next where they lie densely: an inline scale follows the elements,
// and the row is filled up to the alignment class.
int64_t row_elements(const Problem& problem, int64_t dim, DType type, KvScale scale) {
  if (scale != KvScale::inl) return dim;
  const int64_t bytes = dim * size_bytes(type) + int64_t(sizeof(float));
  const int64_t unit = std::max(problem.align, size_bytes(type));
  return (bytes + unit - 1) / unit * unit / size_bytes(type);
}

DenseTensor dense_tensor(const Problem& problem, int64_t capacity, int64_t row) {
  const int64_t heads = problem.kv_heads;
  const bool paged = is_paged(problem);
  const int64_t tokens = paged ? problem.kv_layout.page_size : capacity;
  const bool token_major = paged ? problem.kv_layout.page_order == PageOrder::nhd
                                 : problem.kv_layout.kind == KvLayoutKind::bthd;
  if (token_major) {
    return {.stride_block = tokens * heads * row, .stride_head = row, .stride_token = heads * row};
  }
  return {.stride_block = tokens * heads * row, .stride_head = tokens * row, .stride_token = row};
}

Outcome check_cache_pointer(const char* field, const void* pointer, int align) {
  if (pointer == nullptr) return invalid_argument(fmt::format("tensors.{} is NULL", field));
  if (reinterpret_cast<uintptr_t>(pointer) % uintptr_t(align) != 0) {
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

struct NamedStride {
  const char* field;
  int64_t value;
};

Outcome check_zero(std::initializer_list<NamedStride> strides, const char* why) {
  for (const NamedStride& stride : strides) {
    if (stride.value == 0) continue;
    return invalid_argument(fmt::format("tensors.{}={} is given, but {}; 0 would fit", stride.field,
                                        stride.value, why));
  }
  return Unit{};
}

Outcome check_cache(const Problem& problem, const splitkv_tensors& tensors) {
  if (Outcome k = check_cache_pointer("k", tensors.k, problem.align); !k) return k;
  if (problem.v_in_k) {
    const char* why = "the problem has v_in_k=on";
    if (Outcome v = check_absent({"tensors", "v", tensors.v}, why, "v_in_k=off"); !v) return v;
    if (Outcome v = check_zero({{"v_stride_block", tensors.v_stride_block},
                                {"v_stride_head", tensors.v_stride_head},
                                {"v_stride_token", tensors.v_stride_token}},
                               why);
        !v)
      return v;
  } else if (Outcome v = check_cache_pointer("v", tensors.v, problem.align); !v) {
    return v;
  }
  const bool heads = problem.kv_heads > 1;
  const bool tokens = !is_paged(problem) || problem.kv_layout.page_size > 1;
  const bool v = !problem.v_in_k;
  const int k_bytes = size_bytes(problem.k_dtype);
  const int v_bytes = size_bytes(problem.v_dtype);
  const Stride strides[] = {{"k_stride_block", tensors.k_stride_block, k_bytes, true},
                            {"k_stride_head", tensors.k_stride_head, k_bytes, heads},
                            {"k_stride_token", tensors.k_stride_token, k_bytes, tokens},
                            {"v_stride_block", tensors.v_stride_block, v_bytes, v},
                            {"v_stride_head", tensors.v_stride_head, v_bytes, v && heads},
                            {"v_stride_token", tensors.v_stride_token, v_bytes, v && tokens}};
  for (const Stride& stride : strides) {
    if (Outcome fits = check_stride(stride, problem.align); !fits) return fits;
  }
  return Unit{};
}

struct ScaleField {
  const char* field;
  const float* pointer;
  KvScale kind;
  bool in_k;  // V's, where V is K: K's scale is it
  std::initializer_list<NamedStride> strides;
};

Outcome check_scale(const ScaleField& scale) {
  const char* why = scale.in_k                   ? "V is part of K and has K's scale"
                    : scale.kind == KvScale::inl ? "inline scales lie in the rows"
                                                 : "the problem has no such scale";
  const bool wanted = !scale.in_k && scale.kind != KvScale::none && scale.kind != KvScale::inl;
  const Outcome pointer =
      check_presence({"tensors", scale.field, scale.pointer},
                     {wanted, 4,
                      scale.kind == KvScale::tensor ? "float [1]"
                      : scale.kind == KvScale::head ? "float [kv_heads]"
                                                    : "float [block, token, kv_heads] by strides",
                      why, fmt::format("{}=tensor, head or token", scale.field).c_str()});
  if (!pointer) return pointer;
  if (wanted && scale.kind == KvScale::token) return Unit{};
  return check_zero(scale.strides, wanted ? "only scales of tokens have strides" : why);
}

Outcome check_values(const Problem& problem, const splitkv_tensors& tensors) {
  if (Outcome fits = check_presence(
          {"tensors", "alibi_slopes", tensors.alibi_slopes},
          {problem.alibi, 4, "float [q_heads]", "the problem has no alibi=on", "alibi=on"});
      !fits)
    return fits;
  if (Outcome fits = check_presence(
          {"tensors", "sink", tensors.sink},
          {problem.sink, 4, "float [q_heads]", "the problem has no sink=on", "sink=on"});
      !fits)
    return fits;
  for (size_t i = 0; i < size_t(kMaxParams); ++i) {
    const bool wanted = i < problem.params.size();
    const std::string field = fmt::format("params[{}]", i);
    const std::string what =
        !wanted ? std::string()
                : fmt::format("the value of {}, float {}", problem.params[i].name,
                              problem.params[i].scope == ParamScope::scalar ? "[1]"
                              : problem.params[i].scope == ParamScope::head ? "[q_heads]"
                                                                            : "[batch]");
    const std::string why = fmt::format("the problem names {} params", problem.params.size());
    if (Outcome fits = check_presence({"tensors", field.c_str(), tensors.params[i]},
                                      {wanted, 4, what.c_str(), why.c_str(), "more params="});
        !fits)
      return fits;
  }
  return Unit{};
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
  const DenseTensor k = dense_tensor(
      problem, capacity, row_elements(problem, problem.dim_qk, problem.k_dtype, problem.k_scale));
  tensors.k_stride_block = k.stride_block;
  tensors.k_stride_head = k.stride_head;
  tensors.k_stride_token = k.stride_token;
  const DenseTensor scale = dense_tensor(problem, capacity, 1);
  if (problem.k_scale == KvScale::token) {
    tensors.k_scale_stride_block = scale.stride_block;
    tensors.k_scale_stride_head = scale.stride_head;
    tensors.k_scale_stride_token = scale.stride_token;
  }
  if (problem.v_in_k) return tensors;
  const DenseTensor v = dense_tensor(
      problem, capacity, row_elements(problem, problem.dim_v, problem.v_dtype, problem.v_scale));
  tensors.v_stride_block = v.stride_block;
  tensors.v_stride_head = v.stride_head;
  tensors.v_stride_token = v.stride_token;
  if (problem.v_scale == KvScale::token) {
    tensors.v_scale_stride_block = scale.stride_block;
    tensors.v_scale_stride_head = scale.stride_head;
    tensors.v_scale_stride_token = scale.stride_token;
  }
  return tensors;
}

Result<splitkv_binding> bind(const PreparedKernel& kernel, const splitkv_tensors& tensors) {
  const Problem& problem = kernel.problem;
  if (Outcome ok = check_cache(problem, tensors); !ok) return ok.error();
  if (Outcome ok = check_scale({"k_scale",
                                tensors.k_scale,
                                problem.k_scale,
                                false,
                                {{"k_scale_stride_block", tensors.k_scale_stride_block},
                                 {"k_scale_stride_head", tensors.k_scale_stride_head},
                                 {"k_scale_stride_token", tensors.k_scale_stride_token}}});
      !ok)
    return ok.error();
  if (Outcome ok = check_scale({"v_scale",
                                tensors.v_scale,
                                problem.v_scale,
                                problem.v_in_k,
                                {{"v_scale_stride_block", tensors.v_scale_stride_block},
                                 {"v_scale_stride_head", tensors.v_scale_stride_head},
                                 {"v_scale_stride_token", tensors.v_scale_stride_token}}});
      !ok)
    return ok.error();
  if (Outcome ok = check_values(problem, tensors); !ok) return ok.error();
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  binding.tensors = tensors;
  binding.kernel_id = kernel.binding_id;
  return binding;
}

}  // namespace splitkv
