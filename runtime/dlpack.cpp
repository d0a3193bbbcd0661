#include "runtime/dlpack.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace splitkv {
namespace {

constexpr int32_t kHost = 1, kCuda = 2, kPinnedHost = 3, kCudaManaged = 13;

struct NamedType {
  const char* name;
  splitkv_dl_dtype dtype;
};

constexpr NamedType kTypes[] = {
    {"fp32", {2, 32, 1}},   {"fp16", {2, 16, 1}},          {"fp64", {2, 64, 1}},
    {"bf16", {4, 16, 1}},   {"float8_e4m3fn", {10, 8, 1}}, {"float8_e5m2", {12, 8, 1}},
    {"int8", {0, 8, 1}},    {"int16", {0, 16, 1}},         {"int32", {0, 32, 1}},
    {"int64", {0, 64, 1}},  {"uint8", {1, 8, 1}},          {"uint16", {1, 16, 1}},
    {"uint32", {1, 32, 1}}, {"uint64", {1, 64, 1}},        {"bool", {6, 8, 1}}};

bool same(const splitkv_dl_dtype& a, const splitkv_dl_dtype& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

std::string device_name(const splitkv_dl_device& device) {
  switch (device.type) {
    case kHost:
      return "cpu";
    case kCuda:
      return fmt::format("cuda:{}", device.id);
    case kPinnedHost:
      return "cpu (pinned)";
    case kCudaManaged:
      return fmt::format("cuda:{} (managed)", device.id);
    default:
      return fmt::format("device type {} id {}", device.type, device.id);
  }
}

Outcome check_device(const PreparedKernel& kernel, const splitkv_dl_device& device,
                     const char* field) {
  bool fits = device.type == kHost || device.type == kPinnedHost;
  if (kernel.target.kind == TargetKind::cuda) {
    const std::string_view name = kernel.device;
    const size_t colon = name.find(':');
    int ordinal = 0;
    if (colon != std::string_view::npos) {
      std::from_chars(name.data() + colon + 1, name.data() + name.size(), ordinal);
    }
    fits = device.type == kCudaManaged || (device.type == kCuda && device.id == ordinal);
  }
  if (fits) return Unit{};
  return invalid_argument(fmt::format(
      "{} lies on {}, but the kernel was prepared on {}; a tensor there, or a kernel of the "
      "tensor's device, would fit",
      field, device_name(device), kernel.device));
}

std::string shape_text(const splitkv_dl_tensor& tensor) {
  return fmt::format("[{}]",
                     fmt::join(tensor.shape, tensor.shape + std::max(tensor.ndim, 0), ", "));
}

std::string wanted_shape(const WantedTensor& wanted) {
  std::vector<std::string> dims;
  for (const WantedDim& dim : wanted.dims) {
    dims.push_back(dim.size == WantedDim::kAny ? std::string(dim.name)
                                               : fmt::format("{}={}", dim.name, dim.size));
    if (dim.repeats) dims.back() += " or 1";
  }
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Outcome check_type(const splitkv_dl_tensor& tensor, const WantedTensor& wanted) {
  std::vector<std::string> names;
  for (const splitkv_dl_dtype& dtype : wanted.dtypes) {
    if (same(dtype, tensor.dtype)) return Unit{};
    names.push_back(dl_name(dtype));
  }
  return invalid_argument(fmt::format("{} holds {}; {} would fit", wanted.field,
                                      dl_name(tensor.dtype), fmt::join(names, " or ")));
}

Outcome check_shape(const splitkv_dl_tensor& tensor, const WantedTensor& wanted) {
  bool fits = tensor.ndim == int32_t(wanted.dims.size());
  for (size_t i = 0; fits && i < wanted.dims.size(); ++i) {
    const WantedDim& dim = wanted.dims[i];
    const int64_t size = tensor.shape[i];
    fits = size >= 0 &&
           (dim.size == WantedDim::kAny || size == dim.size || (dim.repeats && size == 1));
  }
  if (fits) return Unit{};
  return invalid_argument(fmt::format("{} has the shape {}; {} would fit", wanted.field,
                                      shape_text(tensor), wanted_shape(wanted)));
}

// `dense`: the stride that the dimension has in a dense tensor.
Result<int64_t> stride_of(const splitkv_dl_tensor& tensor, const WantedTensor& wanted, size_t i,
                          int64_t dense) {
  const WantedDim& dim = wanted.dims[i];
  const int64_t size = tensor.shape[i];
  if (dim.repeats && size == 1 && dim.size != 1) return int64_t(0);
  if (size <= 1 || tensor.strides == nullptr) return dense;
  const int64_t stride = tensor.strides[i];
  const bool last = i + 1 == wanted.dims.size();
  if (last && wanted.last_is_dense && stride != 1) {
    return invalid_argument(fmt::format(
        "{} has a stride of {} in its last dimension, {}; 1 (a contiguous copy) would fit",
        wanted.field, stride, dim.name));
  }
  if (stride > 0 || (stride == 0 && dim.repeats)) return stride;
  return invalid_argument(fmt::format(
      "{} has a stride of {} in dimension {}, {}; above 0 (a contiguous copy) would fit",
      wanted.field, stride, i, dim.name));
}

}  // namespace

std::string dl_name(const splitkv_dl_dtype& dtype) {
  for (const NamedType& type : kTypes) {
    if (same(type.dtype, dtype)) return type.name;
  }
  return fmt::format("type code {} of {} bits in {} lanes", dtype.code, dtype.bits, dtype.lanes);
}

std::vector<splitkv_dl_dtype> dl_types_of(DType type) {
  switch (type) {
    case DType::fp32:
      return {{2, 32, 1}};
    case DType::fp16:
      return {{2, 16, 1}};
    case DType::bf16:
      return {{4, 16, 1}};
    case DType::e4m3:
      return {{10, 8, 1}, {1, 8, 1}};
    case DType::e5m2:
      return {{12, 8, 1}, {1, 8, 1}};
    case DType::int8:
      return {{0, 8, 1}};
  }
  return {};
}

Result<FoundTensor> find_tensor(const PreparedKernel& kernel, const splitkv_dl_tensor* tensor,
                                const WantedTensor& wanted) {
  if (tensor == nullptr) {
    return invalid_argument(
        fmt::format("{} is NULL; a tensor {} would fit", wanted.field, wanted_shape(wanted)));
  }
  if (tensor->ndim < 0 || (tensor->ndim > 0 && tensor->shape == nullptr)) {
    return invalid_argument(fmt::format("{} has ndim={} and {} shape; {} would fit", wanted.field,
                                        tensor->ndim, tensor->shape == nullptr ? "no" : "a",
                                        wanted_shape(wanted)));
  }
  if (Outcome fits = check_device(kernel, tensor->device, wanted.field); !fits) return fits.error();
  if (Outcome fits = check_type(*tensor, wanted); !fits) return fits.error();
  if (Outcome fits = check_shape(*tensor, wanted); !fits) return fits.error();
  FoundTensor found;
  found.dtype = tensor->dtype;
  found.data =
      tensor->data == nullptr ? nullptr : static_cast<char*>(tensor->data) + tensor->byte_offset;
  found.sizes.assign(tensor->shape, tensor->shape + tensor->ndim);
  found.strides.resize(found.sizes.size());
  int64_t dense = 1;
  for (size_t i = found.sizes.size(); i-- > 0;) {
    const Result<int64_t> stride = stride_of(*tensor, wanted, i, dense);
    if (!stride) return stride.error();
    found.strides[i] = *stride;
    // Where this dimension lies apart, a dense one outside it begins behind its last entry.
    dense = std::max(dense * std::max<int64_t>(found.sizes[i], 1), *stride * found.sizes[i]);
  }
  return found;
}

}  // namespace splitkv
