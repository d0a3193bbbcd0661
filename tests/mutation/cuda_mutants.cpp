#include "tests/mutation/planted.hpp"

namespace splitkv::testing_support {
namespace {

const Setting fixed_mlo = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 lse=natural merge=mlo",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=5 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting fixed_lse = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 lse=natural merge=lse",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=5 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting strided_last = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 lse=base2 merge=mlo",
    "schedule family=simt tile=16 rows=2 warps=2 partition=strided splits=4 reduce=last_block",
    {0, 1, 17, 100, 259}};
const Setting flat_paged_window = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 kv_layout=paged:16:nhd softcap=30 window=100 "
    "lse=natural",
    "schedule family=simt tile=16 rows=3 warps=2 partition=flat blocks=9 reduce=last_block",
    {0, 1, 17, 100, 259}};

// Everything that only the tensor-core family does, and the options that both families share.
const Setting mma_fixed = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 lse=natural merge=mlo",
    "schedule family=mma tile=64 rows=3 warps=2 unroll=1 stages=3 partition=fixed splits=5 "
    "reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting mma_causal = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=40 query_len=4 kv_layout=paged:3:hnd sink=on "
    "lse=natural",
    "schedule family=mma tile=32 rows=12 warps=2 unroll=1 stages=2 partition=flat blocks=9 "
    "reduce=last_block",
    {0, 1, 17, 100, 259}};
const Setting mma_8_bit = {
    "attention q=bf16 kv=e4m3 heads=6/2 dim=64 kv_scale=token lse=natural",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 partition=fixed splits=3 "
    "reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting simt_options = {
    "attention q=fp32 kv=int8 heads=6/2 dim=64 query_len=3 kv_layout=paged:16:nhd "
    "page_tables=separate kv_scale=inline bias=fp32 window=64 lse=natural align=4",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=strided splits=4 "
    "reduce=last_block",
    {0, 1, 17, 100, 259}};
const Setting simt_tree = {
    "attention q=fp32 kv=fp32 heads=4/2 dim=32 query_len=6 alibi=on mask=tree lse=natural",
    "schedule family=simt tile=16 rows=4 warps=2 unroll=2 partition=fixed splits=4 reduce=kernel",
    {6, 17, 100, 259}};

