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
};

}  // namespace

std::span<const Mutant> race_mutants() { return mutants; }

}  // namespace splitkv::testing_support
