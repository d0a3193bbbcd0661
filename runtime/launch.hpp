// From the C API's binding and arguments to the argument struct of emitted kernels: every check
// that can be made without looking at device memory, then plain copies.
#pragma once

#include "runtime/kernel.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// Strides of dense K and V with `capacity` tokens a row (not looked at for pages).
Result<splitkv_tensors> dense_strides(const Problem& problem, int64_t capacity);

// Refuses null pointers, and pointers and strides that are no multiples of the alignment class.
Result<splitkv_binding> bind(const PreparedKernel& kernel, const splitkv_tensors& tensors);

struct Launch {
  LaunchArgs args;
  LaunchShape shape;
};

// The launch of one decode step; args.batch > 0. Each refusal names the field, its value and what
// would fit.
Result<Launch> make_launch(const PreparedKernel& kernel, const splitkv_binding& binding,
                           const splitkv_args& args);

}  // namespace splitkv
