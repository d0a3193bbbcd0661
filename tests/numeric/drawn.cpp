// What was drawn, value by value, and what every few hundred cases must draw.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/text.hpp"
#include "tests/numeric/draws.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv::testing_support {
namespace {

// What clusters meet: every word whose device code they have a part in.
std::vector<std::string> met_by_clusters(const Case& c) {
  const Problem& p = c.problem;
  const Schedule& s = c.schedule;
  std::vector<std::string> met = {
      std::string(name(s.family)), std::string(name(s.partition)),
      std::string("lse=") + std::string(name(p.lse)),
      std::string("exchanged=") + std::string(name(exchanged_merge(p, s)))};
  const auto add = [&](bool meets, const char* what) {
    if (meets) met.push_back(what);
  };
  const int64_t shortest = *std::min_element(c.kv_len.begin(), c.kv_len.end());
  add(shortest < int64_t(s.splits) * s.tile_kv, "rows shorter than the cuts");
  add(shortest == 0, "empty rows");
  add(!c.form.queries.empty(), "ragged queries");
  add(p.query_len > 1, "several queries");
  add(p.sink, "sink");
  add(p.out_partial, "out=partial");
  add(is_paged(p), "pages");
  add(p.dim_v % 4 != 0, "dim_v no multiple of 4");
  add(row_blocks(p, s) > 1, "row blocks");
  add(s.pdl, "pdl");
  add(s.partial_dtype == DType::bf16, "partials=bf16");
  return met;
}

void count_cuda_words(const Case& c, Drawn& drawn) {
  const Schedule& s = c.schedule;
  const auto add = [&](const char* key, auto value) {
    drawn[fmt::format("{}={}", key, value)] += 1;
  };
  add("warps", s.warps);
  if (s.family == Family::mma) add("row_warps", s.row_warps);
  if (s.family == Family::mma) add("stages", s.stages);
  if (s.family == Family::mma) add("loads", name(s.loads));
  if (s.family == Family::wgmma) add("wgmma stages", s.stages);
  if (s.family == Family::wgmma) add("wgmma", c.problem.v_in_k ? "v_in_k" : "v of its own");
  if (s.family == Family::simt) add("unroll", s.unroll);
  add("partials", name(s.partial_dtype));
  add("pdl", s.pdl ? "on" : "off");
  add("cluster", s.cluster);
  if (s.reduce != Reduce::cluster) return;
  add("clusters a sequence", partials_of_sequence(s));
  for (const std::string& what : met_by_clusters(c)) add("cluster with", what);
}

}  // namespace

void count(const Case& c, Drawn& drawn) {
  const Problem& p = c.problem;
  const Schedule& s = c.schedule;
  const auto add = [&](const char* key, auto value) {
    drawn[fmt::format("{}={}", key, value)] += 1;
  };
  const auto flag = [&](const char* key, bool value) { add(key, value ? "on" : "off"); };
  add("q", name(p.q_dtype));
  add("k", name(p.k_dtype));
  add("v", name(p.v_dtype));
  add("out", p.out_partial ? "partial" : name(p.out_dtype));
  flag("group>8", group_size(p) > 8);
  flag("dims differ", p.dim_qk != p.dim_v);
  flag("dim above 256", std::max(p.dim_qk, p.dim_v) > 256);
  flag("dim no multiple of 8", p.dim_qk % 8 != 0 || p.dim_v % 8 != 0);
  flag("q_rope", p.dim_rope > 0);
  flag("v_in_k", p.v_in_k);
  flag("query_len>1", p.query_len > 1);
  add("kv_layout", p.kv_layout.kind == KvLayoutKind::bhtd     ? "bhtd"
                   : p.kv_layout.kind == KvLayoutKind::bthd   ? "bthd"
                   : p.kv_layout.page_order == PageOrder::nhd ? "paged:nhd"
                                                              : "paged:hnd");
  add("page_tables", p.separate_tables ? "separate" : "shared");
  add("k_scale", name(p.k_scale));
  add("v_scale", name(p.v_scale));
  flag("scale", p.scale.has_value());
  flag("softcap", p.softcap > 0);
  flag("alibi", p.alibi);
  add("bias", p.bias ? name(*p.bias) : "none");
  flag("score", !p.score_mod.nodes.empty());
  for (const Param& param : p.params) add("params", name(param.scope));
  add("mask", name(p.mask));
  flag("window", p.window > 0);
  flag("chunk", p.chunk > 0);
  flag("where", !p.predicate.nodes.empty());
  add("positions", p.strided_positions ? "strided" : "contiguous");
  flag("sink", p.sink);
  add("lse", name(p.lse));
  add("merge", name(p.merge));
  flag("deterministic", p.deterministic);
  add("align", p.align);
  add("checked", name(p.checked));
  add("family", name(s.family));
  add("partition", name(s.partition));
  add("reduce", name(s.reduce));
  add("exchanged", name(exchanged_merge(p, s)));
  add("rows",
      s.family != Family::simt && s.family != Family::vector ? "many" : std::to_string(s.rows));
  add("lengths", c.form.lengths == tool::LengthForm::int32   ? "int32"
                 : c.form.lengths == tool::LengthForm::int64 ? "int64"
                                                             : "host");
  flag("q_offset", !c.form.queries.empty());
  flag("kv_begin", !c.form.kv_begin.empty());
  flag("padded rows", c.form.padded_rows);
  flag("interleaved", c.form.interleaved);
  flag("page_offset", is_paged(p) && c.form.page_offsets);
  add("poison", c.form.infinite_poison ? "inf" : "nan");
  if (s.family != Family::vector) count_cuda_words(c, drawn);
}

