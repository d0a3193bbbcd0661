#include "codegen/cuda/config.hpp"

#include <fmt/format.h>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"

namespace splitkv {

void write_config(Writer& out, const Problem& problem, const Schedule& schedule) {
  const LaneShape shape = lane_shape(problem);
  const auto type = [](DType dtype) { return fmt::format("DType::{}", name(dtype)); };
  const auto field = [&out](std::string_view field_name, const auto& value) {
    out.line(fmt::format(".{} = {},", field_name, value));
  };
  out.open("constexpr Config config = {");
  field("q_dtype", type(problem.q_dtype));
  field("k_dtype", type(problem.k_dtype));
  field("v_dtype", type(problem.v_dtype));
  field("out_dtype", type(problem.out_dtype));
  field("kv_heads", problem.kv_heads);
  field("group_size", group_size(problem));
  field("query_len", problem.query_len);
  field("dim_qk", problem.dim_qk);
  field("dim_v", problem.dim_v);
  field("page_size", problem.kv_layout.page_size);
  field("lse", fmt::format("LseOutput::{}", name(problem.lse)));
  field("merge", fmt::format("Merge::{}", name(exchanged_merge(problem, schedule))));
  field("tile_kv", schedule.tile_kv);
  field("rows", schedule.rows);
  field("row_blocks", row_blocks(problem, schedule));
  field("warps", schedule.warps);
  field("unroll", schedule.unroll);
  field("lanes", shape.lanes);
  field("vector_k", shape.vector_k);
  field("vector_v", shape.vector_v);
  field("slice_qk", shape.slice_qk);
  field("slice_v", shape.slice_v);
  field("partition", fmt::format("Partition::{}", name(schedule.partition)));
  field("reduce", fmt::format("Reduce::{}", name(schedule.reduce)));
  out.close("};");
}

}  // namespace splitkv
