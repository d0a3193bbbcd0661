#include "tests/mutation/planted.hpp"

namespace splitkv::testing_support {
namespace {

// The last length is a multiple of the tile, so that a key too many never leaves the allocation.
const Setting fixed_mlo = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=16 lse=natural merge=mlo",
    "schedule family=vector tile=16 rows=3 warps=1 unroll=1 partition=fixed splits=5 reduce=kernel",
    {0, 1, 17, 100, 272}};
const Setting fixed_lse = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=16 lse=natural merge=lse",
    "schedule family=vector tile=16 rows=3 warps=1 unroll=1 partition=fixed splits=5 reduce=kernel",
    {0, 1, 17, 100, 272}};
const Setting strided_last = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=16 lse=base2 merge=mlo",
    "schedule family=vector tile=16 rows=2 warps=1 unroll=1 partition=strided splits=4 "
    "reduce=last_block",
    {0, 1, 17, 100, 272}};
const Setting flat_paged_window = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=16 kv_layout=paged:16:nhd window=100 lse=natural",
    "schedule family=vector tile=16 rows=3 warps=1 unroll=1 partition=flat blocks=9 "
    "reduce=last_block",
    {0, 1, 17, 100, 272}};

// What quantised caches, several queries and the words of the score bring.
const Setting options = {
    "attention q=fp32 kv=int8 heads=6/2 dim=64 query_len=3 kv_layout=paged:16:nhd "
    "page_tables=separate kv_scale=inline alibi=on bias=fp32 window=64 sink=on lse=natural align=4",
    "schedule family=vector tile=16 rows=3 warps=1 unroll=4 partition=strided splits=4 "
    "reduce=last_block",
    {3, 17, 100, 272}};

