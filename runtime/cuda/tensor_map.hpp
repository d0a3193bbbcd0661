// Tensor maps: how the copy engine of sm_90 and newer sees K or V (loads=tensor).
#pragma once

#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "compiler/result.hpp"
#include "runtime/cuda/symbols.hpp"

namespace splitkv::cuda {

// Fills args.k_map, and args.v_map where V is a tensor of its own, from the pointers and strides of
// `args`. Host work only: nothing is read from the device. invalid_argument where a stride is
// negative, or 2^40 bytes or more; the driver must have cuTensorMapEncodeTiled.
Outcome encode_tensor_maps(const Driver& driver, const LaunchShape& shape, LaunchArgs& args);

}  // namespace splitkv::cuda
