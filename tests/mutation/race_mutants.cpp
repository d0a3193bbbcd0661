// Orders that are not kept: on a GPU such a fault may give the right result. The emulated device
// makes it show, by what comes as late as it may and by running warps in two orders.
#include "tests/mutation/planted.hpp"

namespace splitkv::testing_support {
namespace {

const Setting mma_copies = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 lse=natural",
    "schedule family=mma tile=64 rows=3 warps=2 unroll=1 stages=3 partition=fixed splits=5 "
    "reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting mma_tensor = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 kv_layout=paged:16:nhd lse=natural",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 loads=tensor partition=fixed "
    "splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};
// Two streams of three warps.
const Setting mma_row_warps = {
    "attention q=bf16 kv=bf16 heads=17/1 dim=64 lse=natural",
    "schedule family=mma tile=32 rows=17 warps=6 row_warps=3 unroll=1 stages=2 partition=fixed "
    "splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting mma_row_warps_8_bit = {
    "attention q=bf16 kv=e4m3 heads=17/1 dim=64 kv_scale=token lse=natural",
    "schedule family=mma tile=32 rows=17 warps=6 row_warps=3 unroll=1 stages=2 partition=fixed "
    "splits=3 reduce=kernel",
    {0, 1, 17, 100, 259}};
const Setting cluster = {
    "attention q=bf16 kv=bf16 heads=6/2 dim=64 lse=natural",
    "schedule family=mma tile=32 rows=3 warps=2 unroll=1 stages=2 partition=fixed splits=4 "
    "reduce=cluster cluster=4",
    {0, 1, 17, 100, 259}};
const Setting simt = {
    "attention q=fp32 kv=fp32 heads=6/2 dim=64 lse=natural",
    "schedule family=simt tile=16 rows=3 warps=2 unroll=2 partition=fixed splits=5 reduce=kernel",
    {0, 1, 17, 100, 259}};

// Warp groups that take turns; the last tile is not full. Weights lie in the third column of K's
// three, and in K's first.
const Setting wgmma_latent = {
    "attention q=bf16 kv=bf16 heads=20/1 dim=192/128 v_in_k=on kv_layout=paged:64:nhd lse=natural",
    "schedule family=wgmma tile=64 rows=20 warps=8 unroll=1 stages=2 loads=tensor partition=flat "
    "blocks=3 reduce=last_block",
    {0, 1, 64, 200, 459}};
const Setting wgmma_apart = {
    "attention q=fp16 kv=fp16 heads=8/2 dim=128 lse=natural",
    "schedule family=wgmma tile=64 rows=4 warps=8 unroll=1 stages=3 loads=tensor partition=fixed "
    "splits=1 reduce=kernel",
    {2, 17, 100, 459, 700}};

const Mutant mutants[] = {
    {"a step added before its copies have come", "copies", mma_copies,
     "wait_copies<C.stages - 1>();", "wait_copies<C.stages>();"},
    {"a step added before its copy by tensor map has come", "copies", mma_tensor,
     "wait_phase(stage.barrier, stage.parity);", ""},
    {"the phase after a step's waited for", "copies", mma_tensor,
     "wait_phase(stage.barrier, stage.parity);", "wait_phase(stage.barrier, stage.parity ^ 1);"},
    {"a copy by tensor map of which too many bytes are expected", "copies", mma_tensor,
     "step_keys * (Shape::pitch_k + Shape::pitch_v));",
     "step_keys * (Shape::pitch_k + Shape::pitch_v) + 16);"},
    {"a last step's keys that are copied one by one not waited for", "copies", mma_tensor,
     "wait_copies<0>();\n      order_before_copies();", "order_before_copies();"},
    {"queries read before all are stored", "block", mma_copies,
     "put(shared, row_of(i), pair_of(j), held[i][j]);\n      }\n    }\n    __syncthreads();",
     "put(shared, row_of(i), pair_of(j), held[i][j]);\n      }\n    }"},
    {"warps' rows stored over stages that others read", "block", mma_copies,
     "__syncthreads();  // queries and stages make room", "// queries and stages make room"},
    {"mma: warps joined before all stored their rows", "block", mma_copies,
     "__syncthreads();\n  start_what_follows<C>();", "start_what_follows<C>();"},
    {"simt: warps joined before all stored their rows", "block", simt,
     "__syncthreads();\n  start_what_follows<C>();", "start_what_follows<C>();"},
    {"a stage filled while other warps read it", "stream", mma_row_warps,
     "sync_stream<C>();  // all have read the stage", "// all have read the stage"},
    {"values widened over keys that other warps read", "stream", mma_row_warps_8_bit,
     "sync_stream<C>();  // the work area's keys", "// the work area's keys"},
    {"widened rows read before other warps wrote theirs", "stream", mma_row_warps_8_bit,
     "\"r\"(low), \"r\"(high)\n          : \"memory\");\n    }\n    sync_stream<C>();",
     "\"r\"(low), \"r\"(high)\n          : \"memory\");\n    }"},
    {"slices joined before all blocks gave theirs", "cluster", cluster,
     "arrive_at_cluster();\n    wait_for_cluster();\n    reduce_cluster",
     "arrive_at_cluster();\n    reduce_cluster"},
    {"rows given to blocks that may not run yet", "cluster", cluster,
     "wait_for_cluster();  // every block runs", "// every block runs"},
    {"wgmma: weights that the other group does not wait for", "groups", wgmma_latent,
     "group.await_weights();", ""},
    {"wgmma: weights written over keys that other warps multiply", "groups", wgmma_apart,
     "group.sync();  // all its warps' products", "// all its warps' products"},
    {"wgmma: a stage that one group gives up for both", "groups", wgmma_latent,
     "is_filled ? 1 : C.warps", "is_filled ? 1 : C.warps / 2"},
    {"wgmma: products begun before their columns came", "copies", wgmma_latent,
     "wait_phase(ring.filled(at.barriers, column / Shape::copied_k), ring.parity);", ""},
    {"wgmma: values multiplied before they came", "copies", wgmma_apart,
     "wait_phase(ring.filled(at.barriers, WgmmaShape<C>::copies_k), ring.parity);", ""},
    {"wgmma: lanes' copies announced before they came", "copies", wgmma_apart,
     "wait_copies<0>();\n    order_before_copies();\n    sync_group",
     "order_before_copies();\n    sync_group"},
    {"wgmma: scores read before their products ended", "products", wgmma_latent,
     "multiply_keys(at, ring, scores);\n  wait_products<0>();",
     "multiply_keys(at, ring, scores);\n  wait_products<1>();"},
    {"wgmma: a stage given up before its values were added", "products", wgmma_latent,
     "multiply_values(group, at, ring);\n    wait_products<0>();",
     "multiply_values(group, at, ring);\n    wait_products<1>();"},
    {"wgmma: rounds of the ring begun anew with each piece", "block", wgmma_latent,
     "ring = ring.after(loader.tiles.count);", "ring = Ring<C>{0, 0};"},
};

}  // namespace

std::span<const Mutant> race_mutants() { return mutants; }

}  // namespace splitkv::testing_support
