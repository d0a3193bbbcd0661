// The one-line text forms of Problem and Schedule: parse(print(x)) == x, and print(parse(t)) is the
// canonical form of t. Lower-case key=value words in a fixed order; defaults are omitted.
//
//   attention q=bf16 kv=bf16 heads=32/8 dim=128 kv_layout=paged:16:nhd window=4096 lse=natural
//   schedule family=simt tile=64 rows=4 partition=fixed splits=7 reduce=kernel
//
// Problem words (defaults in brackets): q kv (or k and v; kv defaults to q's type) out [q's type]
// heads=Q/KV (or heads=N) dim=D or dim=QK/V query_len [1]
// kv_layout=bhtd|bthd|paged:P:nhd|paged:P:hnd [bhtd] scale [1/sqrt(dim_qk)] softcap [none] window
// [none] lse=none|natural|base2 [none] merge=auto|mlo|lse [auto] deterministic=on|off [off]
// align=16|8|4|2 [16]. q, kv, heads and dim are always printed. The leading word `attention` may be
// left out on parsing; `float32`, `bfloat16`... are not accepted: one spelling each.
//
// Schedule words: family tile rows warps unroll partition=fixed|flat|strided splits blocks
// reduce=kernel|last_block merge. family, tile, rows, partition and (splits or blocks) are always
// printed.
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
// and makes a flat base fixed; "blocks=264" alone makes it flat. A text that has family, tile, rows
// and partition is a whole schedule, and `base` is not looked at.
Result<Schedule> parse_schedule(std::string_view text, const Schedule& base);

std::string print(const Problem& problem);
std::string print(const Schedule& schedule);
std::string print(const KvLayout& layout);

std::string_view name(Merge merge);          // "auto", "mlo", "lse"
std::string_view name(Partition partition);  // "fixed", "flat", "strided"
std::string_view name(Reduce reduce);        // "kernel", "last_block"
std::string_view name(Family family);        // "simt", "vector"
std::string_view name(LseOutput lse);        // "none", "natural", "base2"

}  // namespace splitkv
