#include <fmt/format.h>

#include <cassert>

#include "compiler/text.hpp"

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

std::string_view name(Reduce reduce) { return reduce == Reduce::kernel ? "kernel" : "last_block"; }

std::string_view name(Family family) { return family == Family::simt ? "simt" : "vector"; }

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
  word(text, "q", name(problem.q_dtype));
  if (problem.k_dtype == problem.v_dtype) {
    word(text, "kv", name(problem.k_dtype));
  } else {
    word(text, "k", name(problem.k_dtype));
    word(text, "v", name(problem.v_dtype));
  }
  if (problem.out_dtype != problem.q_dtype) word(text, "out", name(problem.out_dtype));
  word(text, "heads", pair(problem.q_heads, problem.kv_heads));
  word(text, "dim", pair(problem.dim_qk, problem.dim_v));
  if (problem.query_len != defaults.query_len) word(text, "query_len", problem.query_len);
  if (problem.kv_layout != defaults.kv_layout) word(text, "kv_layout", print(problem.kv_layout));
  // fmt prints the shortest digits that read back as the same double.
  if (problem.scale) word(text, "scale", *problem.scale);
  if (problem.softcap != defaults.softcap) word(text, "softcap", problem.softcap);
  if (problem.window != defaults.window) word(text, "window", problem.window);
  if (problem.lse != defaults.lse) word(text, "lse", name(problem.lse));
  if (problem.merge != defaults.merge) word(text, "merge", name(problem.merge));
  if (problem.deterministic) word(text, "deterministic", "on");
  if (problem.align != defaults.align) word(text, "align", problem.align);
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
  if (schedule.unroll != defaults.unroll) word(text, "unroll", schedule.unroll);
  word(text, "partition", name(schedule.partition));
  // The one that the partition uses is always shown; the other only where it is wrong.
  if (!flat || schedule.splits != defaults.splits) word(text, "splits", schedule.splits);
  if (flat || schedule.blocks != defaults.blocks) word(text, "blocks", schedule.blocks);
  if (schedule.reduce != defaults.reduce) word(text, "reduce", name(schedule.reduce));
  if (schedule.merge != defaults.merge) word(text, "merge", name(schedule.merge));
  return text;
}

}  // namespace splitkv
