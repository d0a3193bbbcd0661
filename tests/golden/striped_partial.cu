// attention q=fp32 kv=fp32 out=partial heads=4 dim=64 query_len=3 chunk=512 positions=strided merge=mlo | schedule family=simt tile=32 rows=3 unroll=2 partition=fixed splits=1
// ---- this problem ----
namespace splitkv {

constexpr Config config = {
  .q_dtype = DType::fp32,
  .k_dtype = DType::fp32,
  .v_dtype = DType::fp32,
  .out_dtype = DType::fp32,
  .kv_heads = 4,
  .group_size = 1,
  .query_len = 3,
  .ragged = false,
  .dim_qk = 64,
  .dim_v = 64,
  .dim_rope = 0,
  .v_in_k = false,
  .page_size = 0,
  .separate_tables = false,
  .strided_positions = true,
  .k_scale = KvScale::none,
  .v_scale = KvScale::none,
  .sink = false,
  .lse = LseOutput::natural,
  .out_partial = true,
  .out_form = Merge::mlo,
  .checked = false,
  .merge = Merge::mlo,
  .tile_kv = 32,
  .rows = 3,
  .row_blocks = 1,
  .warps = 4,
  .row_warps = 1,
  .unroll = 2,
  .lanes = 8,
  .vector_k = 4,
  .vector_v = 4,
  .slice_qk = 8,
  .slice_v = 8,
  .partition = Partition::fixed,
  .reduce = Reduce::kernel,
  .cluster = 1,
  .pdl = false,
  .partial_dtype = DType::fp32,
};

struct Score {
  // Whether the two functions below look at where a score stands.
  static constexpr bool asks_place = true;

  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates&, const LaunchArgs&) {
    const Real t0 = dot * Real(0.18033688011112042);
    return t0;
  }

  // Whether a key of the row's interval takes part.
  __device__ static bool visible(const Coordinates& at, const LaunchArgs&) {
    using Real = float;
    const bool t0 = at.key_pos <= at.query_pos;
    const i32 t1 = floor_div(at.query_pos, 512);
    const i32 t2 = t1 * 512;
    const bool t3 = t2 <= at.key_pos;
    const bool t4 = t0 && t3;
    return t4;
  }

  // Keys outside [first_key, end_key) are never loaded: the first as the row's first query
  // sees it, the end as its last one does.
  __device__ static i32 first_key(i32 query_pos, i32) {
    const i32 t0 = floor_div(query_pos, 512);
    const i32 t1 = t0 * 512;
    const i32 t2 = larger(0, t1);
    return t2;
  }
  __device__ static i32 end_key(i32 query_pos, i32) {
    const i32 t0 = query_pos + 1;
    return t0;
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 896);
static_assert(32 * config.warps == 128);
static_assert(SimtMemory<config>::bytes == 3376);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_split_fp32_h4x4_d64_146a23ea(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split_simt<splitkv::config, splitkv::Score>(args, &shared[0].x);
}

extern "C" __global__ void __launch_bounds__(96, 1)
    splitkv_reduce_fp32_h4x4_d64_146a23ea(const __grid_constant__ splitkv::LaunchArgs args) {
  splitkv::reduce_sequence<splitkv::config, splitkv::Score, 3>(args, blockIdx.x);
}