const Mutant mutants[] = {
    {"an mlo join that forgets l", "merge", fixed_mlo,
     "%weight.1 = fmul float %power.or.zero.1, %l.1",
     "%weight.1 = fadd float %power.or.zero.1, 0.0"},
    {"a total that forgets l", "merge", fixed_mlo, "%weight = fmul float %power.or.zero, %l",
     "%weight = fadd float %power.or.zero, 0.0"},
    {"weights not divided by their sum", "merge", fixed_mlo,
     "%share = fdiv float %weight.1, %total.result", "%share = fadd float %weight.1, 0.0"},
    {"lse weights not divided by their sum", "merge", fixed_lse, "%share = fdiv float",
     "%share = fadd float"},
    {"S without log l", "merge", fixed_lse, "%log2_sum.1 = fadd float %m.row, %log.checked.1",
     "%log2_sum.1 = fadd float %m.row, 0.0"},
    {"l not moved to a new maximum", "merge", fixed_mlo,
     "@llvm.fmuladd.f32(float %l.before, float %power.or.zero.1, float %block.sum)",
     "@llvm.fmuladd.f32(float %l.before, float 1.0, float %block.sum)"},
    {"the output not moved to a new maximum", "merge", fixed_mlo,
     "store float %power.or.zero.1, ptr %rescale.at", "store float 1.0, ptr %rescale.at"},
    {"an empty row divided by its sum of 0", "merge", fixed_mlo,
     "%divisor = select i1 %row.is_empty, float 1.0, float %l.row",
     "%divisor = select i1 %row.is_empty, float %l.row, float %l.row"},
    {"a window one key too wide", "mask", flat_paged_window,
     "%difference = sub i64 %query.first, 99", "%difference = sub i64 %query.first, 100"},
    {"a window one key too narrow", "mask", flat_paged_window,
     "%difference = sub i64 %query.first, 99", "%difference = sub i64 %query.first, 98"},
    {"the tile of the window's first key taken whole", "mask", flat_paged_window,
     ", i64 %tile.begin, i64 %first_key\n", ", i64 %tile.begin, i64 %tile.begin\n"},
    {"keys beyond the row's end", "tail", fixed_mlo,
     "%keys.end = select i1 %smaller.1, i64 %tile.end, i64 %end_key",
     "%keys.end = select i1 %smaller.1, i64 %tile.end, i64 %tile.end"},
    {"the last key of a tile left out", "tail", fixed_mlo, "%keys = sub i64 %keys.end, %keys.begin",
     "%keys.all = sub i64 %keys.end, %keys.begin\n  %keys = sub i64 %keys.all, 1"},
    {"a last tile that is not full left out", "tail", fixed_mlo,
     "%end_key.up = add i64 %end_key, 15", "%end_key.up = add i64 %end_key, 0"},
    {"ranges that are all empty", "partition", fixed_mlo, "%share = mul i64 %split, %tiles",
     "%share = mul i64 %split.next, %tiles"},
    {"a range that ends a tile early", "partition", fixed_mlo,
     "%piece.end = udiv i64 %share.next, %active",
     "%piece.past = udiv i64 %share.next, %active\n  %piece.end = sub i64 %piece.past, 1"},
    {"empty rows without an owner", "partition", strided_last, ", i64 %tiles, i64 1\n",
     ", i64 %tiles, i64 0\n"},
    {"streams that take every tile", "partition", strided_last,
     "%tile.next = add i64 %tile, %piece.step", "%tile.next = add i64 %tile, 1"},
    {"pieces of the line that begin with their sequence", "partition", flat_paged_window,
     ", i64 %tile.low, i64 0\n", ", i64 0, i64 0\n"},
    {"both pieces of a block in one slot", "partition", flat_paged_window,
     "%slot = add i64 %slot.even, %slot.odd", "%slot = add i64 %slot.even, 0"},
    {"nobody arrives last", "partition", strided_last, "%is_last = icmp eq i64 %arrived.1, %pieces",
     "%is_last = icmp ugt i64 %arrived.1, %pieces"},
    {"an arrival counter left as it is", "partition", strided_last,
     "store atomic i32 0, ptr %arrival release", "store atomic i32 1, ptr %arrival release"},
    {"every key at the start of its page", "walk", flat_paged_window,
     "%page.token = urem i64 %found.key, 16", "%page.token = and i64 %found.key, 0"},
    {"row blocks that all hold the first rows", "walk", strided_last, "mul i64 %row_block, 2",
     "mul i64 0, 2"},
    {"every kv head's queries taken from the first group", "walk", fixed_mlo, "mul i64 %kv_head, 3",
     "mul i64 0, 3"},
    {"a natural lse left in log2 units", "output", fixed_mlo, "%log2_sum, 0x3FE62E4300000000",
     "%log2_sum, 1.0"},
    {"int8 without its sign", "convert", options, "= sext <", "= zext <"},
    {"k's scales left out", "scale", options, "%dots.scaled = fmul", "%dots.scaled = fsub"},
    {"v's scales taken from k's", "scale", options, "getelementptr float, ptr %v_scales",
     "getelementptr float, ptr %k_scales"},
    {"v's pages taken from k's table", "walk", options,
     "%v.page.id.at = getelementptr i32, ptr %v.page_list",
     "%v.page.id.at = getelementptr i32, ptr %k.page_list"},
    {"a query that does not see its own key", "mask", options, "= icmp sle <", "= icmp slt <"},
    {"a bias of another key", "score", options, "%bias.element = add i64 %bias.row.1",
     "%bias.element = xor i64 %bias.row.1"},
    {"slopes of the first head for all", "score", options,
     "%param_0.at = getelementptr float, ptr %param_0.all, i64 %q_head.1",
     "%param_0.at = getelementptr float, ptr %param_0.all, i64 0"},
    {"a sink in the wrong unit", "merge", options, "%sink.log2.wide = fmul float %sink, ",
     "%sink.log2.wide = fadd float %sink, "},
    {"a sink that every head shares", "merge", options,
     "%sink.at = getelementptr float, ptr %sinks, i64 %q_head.2",
     "%sink.at = getelementptr float, ptr %sinks, i64 0"},
    {"a row that a sink does not thin", "merge", options,
     "%share.finished = select i1 %sink.is_none, float 1.0, float %share.sunk",
     "%share.finished = select i1 %sink.is_none, float 1.0, float 1.0"},
};

}  // namespace

std::span<const Mutant> llvm_mutants() { return mutants; }

}  // namespace splitkv::testing_support
