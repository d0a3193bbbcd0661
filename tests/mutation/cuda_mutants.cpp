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
// Of 1100 keys a warp takes 69 steps.
const Setting mma_long = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 kv_layout=paged:16:nhd lse=natural",
    "schedule family=mma tile=16 rows=3 warps=1 unroll=1 stages=3 partition=fixed splits=1 "
    "reduce=kernel",
    {0, 1, 17, 700, 1100}};
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
// Converted by the hardware only where tensor cores take it.
const Setting simt_e4m3 = {
    "attention q=fp32 kv=e4m3 heads=6/2 dim=64 kv_scale=tensor lse=natural",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting mma_e5m2 = {
    "attention q=fp16 kv=e5m2 heads=6/2 dim=64 kv_scale=tensor lse=natural",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 partition=fixed splits=3 "
    "reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting simt_tree = {
    "attention q=fp32 kv=fp32 heads=4/2 dim=32 query_len=6 alibi=on mask=tree lse=natural",
    "schedule family=simt tile=16 rows=4 warps=2 unroll=2 partition=fixed splits=4 reduce=kernel",
    {6, 17, 100, 259}};

// Blocks that join through each other's shared memory. Of 259 keys all pieces have some; of 100
// one cluster takes part, and of 17 some of its blocks have none. A row's outputs lie in two
// slices, as 3 rows of 16 vectors are cut in 4.
const Setting cluster_lse = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 lse=natural merge=lse",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 partition=fixed splits=4 "
    "reduce=cluster cluster=4",
    {0, 1, 17, 100, 259}};
const Setting clusters_mlo = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 kv_layout=paged:16:nhd sink=on lse=natural "
    "merge=mlo",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=3 partition=strided splits=8 "
    "reduce=cluster cluster=4",
    {0, 1, 17, 100, 259}};
const Setting clusters_bf16 = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 lse=natural merge=mlo",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=8 "
    "reduce=cluster cluster=4 partials=bf16",
    {0, 1, 17, 100, 259}};
const Setting cluster_of_16 = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 lse=natural merge=mlo",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=16 "
    "reduce=cluster cluster=16",
    {0, 1, 17, 100, 259}};
// Copies by tensor map, from pages and from one place; rows of 128 bytes and of 256 in two columns.
const Setting tensor_paged = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 kv_layout=paged:16:nhd lse=natural merge=mlo",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 loads=tensor partition=fixed "
    "splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting tensor_flat = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=128 window=120 lse=natural merge=lse",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 loads=tensor partition=flat "
    "blocks=5 reduce=last_block",
    {0, 1, 17, 100, 259, 333}};

