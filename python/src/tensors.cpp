#include "python/src/tensors.hpp"

#include <nanobind/stl/string.h>

#include "python/src/errors.hpp"

namespace nb = nanobind;

namespace splitkv::python {
namespace {

constexpr int32_t kHost = 1, kCuda = 2, kPinnedHost = 3, kCudaManaged = 13;
constexpr uint64_t kReadOnly = 1;  // of a capsule's flags

// What a capsule named "dltensor" holds: DLPack before 1.0.
struct LegacyTensor {
  splitkv_dl_tensor tensor;
};

struct NumpyType {
  const char* name;
  splitkv_dl_dtype dtype;
  const char* carrier;  // numpy's own type of that size
};

// Types that ml_dtypes adds to numpy and numpy does not export.
constexpr NumpyType kAddedTypes[] = {{"bfloat16", {4, 16, 1}, "uint16"},
                                     {"float8_e4m3fn", {10, 8, 1}, "uint8"},
                                     {"float8_e5m2", {12, 8, 1}, "uint8"}};

std::string type_text(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

const NumpyType* added_type(nb::handle source) {
  const nb::str name_of_numpy("numpy");
  const nb::object numpy = nb::steal(PyImport_GetModule(name_of_numpy.ptr()));
  if (!numpy.is_valid() || !nb::isinstance(source, numpy.attr("ndarray"))) return nullptr;
  const nb::object dtype = source.attr("dtype");
  if (nb::cast<int>(dtype.attr("num")) < 256) return nullptr;  // numpy's own
  const std::string name = nb::cast<std::string>(nb::str(dtype.attr("name")));
  for (const NumpyType& added : kAddedTypes) {
    if (name == added.name) return &added;
  }
  return nullptr;
}

nb::object export_with(nb::handle source, const nb::dict& options) {
  return source.attr("__dlpack__")(**options);
}

// A capsule of DLPack 1.x, or of 0.x from producers that know no other.
nb::object export_capsule(nb::handle source, const char* field, const Consumer& consumer) {
  if (!nb::hasattr(source, "__dlpack__") || !nb::hasattr(source, "__dlpack_device__")) {
    const std::string text = std::string(field) + " is of type " + type_text(source) +
                             "; an array with __dlpack__ (numpy, torch, jax, cupy) would fit";
    throw nb::type_error(text.c_str());
  }
  try {
    const int device = nb::cast<int>(source.attr("__dlpack_device__")()[nb::int_(0)]);
    nb::dict options;
    if (consumer.cuda && (device == kCuda || device == kCudaManaged)) {
      options["stream"] = nb::int_(consumer.stream == 0 ? 1 : consumer.stream);
    }
    nb::dict versioned;
    versioned.update(options);
    versioned["max_version"] = nb::make_tuple(1, 1);
    try {
      return export_with(source, versioned);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
    return export_with(source, options);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    refuse(std::string(field) +
           " cannot be seen by DLPack: " + nb::cast<std::string>(nb::str(error.value())));
  }
}

splitkv_dl_tensor view_of(const nb::object& capsule, const char* field, bool writable,
                          bool& read_only) {
  read_only = false;
  if (void* pointer = PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")
                          ? PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned")
                          : nullptr) {
    const auto* managed = static_cast<const splitkv_dl_managed_tensor*>(pointer);
    const splitkv_dl_tensor* tensor = nullptr;
    Message message(Message::kShort);
    const splitkv_status status =
        splitkv_dl_view(managed, writable ? 1 : 0, &tensor, message.get());
    if (status != SPLITKV_OK) raise(status, std::string(field) + ": " + message.text());
    read_only = (managed->flags & kReadOnly) != 0;
    return *tensor;
  }
  if (!PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    refuse(std::string(field) + "'s __dlpack__ gave " + type_text(capsule) +
           "; a capsule named dltensor_versioned or dltensor would fit");
  }
  return static_cast<const LegacyTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
}

std::string type_text(const splitkv_dl_dtype& dtype) {
  const char* kinds[] = {"int", "uint", "fp"};
  const std::string bits = std::to_string(dtype.bits);
  if (dtype.code <= 2) return kinds[dtype.code] + bits;
  if (dtype.code == 4) return "bf" + bits;
  return "type code " + std::to_string(dtype.code) + " of " + bits + " bits";
}

std::string device_text(const splitkv_dl_device& device) {
  if (device.type == kHost || device.type == kPinnedHost) return "cpu";
  const bool cuda = device.type == kCuda || device.type == kCudaManaged;
  return (cuda ? "cuda" : "device type " + std::to_string(device.type)) + ":" +
         std::to_string(device.id);
}

}  // namespace

Tensor::Tensor(nb::handle source, const char* field, bool writable, const Consumer& consumer)
    : field_(field) {
  const NumpyType* added = added_type(source);
  if (added != nullptr) {
    kept_ = export_capsule(source.attr("view")(added->carrier), field, consumer);
  } else {
    kept_ = export_capsule(source, field, consumer);
  }
  view_ = view_of(kept_, field, writable, read_only_);
  if (added != nullptr) view_.dtype = added->dtype;
}

void* Tensor::data() const {
  return view_.data == nullptr ? nullptr : static_cast<char*>(view_.data) + view_.byte_offset;
}

int64_t Tensor::stride(int32_t i) const {
  if (view_.strides != nullptr) return view_.strides[i];
  int64_t stride = 1;
  for (int32_t j = i + 1; j < view_.ndim; ++j) stride *= view_.shape[j];
  return stride;
}

std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (int32_t i = 0; i < tensor.get()->ndim; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  }
  return text + "]";
}

void check_device(const Tensor& tensor, const std::string& device) {
  const splitkv_dl_device& at = tensor.get()->device;
  const bool cuda = device.rfind("cuda", 0) == 0;
  const bool fits = cuda ? at.type == kCudaManaged || device_text(at) == device
                         : at.type == kHost || at.type == kPinnedHost;
  if (fits) return;
  refuse(std::string(tensor.field()) + " lies on " + device_text(at) +
         ", but the call is prepared for " + device + "; a tensor there would fit");
}

void check_tensor(const Tensor& tensor, const Wanted& wanted, const std::string& device) {
  check_device(tensor, device);
  const splitkv_dl_dtype& dtype = tensor.get()->dtype;
  std::string names;
  bool fits = false;
  for (const splitkv_dl_dtype& one : wanted.dtypes) {
    fits = fits || (one.code == dtype.code && one.bits == dtype.bits && one.lanes == dtype.lanes);
    names += (names.empty() ? "" : " or ") + type_text(one);
  }
  const std::string field = tensor.field();
  if (!fits) refuse(field + " holds " + type_text(dtype) + "; " + names + " would fit");
  fits = tensor.get()->ndim == int32_t(wanted.sizes.size());
  for (size_t i = 0; fits && i < wanted.sizes.size(); ++i) {
    fits = wanted.sizes[i] < 0 || wanted.sizes[i] == tensor.size(int32_t(i));
  }
  if (!fits) {
    refuse(field + " has the shape " + shape_of(tensor) + "; " + wanted.shape + " would fit");
  }
}

void check_dense_from(const Tensor& tensor, int32_t dim) {
  int64_t dense = 1;
  for (int32_t i = tensor.get()->ndim; i-- > dim;) {
    if (tensor.size(i) > 1 && tensor.stride(i) != dense) {
      refuse(std::string(tensor.field()) + " has a stride of " + std::to_string(tensor.stride(i)) +
             " in dimension " + std::to_string(i) + "; " + std::to_string(dense) +
             " (a contiguous copy) would fit");
    }
    dense *= tensor.size(i);
  }
}

Rows collapse(const Tensor& tensor, int32_t begin, int32_t end) {
  Rows rows;
  bool first = true;
  for (int32_t i = end; i-- > begin;) {
    if (tensor.size(i) == 1) continue;
    if (first) rows.stride = tensor.stride(i);
    if (!first && tensor.size(i) > 0 && tensor.stride(i) != rows.stride * rows.count) {
      refuse(std::string(tensor.field()) + " has a stride of " + std::to_string(tensor.stride(i)) +
             " in dimension " + std::to_string(i) + "; " +
             std::to_string(rows.stride * rows.count) + " (a contiguous copy) would fit");
    }
    first = false;
    rows.count *= tensor.size(i);
  }
  return rows;
}

}  // namespace splitkv::python
