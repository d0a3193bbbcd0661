// attention q=fp32 kv=fp32 heads=7/1 dim=80/72 kv_layout=bthd lse=base2 merge=lse | schedule family=simt tile=32 rows=7 warps=2 unroll=2 partition=strided splits=1
// ---- this problem ----
namespace splitkv {

constexpr Config config = {
  .q_dtype = DType::fp32,
  .k_dtype = DType::fp32,
  .v_dtype = DType::fp32,
  .out_dtype = DType::fp32,
  .kv_heads = 1,
  .group_size = 7,
  .query_len = 1,
  .dim_qk = 80,
  .dim_v = 72,
  .page_size = 0,
  .lse = LseOutput::base2,
  .merge = Merge::lse,
  .tile_kv = 32,
  .rows = 7,
  .row_blocks = 1,
  .warps = 2,
  .unroll = 2,
  .lanes = 16,
  .vector_k = 4,
  .vector_v = 4,
  .slice_qk = 8,
  .slice_v = 8,
  .partition = Partition::strided,
  .reduce = Reduce::kernel,
};

struct Score {
  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates&) {
    const Real t0 = dot * Real(0.16129820911147805);
    return t0;
  }

  // Whether a key of the interval [first_visible_key, kv_len) takes part.
  __device__ static bool visible(const Coordinates&) {
    return true;
  }

  // Keys before this one are never loaded.
  __device__ static i32 first_visible_key(i32) {
    return 0;
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 232);
static_assert(32 * config.warps == 64);
static_assert(BlockRows<config>::bytes == 4160);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(64)
    splitkv_split(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split<splitkv::config, splitkv::Score>(args, &shared[0].x);
}

extern "C" __global__ void __launch_bounds__(224)
    splitkv_reduce(const __grid_constant__ splitkv::LaunchArgs args) {
  splitkv::reduce_sequence<splitkv::config, splitkv::Score>(args, blockIdx.x, 7);
}