// Two streams of three warps, which divide 17 rows.
const Setting mma_row_warps = {
    "attention q=bf16 kv=bf16 heads=17/1 dim=64 lse=natural merge=mlo",
    "schedule family=mma tile=32 rows=17 warps=6 row_warps=3 unroll=1 stages=2 partition=fixed "
    "splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};

// Products of warp groups: rows of K whose first columns are V, of more columns than one group
// holds, in blocks that begin in the middle of a row; and K and V apart. A last tile is not full.
const Setting wgmma_latent = {
    "attention q=bf16 kv=bf16 heads=20/1 dim=320/128 q_rope=64 v_in_k=on kv_layout=paged:64:nhd "
    "lse=natural merge=mlo",
    "schedule family=wgmma tile=64 rows=20 warps=8 unroll=1 stages=2 loads=tensor partition=flat "
    "blocks=3 reduce=last_block",
    {0, 1, 64, 200, 459}};
const Setting wgmma_window = {
    "attention q=fp16 kv=fp16 heads=8/2 dim=128 query_len=2 window=300 lse=natural",
    "schedule family=wgmma tile=64 rows=8 warps=8 unroll=1 stages=3 loads=tensor partition=fixed "
    "splits=1 reduce=kernel",
    {2, 17, 100, 459, 700}};
// Of 2300 keys a block takes 36 tiles.
const Setting wgmma_long = {
    "attention q=bf16 kv=bf16 heads=4/1 dim=64 kv_layout=paged:64:nhd lse=natural",
    "schedule family=wgmma tile=64 rows=4 warps=8 unroll=1 stages=2 loads=tensor partition=fixed "
    "splits=1 reduce=kernel",
    {1, 700, 2300}};

const Mutant mutants[] = {
    {"a weight of an empty partial computed from inf - inf", "merge", fixed_mlo,
     "return exp2(m - finite_top(top));", "return exp2(m - top);"},
    {"partials joined without moving them to the common maximum", "merge", fixed_mlo,
     "alone ? 1.0f : weight_of(own.m, all.m) * own.l * unit", "alone ? 1.0f : own.l * unit"},
    {"an mlo join that forgets l", "merge", fixed_mlo,
     "alone ? 1.0f : weight_of(own.m, all.m) * own.l * unit",
     "alone ? 1.0f : weight_of(own.m, all.m) * unit"},
    {"a partial with the largest maximum taken for the only one", "merge", fixed_mlo,
     "own.m == all.m && own.l == all.l", "own.m == all.m"},
    {"statistics joined without weights", "merge", fixed_mlo,
     "weight_of(a.m, top) * a.l + weight_of(b.m, top) * b.l", "a.l + weight_of(b.m, top) * b.l"},
    {"S without log l", "merge", fixed_lse, "s.m + log2_of(s.l)", "s.m"},
    {"an lse partial taken for one of another sum", "merge", fixed_lse,
     "s == negative_infinity() ? 0.0f : 1.0f", "s == negative_infinity() ? 0.0f : 2.0f - s * 0.1f"},
    {"l not moved to a new maximum", "merge", fixed_mlo, "s.l *= factor;", ""},
    {"the output not moved to a new maximum", "merge", fixed_mlo,
     "for (float& a : acc) a *= factor;", ""},
    {"warps joined without weights", "merge", fixed_mlo,
     "weight_of(own.m, all.m) * (unit * v_scale)", "unit * v_scale"},
    {"warps joined with each other's weights", "merge", fixed_mlo,
     "__shfl_sync(all_lanes, share, w, lanes)", "__shfl_sync(all_lanes, share, w ^ 1, lanes)"},
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
    {"a range that begins one tile late", "partition", fixed_mlo, "piece.tile_begin = first_of",
     "piece.tile_begin = (split > 0) + first_of"},
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
    {"row blocks that all hold the first rows", "walk", strided_last,
     "smaller(row_block * C.rows + r, ", "smaller(r, "},
    {"every kv head's queries taken from the first group", "walk", fixed_mlo,
     "kv_head * C.group_size + x % C.group_size", "x % C.group_size"},
    {"softcap without its division", "score", flat_paged_window, "const Real t1 = tanh_of(t0);",
     "const Real t1 = tanh_of(t0 * Real(2));"},
    {"sums that lose a half", "score", fixed_mlo, "upper ? first + half : first", "first"},
    {"a natural lse left in log2 units", "output", fixed_mlo, "0.693147180559945309f", "1.0f"},
    {"partials stored before they are normalised", "output", fixed_mlo,
     "finishes ? row_unit(all) : partial_unit(all)", "finishes ? row_unit(all) : 1.0f"},
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
    {"mma: values of the next step", "walk", mma_fixed, "rows = stages.v_rows(stage);",
     "rows = stages.v_rows(stage + Shape::step_bytes);"},
    {"mma: weights not transposed", "walk", mma_fixed, "operand[0][p][half] = transpose(word);",
     "operand[0][p][half] = word;"},
    {"mma: warps that take each other's steps", "partition", mma_fixed,
     "(stream * a_tile + step % a_tile) * step_keys", "(step % a_tile) * step_keys"},
    {"mma: warps that all hold the first rows", "rows", mma_row_warps,
     "threadIdx.x / 32 % C.row_warps * (8 * panels)", "0"},
    {"mma: rows of a warp stored by every warp of its stream", "rows", mma_row_warps,
     "if (C.rows != M::Shape::block_rows && r >= C.rows) continue;", ""},
    {"mma: warps of a stream that copy the same rows", "walk", mma_row_warps,
     "round * Shape::lanes + stream_lane", "round * Shape::lanes + lane"},
    {"a query that sees the key after its own", "mask", mma_causal, "at.query_pos",
     "(at.query_pos + 1)"},
    {"a sink that is not there", "merge", mma_causal, "join(all, {m, 1.0f})", "all"},
    {"a sink in the wrong unit", "merge", mma_causal, "sink * 1.44269504088896340736f", "sink"},
    {"padding of a head dim that is not cleared", "walk", mma_causal,
     "if constexpr (Shape::wide_k && words > 0) clear_words<words>();", ""},
    {"e4m3 exponents one too small", "convert", simt_e4m3, "0x1p120f", "0x1p119f"},
    {"e5m2 in the lower bytes of fp16", "convert", mma_e5m2, "0x1404", "0x4140"},
    {"v's scales in k's place", "scale", mma_8_bit, "(C.v_in_k ? 0 : 4 * step_keys)", "0"},
    {"k's scale left out", "scale", mma_8_bit, "scores[p][e] * k_scale[e / 2]", "scores[p][e]"},
    {"int8 without its sign", "convert", simt_options, "int(bits << 24) >> 24", "int(bits)"},
    {"v's pages taken from k's table", "walk", simt_options,
     "C.separate_tables ? v_pages[slot] : k", "k"},
    {"a bias of an earlier query", "score", simt_options, "at.query * args.bias_stride_query",
     "(at.query / 2) * args.bias_stride_query"},
    {"v's scale weighs in the sum of weights", "scale", simt_options,
     "state.run[r].s.l += weight[index];", "state.run[r].s.l += weight[index] * keys.v_scale[u];"},
    {"a tree's bits read from the top", "mask", simt_tree, "bits[bit / 8] >> (bit % 8)",
     "bits[bit / 8] >> (7 - bit % 8)"},
    {"slopes of the neighbouring head", "score", simt_tree, "[at.q_head]", "[at.q_head ^ 1]"},
    {"mma: K read as if its rows were not turned", "walk", mma_fixed,
     "const Rows row(rows, lane % 16, lane / 16);",
     "const auto row = [&](u32 step) { return rows + lane % 16 * MmaShape<C>::pitch_k + step * 32 "
     "+ "
     "lane / 16 * 16; };"},
    {"mma: V read as if its rows were not turned", "walk", mma_fixed,
     "const Rows row(rows, lane % 8 + lane / 16 * 8, lane / 8 % 2);",
     "const auto row = [&](u32 step) { return rows + (lane % 8 + lane / 16 * 8) * "
     "MmaShape<C>::pitch_v + "
     "step * 32 + lane / 8 % 2 * 16; };"},
    {"mma: queries stored as if their rows were not turned", "walk", mma_fixed,
     "turned<Shape::pitch_q>(r, pair * 4)", "(r * Shape::pitch_q + pair * 4)"},
    {"mma: steps copied into the next one's stage", "walk", mma_fixed, "stages.start(stage, steps",
     "stages.start(stages.next_stage(stage), steps"},
    {"mma: pages of 32 steps kept for those after them", "walk", mma_long, "now = next;", ""},
    {"mma: rows looked up for the step before", "walk", mma_fixed,
     "rows = stages.look_up(steps.first_key(ahead + 1), pages",
     "rows = stages.look_up(steps.first_key(ahead), pages"},
    {"cluster: slices given to the neighbour of their owner", "cluster", cluster_lse,
     "shared_of(index / slice, ", "shared_of(index / slice ^ 1, "},
    {"cluster: outputs given as another block's", "cluster", cluster_lse,
     "o + (own_rank * slice + index % slice)", "o + ((own_rank ^ 1) * slice + index % slice)"},
    {"cluster: statistics given as another block's", "cluster", cluster_lse,
     "sums + (own_rank * C.rows + row)", "sums + ((own_rank ^ 1) * C.rows + row)"},
    {"cluster: m given as S", "cluster", cluster_lse, "0.0f : log2_sum(s)", "0.0f : s.m"},
    {"cluster: a sum of weights not moved to the maximum of all", "cluster", cluster_of_16,
     "weight_of(s.m, top) * s.l", "s.l"},
    {"cluster: a block's outputs joined without its maximum", "cluster", cluster_of_16,
     "const float shares = share_of(own, all, unit)",
     "const float shares = share_of({all.m, own.l}, all, unit)"},
    {"cluster: a block's outputs with its neighbour's share", "cluster", cluster_of_16,
     "__shfl_sync(all_lanes, shares, i)", "__shfl_sync(all_lanes, shares, i ^ 1)"},
    {"clusters: outputs in the slot of another cluster", "cluster", clusters_mlo,
     "store_partial<C>(args, own_slot * C.rows", "store_partial<C>(args, (own_slot ^ 1) * C.rows"},
    {"clusters: one counter for all slices", "cluster", clusters_mlo,
     "args.arrivals + piece.sequence * C.cluster + rank",
     "args.arrivals + piece.sequence * C.cluster"},
    {"clusters: a slice that begins within a row without the row's statistics", "cluster",
     clusters_mlo, "if (at.dim == 0 || at.index == begin)", "if (at.dim == 0)"},
    {"clusters: statistics of a slice in that of another", "cluster", clusters_mlo,
     "sums_row(own_slot) + at.row", "sums_row(own_slot ^ 1) + at.row"},
    {"clusters: a sink in every cluster", "cluster", clusters_mlo,
     "is_last ? with_sink<C>(args, keys, row.q_head) : keys",
     "with_sink<C>(args, keys, row.q_head)"},
    {"tensor maps: a step in which the row ends copied whole", "load", tensor_paged,
     "key + step_keys <= end_key", "key < end_key"},
    {"tensor maps: a step in which the window begins taken for whole", "load", tensor_flat,
     "key >= first_key && key + step_keys", "key + step_keys > first_key && key + step_keys"},
    {"tensor maps: keys of the first head for all", "load", tensor_paged,
     "i32(at.token), kv_head, k_block", "i32(at.token), 0, k_block"},
    {"tensor maps: values of the page of another row", "load", tensor_paged, "i32(at.v_block)",
     "walk.batch_row"},
    {"tensor maps: the first batch row for all", "load", tensor_flat,
     "C.page_size == 0 ? walk.batch_row : i32(at.k_block)",
     "C.page_size == 0 ? 0 : i32(at.k_block)"},
    {"columns of a row taken from one place", "load", tensor_flat,
     "step / steps * (step_keys * Column)", "0"},
    {"wgmma: the second group's values of the first's columns", "walk", wgmma_latent,
     "index == 0 ? 0 : Shape::columns_v - Shape::half_v", "0"},
    {"wgmma: V read as if it were K", "walk", wgmma_latent, "multiply_group<C.v_dtype, true>",
     "multiply_group<C.v_dtype, false>"},
    {"wgmma: values of other keys than the weights", "walk", wgmma_latent,
     "step * 16 * column_pitch", "step / 2 * 32 * column_pitch"},
    {"wgmma: weights of the first 16 keys for all", "walk", wgmma_latent,
     "moved(weights, step * 32)", "weights"},
    {"wgmma: the first column of K for all", "walk", wgmma_latent,
     "multiply_group<C.q_dtype, false>(scores, moved(q, bytes), moved(k, bytes))",
     "multiply_group<C.q_dtype, false>(scores, moved(q, bytes), moved(k, bytes % column_bytes))"},
    {"wgmma: queries stored as if their rows were not turned", "walk", wgmma_latent,
     "turned<column_pitch>(r, chunk % 8 * 16)", "(r * column_pitch + chunk % 8 * 16)"},
    {"wgmma: weights stored as if their rows were not turned", "walk", wgmma_latent,
     "turned<column_pitch>(row, i / 4 * 16 + 4 * t)", "(row * column_pitch + i / 4 * 16 + 4 * t)"},
    {"wgmma: weights in place of V", "walk", wgmma_latent, "weights_offset = own_v ? 0 : v_bytes",
     "weights_offset = 0"},
    {"wgmma: accumulators not moved to a new maximum", "merge", wgmma_latent,
     "acc[i] *= factors[i / 2 % 2]", "acc[i] *= 1.0f"},
    {"wgmma: sums not moved to a new maximum", "merge", wgmma_latent, "l[r] *= factors[r];", ""},
    {"wgmma: maxima of two lanes of four", "merge", wgmma_latent,
     "for (int offset = 1; offset < 4; offset *= 2) {\n      top",
     "for (int offset = 1; offset < 2; offset *= 2) {\n      top"},
    {"wgmma: maxima of the group's own tiles alone", "merge", wgmma_latent,
     "const u32 row = (group.index ^ 1) * column_rows",
     "const u32 row = group.index * column_rows"},
    {"wgmma: sums of the first group alone", "merge", wgmma_latent,
     "group.l[r] + load_shared_float(at.sums + 4 * row)", "group.l[r]"},
    {"wgmma: a tile in which the row ends copied whole", "load", wgmma_latent,
     "key + tile_keys <= end_key", "key < end_key"},
    {"wgmma: a tile in which the window begins taken for whole", "load", wgmma_window,
     "key >= first_key && key + tile_keys", "key + tile_keys > first_key && key + tile_keys"},
    {"wgmma: keys beyond the end take part", "tail", wgmma_long,
     "return u32(key - first_key) < u32(end_key - first_key);",
     "return u32(key - first_key) <= u32(end_key - first_key);"},
    {"wgmma: lanes' copies as if their rows were not turned", "load", wgmma_window,
     "chunk / 8 * column_bytes + turned<column_pitch>(row, chunk % 8 * 16)",
     "chunk / 8 * column_bytes + row * column_pitch + chunk % 8 * 16"},
    {"wgmma: every copy of the first columns", "load", wgmma_latent,
     "args.k_map, part * Shape::copied_k", "args.k_map, 0 * Shape::copied_k"},
    {"wgmma: keys of the first head for all", "load", wgmma_window,
     "i32(at.token), kv_head,\n                   k_block", "i32(at.token), 0, k_block"},
    {"wgmma: pages of 32 tiles kept for those after them", "walk", wgmma_long, "pages = further;",
     ""},
    {"clusters: four elements of bf16 partials of which the last is the third", "cluster",
     clusters_bf16, "element<C.partial_dtype>(raw, 3)", "element<C.partial_dtype>(raw, 2)"},
};

}  // namespace

std::span<const Mutant> cuda_mutants() { return mutants; }

}  // namespace splitkv::testing_support