const Mutant mutants[] = {
    {"a weight of an empty partial computed from inf - inf", "merge", fixed_mlo,
     "return m == negative_infinity() ? 0.0f : weight;", "return weight;"},
    {"partials joined without moving them to the common maximum", "merge", fixed_mlo,
     "weight = weight_of(own.m, all.m) * own.l / all.l", "weight = own.l / all.l"},
    {"an mlo join that forgets l", "merge", fixed_mlo,
     "weight = weight_of(own.m, all.m) * own.l / all.l",
     "weight = weight_of(own.m, all.m) / all.l"},
    {"statistics joined without weights", "merge", fixed_mlo,
     "weight_of(a.m, top) * a.l + weight_of(b.m, top) * b.l", "a.l + weight_of(b.m, top) * b.l"},
    {"S without log l", "merge", fixed_lse, "s.m + log2_of(s.l)", "s.m"},
    {"an lse partial taken for one of another sum", "merge", fixed_lse,
     "s == negative_infinity() ? 0.0f : 1.0f", "s == negative_infinity() ? 0.0f : 2.0f - s * 0.1f"},
    {"l not moved to a new maximum", "merge", fixed_mlo, "s.l *= factor;", ""},
    {"the output not moved to a new maximum", "merge", fixed_mlo,
     "for (float& a : acc) a *= factor;", ""},
    {"warps joined without weights", "merge", fixed_mlo,
     "weight_of(own.m, all.m) * reciprocal(all.l)", "reciprocal(all.l)"},
    {"a window one key too wide", "mask", flat_paged_window, "query_pos - 99", "query_pos - 100"},
    {"a window one key too narrow", "mask", flat_paged_window, "query_pos - 99", "query_pos - 98"},
    {"the tile of the window's first key taken whole", "mask", flat_paged_window,
     "larger(tile_key, piece.row.first_key)", "tile_key"},
    {"one key more than the row has", "tail", fixed_mlo, "key < end && readable",
     "key <= end && readable"},
    {"the last key left out", "tail", fixed_mlo, "smaller(tile_key + C.tile_kv, piece.row.end_key)",
     "smaller(tile_key + C.tile_kv, piece.row.end_key - 1)"},
    {"a last tile that is not full left out", "tail", fixed_mlo,
     "ceil_div(row.end_key, C.tile_kv) - row.first_tile",
     "row.end_key / C.tile_kv - row.first_tile"},
    {"empty rows without an owner", "partition", strided_last, "smaller(splits, larger(tiles, 1))",
     "smaller(splits, tiles)"},
    {"a range that begins one tile late", "partition", fixed_mlo,
     "piece.tile_begin = split * each +", "piece.tile_begin = (split > 0) + split * each +"},
    {"streams that step one tile too far", "partition", strided_last,
     "piece.tile_step = piece.pieces;", "piece.tile_step = piece.pieces + 1;"},
    {"both pieces of a block in one slot", "partition", flat_paged_window,
     "(sequence_begin > first ? 1 : 0)", "0"},
    {"a line whose blocks share a unit", "partition", flat_paged_window,
     "end = line.first_unit(block + 1);", "end = line.first_unit(block + 1) + (block == 0);"},
    {"nobody arrives last", "partition", strided_last, "u32(pieces) - 1", "u32(pieces)"},
    {"an arrival counter left as it is", "partition", strided_last, "if (last) *counter = 0;", ""},
    {"every key at the start of its page", "walk", flat_paged_window, "key % C.page_size",
     "0 * key"},
    {"row blocks that all hold the first rows", "walk", strided_last, "row_block * C.rows + r",
     "r"},
    {"every kv head's queries taken from the first group", "walk", fixed_mlo,
     "kv_head * C.group_size + x % C.group_size", "x % C.group_size"},
    {"softcap without its division", "score", flat_paged_window, "const Real t1 = tanh_of(t0);",
     "const Real t1 = tanh_of(t0 * Real(2));"},
    {"sums that lose a half", "score", fixed_mlo, "upper ? first + half : first", "first"},
    {"a natural lse left in log2 units", "output", fixed_mlo, "0.693147180559945309f", "1.0f"},
    {"partials stored before they are normalised", "output", fixed_mlo,
     "slot_row * C.dim_v + dim] = sum;", "slot_row * C.dim_v + dim] = sum * all.l;"},
    {"mma: maxima that are not the warp's", "merge", mma_fixed,
     "for (int offset = 4; offset < 32; offset *= 2) {\n        most",
     "for (int offset = 8; offset < 32; offset *= 2) {\n        most"},
    {"mma: accumulators not moved to a new maximum", "merge", mma_fixed, "tile[c] *= factor;", ""},
    {"mma: sums of one key in two", "merge", mma_fixed,
     "for (int offset = 4; offset < 32; offset *= 2) {\n        sum",
     "for (int offset = 8; offset < 32; offset *= 2) {\n        sum"},
    {"mma: keys beyond the end take part", "tail", mma_fixed,
     "bool counts = key >= stages.first_key && key < stages.end_key;",
     "bool counts = key >= stages.first_key && key <= stages.end_key;"},
    {"mma: values of the next step", "walk", mma_fixed, "rows = stages.v_rows(step);",
     "rows = stages.v_rows(step + 1);"},
    {"mma: weights not transposed", "walk", mma_fixed, "operand[0][p][half] = transpose(word);",
     "operand[0][p][half] = word;"},
    {"mma: warps that take each other's steps", "partition", mma_fixed,
     "(warp * a_tile + step % a_tile) * step_keys", "(step % a_tile) * step_keys"},
    {"a query that sees the key after its own", "mask", mma_causal, "at.query_pos",
     "(at.query_pos + 1)"},
    {"a sink that is not there", "merge", mma_causal, "join(all, {m, 1.0f})", "all"},
    {"a sink in the wrong unit", "merge", mma_causal, "sink * 1.44269504088896340736f", "sink"},
    {"padding of a head dim that is not cleared", "walk", mma_causal,
     "if constexpr (Shape::wide_k && words > 0) clear_words<words>();", ""},
    {"e4m3 exponents one too small", "convert", mma_8_bit, "0x1p120f", "0x1p119f"},
    {"v's scales in k's place", "scale", mma_8_bit, "(C.v_in_k ? 0 : 4 * step_keys)", "0"},
    {"k's scale left out", "scale", mma_8_bit, "scores[p][e] * k_scale[e / 2]", "scores[p][e]"},
    {"int8 without its sign", "convert", simt_options, "int(bits << 24) >> 24", "int(bits)"},
    {"v's pages taken from k's table", "walk", simt_options, "i64(v_pages[slot])", "at.k_block"},
    {"a bias of the next query", "score", simt_options, "at.query * args.bias_stride_query",
     "(at.query ^ 1) * args.bias_stride_query"},
    {"v's scale weighs in the sum of weights", "scale", simt_options,
     "state.run[r].s.l += weight[index];", "state.run[r].s.l += weight[index] * keys.v_scale[u];"},
    {"a tree's bits read from the top", "mask", simt_tree, "bits[bit / 8] >> (bit % 8)",
     "bits[bit / 8] >> (7 - bit % 8)"},
    {"slopes of the neighbouring head", "score", simt_tree, "[at.q_head]", "[at.q_head ^ 1]"},
};

}  // namespace

std::span<const Mutant> cuda_mutants() { return mutants; }

}  // namespace splitkv::testing_support
