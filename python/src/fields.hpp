// Tensors and numbers by name, as Python hands them over, into fields of the structs of the C API.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "python/src/errors.hpp"
#include "python/src/tensors.hpp"

namespace splitkv::python {

template <class Struct>
struct TensorField {
  const char* name;
  const splitkv_dl_tensor* Struct::*field;
  bool written = false;
};

// Names of `given` that no field has are a fault of the package itself and throw std::logic_error.
template <class Struct, size_t count>
std::vector<Tensor> read_tensors(const nanobind::dict& given,
                                 const TensorField<Struct> (&fields)[count],
                                 const Consumer& consumer, Struct& into) {
  std::vector<Tensor> tensors;
  tensors.reserve(given.size());
  size_t found = 0;
  for (const TensorField<Struct>& field : fields) {
    const nanobind::str name(field.name);
    if (!given.contains(name)) continue;
    ++found;
    tensors.emplace_back(given[name], field.name, field.written, consumer);
    into.*field.field = tensors.back().get();
  }
  if (found != given.size()) throw std::logic_error("a tensor of no field");
  return tensors;
}

// A whole number of `given`, or `absent`; throws splitkv.InvalidArgument for what is none.
inline int64_t number(const nanobind::dict& given, const char* name, int64_t absent = 0) {
  const nanobind::str key(name);
  if (!given.contains(key)) return absent;
  int64_t value = 0;
  if (nanobind::try_cast<int64_t>(given[key], value)) return value;
  refuse(std::string(name) + "=" + nanobind::cast<std::string>(nanobind::repr(given[key])) +
         "; a whole number of 64 bits would fit");
}

// One for a field of 32 bits.
inline int32_t small_number(const nanobind::dict& given, const char* name) {
  const int64_t value = number(given, name);
  if (value < INT32_MIN || value > INT32_MAX) {
    refuse(std::string(name) + "=" + std::to_string(value) + " does not fit in 32 bits; " +
           std::to_string(INT32_MIN) + " to " + std::to_string(INT32_MAX) + " would fit");
  }
  return int32_t(value);
}

}  // namespace splitkv::python
