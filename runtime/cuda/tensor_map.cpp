#include "runtime/cuda/tensor_map.hpp"

#include <fmt/format.h>

namespace splitkv::cuda {
namespace {

constexpr int64_t kStrideEnd = int64_t(1) << 40;  // bytes; a stride is below it

struct CacheTensor {
  const char* field;  // "k"
  const void* data;
  int64_t stride_block, stride_head, stride_token;  // elements
};

Outcome check_stride(const CacheTensor& tensor, const char* dimension, int64_t elements,
                     int64_t bytes) {
  if (bytes >= 0 && bytes < kStrideEnd) return Unit{};
  return invalid_argument(
      fmt::format("tensors.{}_stride_{}={} elements is {} bytes, outside [0, 2^40), which "
                  "loads=tensor takes; a schedule with loads=copy would fit",
                  tensor.field, dimension, elements, bytes));
}

// Dimensions from the innermost: elements of a column, tokens, columns of a row, heads, blocks. The
// ends of tokens and blocks are the row's length and page ids, which the kernel keeps to.
Outcome encode(const Driver& driver, const TensorBox& box, const CacheTensor& tensor,
               TensorMap& map) {
  const int64_t column_bytes = int64_t(box.column) * box.element_bytes;
  const int64_t token = tensor.stride_token * box.element_bytes;
  const int64_t block = tensor.stride_block * box.element_bytes;
  // A stride that is never applied may be anything.
  const int64_t head =
      box.heads == 1 ? column_bytes * box.columns : tensor.stride_head * box.element_bytes;
  if (Outcome ok = check_stride(tensor, "token", tensor.stride_token, token); !ok) return ok;
  if (Outcome ok = check_stride(tensor, "head", tensor.stride_head, head); !ok) return ok;
  if (Outcome ok = check_stride(tensor, "block", tensor.stride_block, block); !ok) return ok;
  constexpr uint64_t kOpenEnd = uint64_t(1) << 31;
  const uint64_t ends[5] = {uint64_t(box.column), kOpenEnd, uint64_t(box.columns),
                            uint64_t(box.heads), kOpenEnd};
  const uint64_t strides[4] = {uint64_t(token), uint64_t(column_bytes), uint64_t(head),
                               uint64_t(block)};
  const uint32_t step[5] = {uint32_t(box.column), uint32_t(box.copied_keys),
                            uint32_t(box.copied_columns), 1, 1};
  const uint32_t every[5] = {1, 1, 1, 1, 1};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, box.element_bytes == 1 ? kTensorUint8 : kTensorUint16, 5,
      const_cast<void*>(tensor.data), ends, strides, step, every, kInterleaveNone,
      column_bytes == 128 ? kSwizzle128Bytes : kSwizzle64Bytes, kPromotionNone, kFillNone);
  if (result != kSuccess) return driver_error(driver, "cuTensorMapEncodeTiled", result);
  return Unit{};
}

}  // namespace

Outcome encode_tensor_maps(const Driver& driver, const LaunchShape& shape, LaunchArgs& args) {
  const CacheTensor k{"k", args.k, args.k_stride_block, args.k_stride_head, args.k_stride_token};
  if (Outcome ok = encode(driver, shape.k_box, k, args.k_map); !ok) return ok;
  if (shape.v_box.columns == 0) return Unit{};
  const CacheTensor v{"v", args.v, args.v_stride_block, args.v_stride_head, args.v_stride_token};
  return encode(driver, shape.v_box, v, args.v_map);
}

}  // namespace splitkv::cuda
