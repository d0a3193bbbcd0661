#include "runtime/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace splitkv {
namespace {

constexpr int64_t kMaxGrid = std::numeric_limits<int32_t>::max();  // grid.x of a CUDA launch
constexpr int kScratchAlign = 16;
constexpr int kStateAlign = 4;

Outcome check_pointer(const char* field, const void* pointer, int align, const char* what) {
  if (pointer == nullptr) {
    return invalid_argument(fmt::format("args.{} is NULL; {} would fit", field, what));
  }
  if (reinterpret_cast<uintptr_t>(pointer) % align != 0) {
    return invalid_argument(fmt::format("args.{}={} is not aligned to {} bytes; {} would fit",
                                        field, pointer, align, what));
  }
  return Unit{};
}

// Strides of one [batch, q_heads, row] tensor, after zeros were taken as dense.
struct RowStrides {
  int64_t batch, head;
};

RowStrides row_strides(int64_t batch, int64_t head, const Problem& problem, int64_t row) {
  if (batch == 0 && head == 0) return {problem.q_heads * row, row};
  return {batch, head};
}

// |stride|; that of the most negative one is the largest there is.
int64_t size_of(int64_t stride) {
  if (stride == std::numeric_limits<int64_t>::min()) return std::numeric_limits<int64_t>::max();
  return std::abs(stride);
}

// Outputs must not overlap: two rows of `row` elements lie at least that far apart.
Outcome check_apart(const char* tensor, const RowStrides& strides, const Problem& problem,
                    int64_t row, int64_t batch) {
  if (problem.q_heads > 1 && size_of(strides.head) < row) {
    return invalid_argument(fmt::format(
        "args.{}_stride_head={} makes rows of {} elements overlap; {} or more would fit", tensor,
        strides.head, row, row));
  }
  if (batch > 1 && size_of(strides.batch) < row) {
    return invalid_argument(fmt::format(
        "args.{}_stride_batch={} makes rows of {} elements overlap; {} or more would fit", tensor,
        strides.batch, row, row));
  }
  if (problem.q_heads == 1 || batch == 1) return Unit{};
  // Heads within a batch row's stride, or batch rows within a head's. In fp64, which holds any
  // product.
  const double head = std::abs(double(strides.head)),
               row_of_batch = std::abs(double(strides.batch));
  const bool heads_inside = row_of_batch >= head * (problem.q_heads - 1) + double(row);
  const bool batch_inside = head >= row_of_batch * double(batch - 1) + double(row);
  if (heads_inside || batch_inside) return Unit{};
  return invalid_argument(
      fmt::format("args.{}_stride_batch={} and {}_stride_head={} make rows of {} elements overlap; "
                  "{}_stride_batch={} or more would fit",
                  tensor, strides.batch, tensor, strides.head, row, tensor,
                  size_of(strides.head) * problem.q_heads));
}

Outcome check_outputs(const Problem& problem, const splitkv_args& args) {
  if (Outcome q = check_pointer("q", args.q, size_bytes(problem.q_dtype), "[batch, q_heads, dim]");
      !q)
    return q;
  if (Outcome out =
          check_pointer("out", args.out, size_bytes(problem.out_dtype), "[batch, q_heads, dim_v]");
      !out)
    return out;
  if (Outcome kv_len = check_pointer("kv_len", args.kv_len, 4, "int32 [batch]"); !kv_len)
    return kv_len;
  if (problem.lse == LseOutput::none) {
    if (args.lse == nullptr) return Unit{};
    return invalid_argument(
        fmt::format("args.lse={} is given, but the problem has lse=none; NULL, or a problem with "
                    "lse=natural or lse=base2, would fit",
                    static_cast<const void*>(args.lse)));
  }
  return check_pointer("lse", args.lse, 4, "float [batch, q_heads]");
}

Outcome check_pages(const Problem& problem, const splitkv_args& args) {
  if (!is_paged(problem)) {
    if (args.page_table == nullptr && args.page_offset == nullptr) return Unit{};
    return invalid_argument(
        fmt::format("args.{}={} is given, but the problem's kv_layout has no pages; NULL, or "
                    "kv_layout=paged:..., would fit",
                    args.page_table != nullptr ? "page_table" : "page_offset",
                    args.page_table != nullptr ? static_cast<const void*>(args.page_table)
                                               : static_cast<const void*>(args.page_offset)));
  }
  if (Outcome table = check_pointer("page_table", args.page_table, 4, "int32 page ids"); !table)
    return table;
  if (args.page_offset != nullptr)
    return check_pointer("page_offset", args.page_offset, 8, "int64 [batch]");
  if (args.page_table_stride == 0 && args.batch > 1) {
    return invalid_argument(
        "args.page_table_stride=0 gives all rows one page list; entries a row, or page_offset for "
        "lists that are shared, would fit");
  }
  return Unit{};
}

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
  return check_pointer(buffer.field, buffer.data, buffer.align, "an aligned buffer");
}

