// Tensors of other libraries, seen through DLPack without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/splitkv_dlpack.h"

namespace splitkv::python {

// Where tensors are wanted: what a producer is told about the consumer's stream.
struct Consumer {
  bool cuda = false;
  uintptr_t stream = 0;  // a CUstream; 0: the default one
};

// Holds what keeps the memory: the producer's capsule, which calls the producer's deleter when it
// goes. Made and destroyed with the GIL held.
class Tensor {
 public:
  // Throws TypeError where `source` has no __dlpack__, splitkv.InvalidArgument where it exports
  // another version than 0 or 1, is read only and `writable`, or refuses to be exported.
  Tensor(nanobind::handle source, const char* field, bool writable, const Consumer& consumer);

  const splitkv_dl_tensor* get() const { return &view_; }
  // The first element, byte_offset counted.
  void* data() const;
  int64_t size(int32_t i) const { return view_.shape[i]; }
  int64_t stride(int32_t i) const;  // elements; of a dense tensor too
  const char* field() const { return field_; }
  // The producer said that its memory may not be written. DLPack 0.x cannot say so.
  bool read_only() const { return read_only_; }

 private:
  const char* field_;
  bool read_only_ = false;
  nanobind::object kept_;
  splitkv_dl_tensor view_;
};

// The checks below are for calls that the C API takes as plain pointers; they throw
// splitkv.InvalidArgument with field, value and what would fit.

struct Wanted {
  std::vector<splitkv_dl_dtype> dtypes;
  std::vector<int64_t> sizes;  // -1: any
  const char* shape;           // as messages print it
};

void check_tensor(const Tensor& tensor, const Wanted& wanted, const std::string& device);
void check_device(const Tensor& tensor, const std::string& device);
void check_dense_from(const Tensor& tensor, int32_t dim);  // this dimension and those behind it

// Dimensions [begin, end) as one: how many entries, and how far they lie apart.
struct Rows {
  int64_t count = 1, stride = 0;
};
Rows collapse(const Tensor& tensor, int32_t begin, int32_t end);

std::string shape_of(const Tensor& tensor);

}  // namespace splitkv::python
