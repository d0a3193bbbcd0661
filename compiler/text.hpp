// The one-line text forms of Problem and Schedule: parse(print(x)) == x, and print(parse(t)) is the
// canonical form of t. Lower-case key=value words in a fixed order; defaults are omitted.
//
//   attention q=bf16 kv=bf16 heads=32/8 dim=128 kv_layout=paged:16:nhd window=4096 lse=natural
//   schedule family=simt tile=64 rows=4 partition=fixed splits=7 reduce=kernel
//
// Problem words, in canonical order (defaults in brackets):
//   q kv (or k and v) [q's type]  fp32, fp16, bf16; k and v also e4m3, e5m2, int8
//   out [q's type]                fp32, fp16, bf16, or partial (fp32)
//   heads=Q/KV (or heads=N)  dim=D or dim=QK/V  q_rope [0]  v_in_k=on|off [off]  query_len [1]
//   kv_layout=bhtd|bthd|paged:P:nhd|paged:P:hnd [bhtd]  page_tables=shared|separate [shared]
//   kv_scale (or k_scale and v_scale) =none|tensor|head|token|inline [none]
//   scale [1/sqrt(dim_qk)]  softcap [0: none]  alibi=on|off [off]  bias=fp16|fp32 [none]
//   params=name:scalar|head|row,... [none]  score=EXPRESSION [none]
//   mask=causal|none|tree [causal]  window [0: none]  chunk [0: none]  where=EXPRESSION [none]
//   positions=contiguous|strided [contiguous]  sink=on|off [off]  lse=none|natural|base2 [none]
//   merge=auto|mlo|lse [auto]  deterministic=on|off [off]  align=16|8|4|2 [16]
//   checked=auto|on|off [auto]
// q, kv, heads and dim are always printed. The leading word `attention` may be left out on parsing;
// `float32`, `bfloat16`... are not accepted: one spelling each. Expressions: text_expr.hpp.
//
// Schedule words: family=simt|mma|wgmma|vector tile rows warps row_warps unroll stages
// loads=copy|tensor [copy] partition=fixed|flat|strided splits blocks
// reduce=kernel|last_block|cluster cluster [1] partials=fp32|bf16 [fp32] merge pdl=on|off [off].
// family, tile, rows, partition and (splits or blocks) are always printed.
#pragma once

#include <string>
#include <string_view>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/schedule.hpp"

namespace splitkv {

Result<Problem> parse_problem(std::string_view text);
Result<Schedule> parse_schedule(std::string_view text);

// Overrides the words that `text` names and keeps the rest of `base`: "splits=7" alone is allowed,
// and makes a flat base fixed; "blocks=264" alone makes it flat; "cluster=4" alone brings
// reduce=cluster. Another family brings unroll, stages and warps of its own where the text has
// none. Another reduce or a flat partition ends clusters. A text that has family, tile, rows and
// partition is a whole schedule, and `base` is not looked at.
Result<Schedule> parse_schedule(std::string_view text, const Schedule& base);

std::string print(const Problem& problem);
std::string print(const Schedule& schedule);
std::string print(const KvLayout& layout);

std::string_view name(Merge merge);          // "auto", "mlo", "lse"
std::string_view name(Partition partition);  // "fixed", "flat", "strided"
std::string_view name(Loads loads);          // "copy", "tensor"
std::string_view name(Reduce reduce);        // "kernel", "last_block", "cluster"
std::string_view name(Family family);        // "simt", "mma", "wgmma", "vector"
std::string_view name(LseOutput lse);        // "none", "natural", "base2"
std::string_view name(Mask mask);            // "causal", "none", "tree"
std::string_view name(KvScale scale);        // "none", "tensor", "head", "token", "inline"
std::string_view name(Checked checked);      // "auto", "on", "off"
std::string_view name(ParamScope scope);     // "scalar", "head", "row"

}  // namespace splitkv
