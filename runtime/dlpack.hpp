// Tensors as DLPack describes them, checked against what a kernel takes.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "compiler/result.hpp"
#include "runtime/kernel.hpp"
#include "runtime/splitkv_dlpack.h"

namespace splitkv {

// "bf16", "int32", "float8_e4m3fn", or numbers where it has no name here.
std::string dl_name(const splitkv_dl_dtype& dtype);

// A dimension of a tensor that is wanted: its name in messages, and its size; kAny: any size.
struct WantedDim {
  static constexpr int64_t kAny = -1;

  const char* name;
  int64_t size = kAny;
  bool repeats = false;  // a size of 1 will do, and then repeats by a stride of 0
};

// A tensor that fits: its first element, and sizes and strides (in elements) of the dimensions as
// they were wanted. Of a dimension of one entry the stride is that of a dense tensor, or 0 where it
// repeats.
struct FoundTensor {
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  splitkv_dl_dtype dtype = {};
};

struct WantedTensor {
  const char* field;  // "cache.k"
  std::vector<splitkv_dl_dtype> dtypes;
  std::vector<WantedDim> dims;
  bool last_is_dense = true;
};

// Refuses a null tensor, another device, type or shape, dense dimensions that are not, negative
// strides, and strides of 0 in dimensions that do not repeat.
Result<FoundTensor> find_tensor(const PreparedKernel& kernel, const splitkv_dl_tensor* tensor,
                                const WantedTensor& wanted);

// Types that hold elements of `type`.
std::vector<splitkv_dl_dtype> dl_types_of(DType type);

Result<splitkv_tensors> tensors_from_dlpack(const PreparedKernel& kernel,
                                            const splitkv_dl_cache& cache);
// args: with what the caller has set already.
Result<splitkv_args> args_from_dlpack(const PreparedKernel& kernel, const splitkv_dl_step& step,
                                      const splitkv_args& args);

}  // namespace splitkv