namespace {

std::vector<std::string> values_of_cuda_words(const Target& target) {
  std::vector<std::string> values;
  const auto add = [&](const std::string& key, std::initializer_list<const char*> of) {
    for (const char* value : of) values.push_back(key + "=" + value);
  };
  add("family", {"simt", "mma"});
  add("warps", {"1", "2", "3", "4", "8"});
  add("row_warps", {"1", "2", "3", "4"});
  add("stages", {"2", "3", "4", "5", "6"});
  add("unroll", {"1", "2", "4", "8"});
  add("partials", {"fp32", "bf16"});
  add("loads", {"copy"});
  add("pdl", {"off"});
  add("cluster", {"1"});
  if (!has_clusters(target)) return values;
  add("loads", {"tensor"});
  add("pdl", {"on"});
  add("reduce", {"cluster"});
  add("cluster", {"2", "4", "8", "16"});
  add("clusters a sequence", {"1", "2", "3", "4"});
  if (target.arch == "sm_90a") {
    add("family", {"wgmma"});
    add("wgmma stages", {"2", "3", "4", "5"});
    add("wgmma", {"v_in_k", "v of its own"});
    add("cluster with", {"wgmma"});
  }
  add("cluster with", {"simt",
                       "mma",
                       "fixed",
                       "strided",
                       "lse=none",
                       "lse=natural",
                       "lse=base2",
                       "exchanged=mlo",
                       "exchanged=lse",
                       "rows shorter than the cuts",
                       "empty rows",
                       "ragged queries",
                       "several queries",
                       "sink",
                       "out=partial",
                       "pages",
                       "dim_v no multiple of 4",
                       "row blocks",
                       "pdl",
                       "partials=bf16"});
  return values;
}

}  // namespace

std::vector<std::string> all_values(const Target& target) {
  std::vector<std::string> values;
  const auto add = [&](const std::string& key, std::initializer_list<const char*> of) {
    for (const char* value : of) values.push_back(key + "=" + value);
  };
  add("q", {"fp32", "fp16", "bf16"});
  for (const char* tensor : {"k", "v"}) {
    add(tensor, {"fp32", "fp16", "bf16", "e4m3", "e5m2", "int8"});
    add(std::string(tensor) + "_scale", {"none", "tensor", "head", "token", "inline"});
  }
  add("out", {"fp32", "fp16", "bf16", "partial"});
  add("kv_layout", {"bhtd", "bthd", "paged:nhd", "paged:hnd"});
  add("page_tables", {"shared", "separate"});
  add("bias", {"none", "fp16", "fp32"});
  add("params", {"scalar", "head", "row"});
  add("mask", {"causal", "none", "tree"});
  add("positions", {"contiguous", "strided"});
  add("lse", {"none", "natural", "base2"});
  add("merge", {"auto", "mlo", "lse"});
  add("align", {"2", "4", "8", "16"});
  add("checked", {"auto", "on", "off"});
  add("partition", {"fixed", "flat", "strided"});
  add("reduce", {"kernel", "last_block"});
  add("exchanged", {"mlo", "lse"});
  add("lengths", {"int32", "int64", "host"});
  add("poison", {"nan", "inf"});
  for (const char* option : {"group>8",    "dims differ", "dim above 256", "dim no multiple of 8",
                             "q_rope",     "v_in_k",      "query_len>1",   "scale",
                             "softcap",    "alibi",       "score",         "window",
                             "chunk",      "where",       "sink",          "deterministic",
                             "q_offset",   "kv_begin",    "padded rows",   "interleaved",
                             "page_offset"}) {
    add(option, {"on", "off"});
  }
  if (target.kind == TargetKind::cuda) {
    for (const std::string& value : values_of_cuda_words(target)) values.push_back(value);
  } else {
    add("family", {"vector"});
  }
  return values;
}

}  // namespace splitkv::testing_support
