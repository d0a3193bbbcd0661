// q, out and lse as a step has them: strides after zeros were taken as dense.
#pragma once

#include "codegen/launch_shape.hpp"
#include "compiler/problem.hpp"
#include "runtime/overlap.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// Of [batch, query_len, q_heads, row], or with q_offset [query_rows, q_heads, row] where the batch
// stride is 0.
struct QueryStrides {
  int64_t batch = 0, query = 0, head = 0;
};

struct QueryTensors {
  QueryStrides q, q_rope, out, lse;
};

QueryTensors query_tensors(const Problem& problem, const splitkv_args& args);

// What out, lse, partial_l, scratch and state write must lie apart from itself, from each other and
// from what is read. K, V and page lists count by their first element: how far they reach is not
// known here.
// Work buffers count as far as the run uses them.
Outcome check_apart(const Problem& problem, const splitkv_tensors& tensors,
                    const splitkv_args& args, const BufferSizes& sizes);

}  // namespace splitkv
