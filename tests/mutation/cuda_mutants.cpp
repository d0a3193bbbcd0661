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
     "weight[w] = weight_of(rows.statistics[w * C.rows + r].m, all.m) * scale;",
     "weight[w] = scale;"},
    {"a window one key too wide", "mask", flat_paged_window, "at.kv_len - 100", "at.kv_len - 101"},
    {"a window one key too narrow", "mask", flat_paged_window, "at.kv_len - 100", "at.kv_len - 99"},
    {"the tile of the window's first key taken whole", "mask", flat_paged_window,
     "larger(tile_key, piece.row.first_key)", "tile_key"},
    {"one key more than the row has", "tail", fixed_mlo, "at.key_pos < end &&",
     "at.key_pos <= end &&"},
    {"the last key left out", "tail", fixed_mlo, "smaller(tile_key + C.tile_kv, piece.row.kv_len)",
     "smaller(tile_key + C.tile_kv, piece.row.kv_len - 1)"},
    {"a last tile that is not full left out", "tail", fixed_mlo,
     "ceil_div(kv_len, C.tile_kv) - first_tile", "kv_len / C.tile_kv - first_tile"},
    {"empty rows without an owner", "partition", strided_last, "smaller(splits, larger(tiles, 1))",
     "smaller(splits, tiles)"},
    {"a range that begins one tile late", "partition", fixed_mlo,
     "piece.tile_begin = i32(i64(split) * piece.row.tiles / piece.pieces);",
     "piece.tile_begin = i32(i64(split) * piece.row.tiles / piece.pieces) + (split > 0);"},
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
    {"row blocks that all hold the first rows", "walk", strided_last, "row_block * C.rows + row",
     "row"},
    {"every kv head's queries taken from the first group", "walk", fixed_mlo,
     "kv_head * C.group_size + x % C.group_size", "x % C.group_size"},
    {"softcap without its division", "score", flat_paged_window, "const Real t1 = tanh_of(t0);",
     "const Real t1 = tanh_of(t0 * Real(2));"},
    {"sums that lose a half", "score", fixed_mlo, "upper ? first + half : first", "first"},
    {"a natural lse left in log2 units", "output", fixed_mlo, "0.693147180559945309f", "1.0f"},
    {"partials stored before they are normalised", "output", fixed_mlo,
     "slot_row * C.dim_v + dim] = sum;", "slot_row * C.dim_v + dim] = sum * all.l;"},
};

}  // namespace

std::span<const Mutant> cuda_mutants() { return mutants; }

}  // namespace splitkv::testing_support
