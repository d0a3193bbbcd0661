#include "runtime/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/score.hpp"
#include "runtime/launch_checks.hpp"
#include "runtime/pointer_checks.hpp"
#include "runtime/query_tensors.hpp"

namespace splitkv {
namespace {

constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();  // grid.x of a CUDA launch
constexpr int kScratchAlign = 16;
constexpr int kStateAlign = 4;

struct WorkBuffer {
  const char* field;
  const void* data;
  size_t bytes;
  int64_t needed;
  int align;
};

Outcome check_buffer(const WorkBuffer& buffer, int64_t batch) {
  if (buffer.needed == 0) return Unit{};
  if (buffer.data == nullptr || buffer.bytes < size_t(buffer.needed)) {
    return invalid_argument(
        fmt::format("args.{}{} for batch={}; {}_bytes={} or more would fit", buffer.field,
                    buffer.data == nullptr ? std::string(" is NULL")
                                           : fmt::format("_bytes={} is too small", buffer.bytes),
                    batch, buffer.field, buffer.needed));
  }
  return check_given({"args", buffer.field, buffer.data}, buffer.align, "an aligned buffer");
}

Outcome check_batch(int64_t batch) {
  if (batch <= kMaxGrid) return Unit{};
  return invalid_argument(
      fmt::format("args.batch={} is above {}; several runs would fit", batch, kMaxGrid));
}

Outcome check_grid(const PreparedKernel& kernel, const LaunchShape& shape, int64_t batch) {
  if (kernel.target.kind != TargetKind::cuda) return Unit{};
  const int64_t grid = std::max(shape.split_blocks, shape.reduce_blocks);
  if (grid > kMaxGrid) {
    return invalid_argument(
        fmt::format("args.batch={} makes a grid of {} blocks, above {}; batch={} or fewer splits "
                    "would fit",
                    batch, grid, kMaxGrid, kMaxGrid / (grid / batch)));
  }
  // Kernels number sequences in 32 bits.
  if (shape.sequences <= kMaxGrid) return Unit{};
  return invalid_argument(
      fmt::format("args.batch={} makes {} sequences, above {}; batch={} would fit", batch,
                  shape.sequences, kMaxGrid, kMaxGrid / (shape.sequences / batch)));
}

Outcome check_binding(const PreparedKernel& kernel, const splitkv_binding& binding) {
  if (binding.kernel_id == kernel.binding_id) return Unit{};
  return invalid_argument(
      fmt::format("binding.kernel_id={:#x} is of another problem or device; splitkv_bind with this "
                  "kernel gives {:#x}",
                  binding.kernel_id, kernel.binding_id));
}

void fill_cache(const PreparedKernel& kernel, const splitkv_tensors& kv, LaunchArgs& launch) {
  const Problem& problem = kernel.problem;
  launch.k = kv.k;
  launch.k_stride_block = kv.k_stride_block;
  launch.k_stride_head = kv.k_stride_head;
  launch.k_stride_token = kv.k_stride_token;
  launch.k_scale = kv.k_scale;
  launch.k_scale_stride_block = kv.k_scale_stride_block;
  launch.k_scale_stride_head = kv.k_scale_stride_head;
  launch.k_scale_stride_token = kv.k_scale_stride_token;
  launch.v = kv.v;
  launch.v_stride_block = kv.v_stride_block;
  launch.v_stride_head = kv.v_stride_head;
  launch.v_stride_token = kv.v_stride_token;
  launch.v_scale = kv.v_scale;
  launch.v_scale_stride_block = kv.v_scale_stride_block;
  launch.v_scale_stride_head = kv.v_scale_stride_head;
  launch.v_scale_stride_token = kv.v_scale_stride_token;
  if (problem.v_in_k) {
    launch.v = launch.k;
    launch.v_stride_block = launch.k_stride_block;
    launch.v_stride_head = launch.k_stride_head;
    launch.v_stride_token = launch.k_stride_token;
    launch.v_scale = launch.k_scale;
    launch.v_scale_stride_block = launch.k_scale_stride_block;
    launch.v_scale_stride_head = launch.k_scale_stride_head;
    launch.v_scale_stride_token = launch.k_scale_stride_token;
  }
  launch.sink = kv.sink;
  for (size_t i = 0; i < problem.params.size(); ++i) launch.params[i] = kv.params[i];
  if (problem.alibi) launch.params[alibi_param(problem)] = kv.alibi_slopes;
}

void fill_queries(const Problem& problem, const splitkv_args& args, LaunchArgs& launch) {
  const QueryTensors strides = query_tensors(problem, args);
  launch.q = args.q;
  launch.q_stride_batch = strides.q.batch;
  launch.q_stride_query = strides.q.query;
  launch.q_stride_head = strides.q.head;
  launch.q_rope = args.q_rope;
  launch.q_rope_stride_batch = strides.q_rope.batch;
  launch.q_rope_stride_query = strides.q_rope.query;
  launch.q_rope_stride_head = strides.q_rope.head;
  launch.out = args.out;
  launch.out_stride_batch = strides.out.batch;
  launch.out_stride_query = strides.out.query;
  launch.out_stride_head = strides.out.head;
  launch.lse = args.lse;
  launch.partial_l = args.partial_l;
  launch.lse_stride_batch = strides.lse.batch;
  launch.lse_stride_query = strides.lse.query;
  launch.lse_stride_head = strides.lse.head;
  launch.q_offset = args.q_offset;
  launch.query_rows = args.query_rows;
}

void fill_keys(const splitkv_args& args, LaunchArgs& launch) {
  launch.kv_len = args.kv_len;
  launch.kv_len_bytes = args.kv_len_is_int64 != 0 ? 8 : 4;
  launch.kv_len_host = args.kv_len_host;
  launch.kv_begin = args.kv_begin;
  launch.total_len = args.total_len;
  launch.pos0 = args.pos0;
  launch.pos_step = args.pos_step;
  launch.page_table = args.page_table;
  launch.page_offset = args.page_offset;
  launch.page_table_stride = args.page_table_stride;
  launch.v_page_table = args.v_page_table;
  launch.v_page_offset = args.v_page_offset;
  launch.v_page_table_stride = args.v_page_table_stride;
  launch.bias = args.bias;
  launch.bias_stride_batch = args.bias_stride_batch;
  launch.bias_stride_head = args.bias_stride_head;
  launch.bias_stride_query = args.bias_stride_query;
  launch.bias_stride_key = args.bias_stride_key;
  launch.tree = args.tree;
  launch.tree_stride_batch = args.tree_stride_batch;
  launch.tree_stride_query = args.tree_stride_query;
  launch.page_count = args.page_count;
  launch.kv_capacity = args.kv_capacity;
}

LaunchArgs fill(const PreparedKernel& kernel, const splitkv_binding& binding,
                const splitkv_args& args, const BufferSizes& sizes) {
  LaunchArgs launch;
  fill_cache(kernel, binding.tensors, launch);
  fill_queries(kernel.problem, args, launch);
  fill_keys(args, launch);
  if (kernel.errors != nullptr) launch.errors = kernel.errors->device();
  launch.partials = sizes.scratch_bytes > 0 ? static_cast<float*>(args.scratch) : nullptr;
  launch.arrivals = sizes.state_bytes > 0 ? static_cast<uint32_t*>(args.state) : nullptr;
  launch.partial_o_offset = sizes.partial_o_offset;
  launch.batch = int32_t(args.batch);
  launch.splits = kernel.schedule.splits;
  launch.blocks = kernel.schedule.blocks;
  return launch;
}

}  // namespace

Result<Launch> make_launch(const PreparedKernel& kernel, const splitkv_binding& binding,
                           const splitkv_args& args) {
  const Problem& problem = kernel.problem;
  if (Outcome ok = check_binding(kernel, binding); !ok) return ok.error();
  if (Outcome ok = check_batch(args.batch); !ok) return ok.error();
  if (Outcome ok = check_args(problem, args); !ok) return ok.error();

  const LaunchShape shape = launch_shape(problem, kernel.schedule, args.batch);
  if (Outcome ok = check_grid(kernel, shape, args.batch); !ok) return ok.error();
  const BufferSizes sizes = buffer_sizes(problem, kernel.schedule, args.batch);
  const WorkBuffer buffers[] = {
      {"scratch", args.scratch, args.scratch_bytes, sizes.scratch_bytes, kScratchAlign},
      {"state", args.state, args.state_bytes, sizes.state_bytes, kStateAlign}};
  for (const WorkBuffer& buffer : buffers) {
    if (Outcome ok = check_buffer(buffer, args.batch); !ok) return ok.error();
  }
  if (Outcome ok = check_apart(problem, binding.tensors, args, sizes); !ok) return ok.error();
  return Launch{fill(kernel, binding, args, sizes), shape};
}

}  // namespace splitkv
