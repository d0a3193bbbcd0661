// From the C API's merge arguments to those of the merge kernel, checked.
#pragma once

#include "runtime/kernel.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// args.rows > 0. Each refusal names the field, its value and what would fit.
Result<MergeArgs> make_merge(const PreparedMerge& merge, const splitkv_merge_args& args);

}  // namespace splitkv
