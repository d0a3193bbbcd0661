#include "runtime/query_tensors.hpp"

#include <fmt/format.h>

namespace splitkv {
namespace {

struct GivenStrides {
  int64_t batch, query, head;
};

QueryStrides resolve(const Problem& problem, const splitkv_args& args, const GivenStrides& given,
                     int64_t row) {
  QueryStrides strides;
  const bool dense =
      args.q_offset != nullptr ? given.head == 0 : given.batch == 0 && given.head == 0;
  strides.head = dense ? row : given.head;
  const bool has_queries = problem.query_len > 1 || args.q_offset != nullptr;
  strides.query =
      has_queries && given.query != 0 ? given.query : int64_t(problem.q_heads) * strides.head;
  if (args.q_offset != nullptr) return strides;
  strides.batch = dense ? problem.query_len * strides.query : given.batch;
  return strides;
}

// The used dimensions of a tensor, in elements.
std::vector<Extent> extents_of(const Problem& problem, const splitkv_args& args,
                               const QueryStrides& strides, const std::string& name) {
  std::vector<Extent> extents = {{name + "_stride_head", strides.head, problem.q_heads}};
  if (args.q_offset != nullptr) {
    extents.push_back({name + "_stride_query", strides.query, args.query_rows});
  } else {
    extents.push_back({name + "_stride_query", strides.query, problem.query_len});
    extents.push_back({name + "_stride_batch", strides.batch, args.batch});
  }
  return extents;
}

struct TensorPlace {
  const char* name;
  const void* data;
  int64_t row;
  int64_t element_bytes;
};

Footprint footprint(const TensorPlace& place, const std::vector<Extent>& extents) {
  Footprint print{place.name, place.data, place.row * place.element_bytes, {}};
  for (const Extent& extent : extents) {
    print.extents.emplace_back(extent.stride * place.element_bytes, extent.count);
  }
  return print;
}

Footprint span(const char* name, const void* data, int64_t bytes) {
  return {name, data, bytes, {}};
}

struct Footprints {
  std::vector<Footprint> written, read;
};

Footprints footprints(const Problem& problem, const splitkv_tensors& tensors,
                      const splitkv_args& args, const BufferSizes& sizes) {
  const QueryTensors strides = query_tensors(problem, args);
  const auto of = [&](const char* name, const void* data, const QueryStrides& by, int64_t row,
                      int64_t bytes) {
    return footprint({name, data, row, bytes}, extents_of(problem, args, by, name));
  };
  Footprints prints;
  prints.written = {
      of("args.out", args.out, strides.out, problem.dim_v, size_bytes(problem.out_dtype)),
      of("args.lse", args.lse, strides.lse, 1, 4),
      of("args.partial_l", args.partial_l, strides.lse, 1, 4),
      span("args.scratch", args.scratch, sizes.scratch_bytes),
      span("args.state", args.state, sizes.state_bytes)};
  const int64_t q_bytes = size_bytes(problem.q_dtype), batch = args.batch;
  prints.read = {of("args.q", args.q, strides.q, problem.dim_qk - problem.dim_rope, q_bytes),
                 of("args.q_rope", args.q_rope, strides.q_rope, problem.dim_rope, q_bytes),
                 span("args.kv_len", args.kv_len, batch * (args.kv_len_is_int64 != 0 ? 8 : 4)),
                 span("args.kv_begin", args.kv_begin, batch * 4),
                 span("args.q_offset", args.q_offset, (batch + 1) * 4),
                 span("args.total_len", args.total_len, batch * 4),
                 span("args.page_table", args.page_table, 4),
                 span("args.page_offset", args.page_offset, batch * 8),
                 span("args.v_page_table", args.v_page_table, 4),
                 span("args.v_page_offset", args.v_page_offset, batch * 8),
                 span("args.bias", args.bias, 1),
                 span("args.tree", args.tree, 1),
                 span("tensors.k", tensors.k, 1),
                 span("tensors.v", tensors.v, 1),
                 span("tensors.k_scale", tensors.k_scale, 4),
                 span("tensors.v_scale", tensors.v_scale, 4),
                 span("tensors.sink", tensors.sink, problem.q_heads * 4),
                 span("tensors.alibi_slopes", tensors.alibi_slopes, problem.q_heads * 4)};
  return prints;
}

Outcome refuse_overlap(const Footprint& written, const Footprint& other) {
  if (!may_overlap(written, other)) return Unit{};
  return invalid_argument(
      fmt::format("{}={} overlaps {}={}, and a run writes the first; memory of its own would fit",
                  written.name, written.data, other.name, other.data));
}

}  // namespace

QueryTensors query_tensors(const Problem& problem, const splitkv_args& args) {
  QueryTensors tensors;
  tensors.q = resolve(problem, args, {args.q_stride_batch, args.q_stride_query, args.q_stride_head},
                      problem.dim_qk - problem.dim_rope);
  if (problem.dim_rope > 0) {
    tensors.q_rope =
        resolve(problem, args,
                {args.q_rope_stride_batch, args.q_rope_stride_query, args.q_rope_stride_head},
                problem.dim_rope);
  }
  tensors.out =
      resolve(problem, args, {args.out_stride_batch, args.out_stride_query, args.out_stride_head},
              problem.dim_v);
  tensors.lse = resolve(problem, args,
                        {args.lse_stride_batch, args.lse_stride_query, args.lse_stride_head}, 1);
  return tensors;
}

Outcome check_apart(const Problem& problem, const splitkv_tensors& tensors,
                    const splitkv_args& args, const BufferSizes& sizes) {
  const QueryTensors strides = query_tensors(problem, args);
  if (Outcome out =
          check_rows_apart("args", problem.dim_v, extents_of(problem, args, strides.out, "out"));
      !out)
    return out;
  if (args.lse != nullptr) {
    if (Outcome lse = check_rows_apart("args", 1, extents_of(problem, args, strides.lse, "lse"));
        !lse)
      return lse;
  }
  const Footprints prints = footprints(problem, tensors, args, sizes);
  for (size_t i = 0; i < prints.written.size(); ++i) {
    for (size_t j = i + 1; j < prints.written.size(); ++j) {
      if (Outcome apart = refuse_overlap(prints.written[i], prints.written[j]); !apart)
        return apart;
    }
    for (const Footprint& read : prints.read) {
      if (Outcome apart = refuse_overlap(prints.written[i], read); !apart) return apart;
    }
  }
  return Unit{};
}

}  // namespace splitkv
