#include <fmt/format.h>

#include <cassert>

#include "compiler/text.hpp"
#include "compiler/text_expr.hpp"

namespace splitkv {
namespace {

// Appends " key=value".
template <class T>
void word(std::string& text, std::string_view key, const T& value) {
  fmt::format_to(std::back_inserter(text), " {}={}", key, value);
}

// "N", or "A/B" when the two differ.
std::string pair(int a, int b) {
  return a == b ? fmt::format("{}", a) : fmt::format("{}/{}", a, b);
}

// The words of element types, shapes and memory.
void print_tensors(std::string& text, const Problem& problem) {
  const Problem defaults;
  word(text, "q", name(problem.q_dtype));
  if (problem.k_dtype == problem.v_dtype) {
    word(text, "kv", name(problem.k_dtype));
  } else {
    word(text, "k", name(problem.k_dtype));
    word(text, "v", name(problem.v_dtype));
  }
  if (problem.out_partial) {
    word(text, "out", "partial");
  } else if (problem.out_dtype != problem.q_dtype) {
    word(text, "out", name(problem.out_dtype));
  }
  word(text, "heads", pair(problem.q_heads, problem.kv_heads));
  word(text, "dim", pair(problem.dim_qk, problem.dim_v));
  if (problem.dim_rope != defaults.dim_rope) word(text, "q_rope", problem.dim_rope);
  if (problem.v_in_k) word(text, "v_in_k", "on");
  if (problem.query_len != defaults.query_len) word(text, "query_len", problem.query_len);
  if (problem.ragged) word(text, "ragged", "on");
  if (problem.kv_layout != defaults.kv_layout) word(text, "kv_layout", print(problem.kv_layout));
  if (problem.separate_tables) word(text, "page_tables", "separate");
  if (problem.k_scale == problem.v_scale) {
    if (problem.k_scale != defaults.k_scale) word(text, "kv_scale", name(problem.k_scale));
  } else {
    if (problem.k_scale != defaults.k_scale) word(text, "k_scale", name(problem.k_scale));
    if (problem.v_scale != defaults.v_scale) word(text, "v_scale", name(problem.v_scale));
  }
}

// The words of what happens to a score.
void print_scores(std::string& text, const Problem& problem) {
  // fmt prints the shortest digits that read back as the same double.
  if (problem.scale) word(text, "scale", *problem.scale);
  if (problem.softcap != 0) word(text, "softcap", problem.softcap);
  if (problem.alibi) word(text, "alibi", "on");
  if (problem.bias) word(text, "bias", name(*problem.bias));
  std::string params;
  for (const Param& param : problem.params)
    params += fmt::format("{}{}:{}", params.empty() ? "" : ",", param.name, name(param.scope));
  if (!params.empty()) word(text, "params", params);
  if (!problem.score_mod.nodes.empty())
    word(text, "score", print_expression(problem.score_mod, problem.params));
}

}  // namespace

std::string_view name(Merge merge) {
  switch (merge) {
    case Merge::automatic:
      return "auto";
    case Merge::mlo:
      return "mlo";
    case Merge::lse:
      return "lse";
  }
  assert(!"unknown merge");
  return "";
}

std::string_view name(Partition partition) {
  switch (partition) {
    case Partition::fixed:
      return "fixed";
    case Partition::flat:
      return "flat";
    case Partition::strided:
      return "strided";
  }
  assert(!"unknown partition");
  return "";
}

std::string_view name(Loads loads) {
  switch (loads) {
    case Loads::copy:
      return "copy";
    case Loads::tensor:
      return "tensor";
  }
  assert(!"unknown loads");
  return "";
}

std::string_view name(Reduce reduce) {
  switch (reduce) {
    case Reduce::kernel:
      return "kernel";
    case Reduce::last_block:
      return "last_block";
    case Reduce::cluster:
      return "cluster";
  }
  assert(!"unknown reduce");
  return "";
}

std::string_view name(Family family) {
  switch (family) {
    case Family::simt:
      return "simt";
    case Family::mma:
      return "mma";
    case Family::wgmma:
      return "wgmma";
    case Family::vector:
      return "vector";
  }
  assert(!"unknown family");
  return "";
}

std::string_view name(Mask mask) {
  switch (mask) {
    case Mask::causal:
      return "causal";
    case Mask::none:
      return "none";
    case Mask::tree:
      return "tree";
  }
  assert(!"unknown mask");
  return "";
}

std::string_view name(KvScale scale) {
  switch (scale) {
    case KvScale::none:
      return "none";
    case KvScale::tensor:
      return "tensor";
    case KvScale::head:
      return "head";
    case KvScale::token:
      return "token";
    case KvScale::inl:
      return "inline";
  }
  assert(!"unknown kind of scale");
  return "";
}

std::string_view name(Checked checked) {
  if (checked == Checked::automatic) return "auto";
  return checked == Checked::on ? "on" : "off";
}

std::string_view name(ParamScope scope) {
  if (scope == ParamScope::scalar) return "scalar";
  return scope == ParamScope::head ? "head" : "row";
}

std::string_view name(LseOutput lse) {
  switch (lse) {
    case LseOutput::none:
      return "none";
    case LseOutput::natural:
      return "natural";
    case LseOutput::base2:
      return "base2";
  }
  assert(!"unknown lse");
  return "";
}

std::string print(const KvLayout& layout) {
  if (layout.kind == KvLayoutKind::bhtd) return "bhtd";
  if (layout.kind == KvLayoutKind::bthd) return "bthd";
  return fmt::format("paged:{}:{}", layout.page_size,
                     layout.page_order == PageOrder::nhd ? "nhd" : "hnd");
}

std::string print(const Problem& problem) {
  const Problem defaults;
  std::string text = "attention";
  print_tensors(text, problem);
  print_scores(text, problem);
  if (problem.mask != defaults.mask) word(text, "mask", name(problem.mask));
  if (problem.window != defaults.window) word(text, "window", problem.window);
  if (problem.chunk != defaults.chunk) word(text, "chunk", problem.chunk);
  if (!problem.predicate.nodes.empty())
    word(text, "where", print_expression(problem.predicate, problem.params));
  if (problem.strided_positions) word(text, "positions", "strided");
  if (problem.sink) word(text, "sink", "on");
  if (problem.lse != defaults.lse) word(text, "lse", name(problem.lse));
  if (problem.merge != defaults.merge) word(text, "merge", name(problem.merge));
  if (problem.deterministic) word(text, "deterministic", "on");
  if (problem.align != defaults.align) word(text, "align", problem.align);
  if (problem.checked != defaults.checked) word(text, "checked", name(problem.checked));
  return text;
}

std::string print(const Schedule& schedule) {
  const Schedule defaults;
  const bool flat = schedule.partition == Partition::flat;
  std::string text = "schedule";
  word(text, "family", name(schedule.family));
  word(text, "tile", schedule.tile_kv);
  word(text, "rows", schedule.rows);
  if (schedule.warps != defaults.warps) word(text, "warps", schedule.warps);
  if (schedule.row_warps != defaults.row_warps) word(text, "row_warps", schedule.row_warps);
  if (schedule.unroll != defaults.unroll) word(text, "unroll", schedule.unroll);
  if (schedule.stages != defaults.stages) word(text, "stages", schedule.stages);
  if (schedule.loads != defaults.loads) word(text, "loads", name(schedule.loads));
  word(text, "partition", name(schedule.partition));
  // The one that the partition uses is always shown; the other only where it is wrong.
  if (!flat || schedule.splits != defaults.splits) word(text, "splits", schedule.splits);
  if (flat || schedule.blocks != defaults.blocks) word(text, "blocks", schedule.blocks);
  if (schedule.reduce != defaults.reduce) word(text, "reduce", name(schedule.reduce));
  if (schedule.cluster != defaults.cluster) word(text, "cluster", schedule.cluster);
  if (schedule.partial_dtype != defaults.partial_dtype)
    word(text, "partials", name(schedule.partial_dtype));
  if (schedule.merge != defaults.merge) word(text, "merge", name(schedule.merge));
  if (schedule.pdl) word(text, "pdl", "on");
  return text;
}

}  // namespace splitkv
