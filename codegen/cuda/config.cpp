#include "codegen/cuda/config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"

namespace splitkv {

namespace {

const char* scale_name(KvScale scale) {
  switch (scale) {
    case KvScale::none:
      return "KvScale::none";
    case KvScale::tensor:
      return "KvScale::tensor";
    case KvScale::head:
      return "KvScale::head";
    case KvScale::token:
      return "KvScale::token";
    case KvScale::inl:
      break;
  }
  return "KvScale::inl";
}

class Fields {
 public:
  explicit Fields(Writer& out) : out_(out) {}
  template <class T>
  void operator()(std::string_view name, const T& value) {
    out_.line(fmt::format(".{} = {},", name, value));
  }

 private:
  Writer& out_;
};

void write_problem(Fields& field, const Problem& problem) {
  const auto type = [](DType dtype) { return fmt::format("DType::{}", name(dtype)); };
  field("q_dtype", type(problem.q_dtype));
  field("k_dtype", type(problem.k_dtype));
  field("v_dtype", type(problem.v_dtype));
  field("out_dtype", type(problem.out_dtype));
  field("kv_heads", problem.kv_heads);
  field("group_size", group_size(problem));
  field("query_len", problem.query_len);
  field("ragged", problem.ragged);
  field("dim_qk", problem.dim_qk);
  field("dim_v", problem.dim_v);
  field("dim_rope", problem.dim_rope);
  field("v_in_k", problem.v_in_k);
  field("page_size", problem.kv_layout.page_size);
  field("separate_tables", problem.separate_tables);
  field("strided_positions", problem.strided_positions);
  field("k_scale", scale_name(problem.k_scale));
  field("v_scale", scale_name(problem.v_in_k ? problem.k_scale : problem.v_scale));
  field("sink", problem.sink);
  field("lse", fmt::format("LseOutput::{}", name(written_lse(problem))));
  field("out_partial", problem.out_partial);
  field("out_form", fmt::format("Merge::{}", name(partial_form(problem))));
  field("checked", problem.checked == Checked::on);
}

}  // namespace

void write_config(Writer& out, const Problem& problem, const Schedule& schedule) {
  const LaneShape shape = lane_shape(problem);
  Fields field(out);
  out.open("constexpr Config config = {");
  write_problem(field, problem);
  field("merge", fmt::format("Merge::{}", name(exchanged_merge(problem, schedule))));
  field("tile_kv", schedule.tile_kv);
  field("rows", schedule.rows);
  field("row_blocks", row_blocks(problem, schedule));
  field("warps", schedule.warps);
  field("row_warps", schedule.warps / streams(schedule));
  if (schedule.family == Family::simt) {
    field("unroll", schedule.unroll);
    field("lanes", shape.lanes);
    field("vector_k", shape.vector_k);
    field("vector_v", shape.vector_v);
    field("slice_qk", shape.slice_qk);
    field("slice_v", shape.slice_v);
  } else if (schedule.family == Family::wgmma) {
    field("stages", schedule.stages);
  } else {
    field("stages", schedule.stages);
    field("loads", fmt::format("Loads::{}", name(schedule.loads)));
    const MmaShape copies = mma_shape(problem, schedule);
    field("copy_k", copies.copy_k);
    field("copy_v", copies.copy_v);
  }
  field("partition", fmt::format("Partition::{}", name(schedule.partition)));
  field("reduce", fmt::format("Reduce::{}", name(schedule.reduce)));
  field("cluster", schedule.cluster);
  field("pdl", schedule.pdl);
  field("partial_dtype", fmt::format("DType::{}", name(schedule.partial_dtype)));
  out.close("};");
}

}  // namespace splitkv