Outcome check_batch(int64_t batch) {
  if (batch <= kMaxGrid) return Unit{};
  return invalid_argument(
      fmt::format("args.batch={} is above {}; several runs would fit", batch, kMaxGrid));
}

Outcome check_grid(const PreparedKernel& kernel, const LaunchShape& shape, int64_t batch) {
  if (kernel.target.kind != TargetKind::cuda) return Unit{};
  const int64_t grid = std::max(shape.split_blocks, shape.reduce_blocks);
  if (grid <= kMaxGrid) return Unit{};
  return invalid_argument(
      fmt::format("args.batch={} makes a grid of {} blocks, above {}; batch={} or fewer splits "
                  "would fit",
                  batch, grid, kMaxGrid, kMaxGrid / (grid / batch)));
}

Outcome check_binding(const PreparedKernel& kernel, const splitkv_binding& binding) {
  if (binding.kernel_id == kernel.binding_id) return Unit{};
  return invalid_argument(
      fmt::format("binding.kernel_id={:#x} is of another problem or device; splitkv_bind with this "
                  "kernel gives {:#x}",
                  binding.kernel_id, kernel.binding_id));
}

LaunchArgs fill(const PreparedKernel& kernel, const splitkv_binding& binding,
                const splitkv_args& args, const BufferSizes& sizes) {
  const Problem& problem = kernel.problem;
  const RowStrides q =
      row_strides(args.q_stride_batch, args.q_stride_head, problem, problem.dim_qk);
  const RowStrides out =
      row_strides(args.out_stride_batch, args.out_stride_head, problem, problem.dim_v);
  const RowStrides lse = row_strides(args.lse_stride_batch, args.lse_stride_head, problem, 1);
  const splitkv_tensors& kv = binding.tensors;
  LaunchArgs launch;
  launch.q = args.q;
  launch.k = kv.k;
  launch.v = kv.v;
  launch.out = args.out;
  launch.lse = args.lse;
  launch.kv_len = args.kv_len;
  launch.page_table = args.page_table;
  launch.page_offset = args.page_offset;
  launch.partials = sizes.scratch_bytes > 0 ? static_cast<float*>(args.scratch) : nullptr;
  launch.arrivals = sizes.state_bytes > 0 ? static_cast<uint32_t*>(args.state) : nullptr;
  launch.q_stride_batch = q.batch;
  launch.q_stride_query = q.batch;  // one query a row: never applied
  launch.q_stride_head = q.head;
  launch.k_stride_block = kv.k_stride_block;
  launch.k_stride_head = kv.k_stride_head;
  launch.k_stride_token = kv.k_stride_token;
  launch.v_stride_block = kv.v_stride_block;
  launch.v_stride_head = kv.v_stride_head;
  launch.v_stride_token = kv.v_stride_token;
  launch.out_stride_batch = out.batch;
  launch.out_stride_query = out.batch;
  launch.out_stride_head = out.head;
  launch.lse_stride_batch = lse.batch;
  launch.lse_stride_query = lse.batch;
  launch.lse_stride_head = lse.head;
  launch.page_table_stride = args.page_table_stride;
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
  if (Outcome ok = check_outputs(problem, args); !ok) return ok.error();
  if (Outcome ok = check_pages(problem, args); !ok) return ok.error();

  const RowStrides out =
      row_strides(args.out_stride_batch, args.out_stride_head, problem, problem.dim_v);
  if (Outcome ok = check_apart("out", out, problem, problem.dim_v, args.batch); !ok)
    return ok.error();
  if (problem.lse != LseOutput::none) {
    const RowStrides lse = row_strides(args.lse_stride_batch, args.lse_stride_head, problem, 1);
    if (Outcome ok = check_apart("lse", lse, problem, 1, args.batch); !ok) return ok.error();
  }

  const LaunchShape shape = launch_shape(problem, kernel.schedule, args.batch);
  if (Outcome ok = check_grid(kernel, shape, args.batch); !ok) return ok.error();
  const BufferSizes sizes = buffer_sizes(problem, kernel.schedule, args.batch);
  const WorkBuffer buffers[] = {
      {"scratch", args.scratch, args.scratch_bytes, sizes.scratch_bytes, kScratchAlign},
      {"state", args.state, args.state_bytes, sizes.state_bytes, kStateAlign}};
  for (const WorkBuffer& buffer : buffers) {
    if (Outcome ok = check_buffer(buffer, args.batch); !ok) return ok.error();
  }
  return Launch{fill(kernel, binding, args, sizes), shape};
}

}  // namespace splitkv
