// attention q=bf16 kv=bf16 heads=16/8 dim=256 kv_layout=paged:16:nhd scale=0.0625 softcap=50 window=4096 | schedule family=simt tile=64 rows=2 partition=fixed splits=1
// ---- this problem ----
namespace splitkv {

constexpr Config config = {
  .q_dtype = DType::bf16,
  .k_dtype = DType::bf16,
  .v_dtype = DType::bf16,
  .out_dtype = DType::bf16,
  .kv_heads = 8,
  .group_size = 2,
  .query_len = 1,
  .dim_qk = 256,
  .dim_v = 256,
  .page_size = 16,
  .lse = LseOutput::none,
  .merge = Merge::mlo,
  .tile_kv = 64,
  .rows = 2,
  .row_blocks = 1,
  .warps = 4,
  .unroll = 4,
  .lanes = 32,
  .vector_k = 8,
  .vector_v = 8,
  .slice_qk = 8,
  .slice_v = 8,
  .partition = Partition::fixed,
  .reduce = Reduce::kernel,
};

struct Score {
  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates&) {
    const Real t0 = dot * Real(0.00125);
    const Real t1 = tanh_of(t0);
    const Real t2 = t1 * Real(72.13475204444816);
    return t2;
  }

  // Whether a key of the interval [first_visible_key, kv_len) takes part.
  __device__ static bool visible(const Coordinates&) {
    return true;
  }

  // Keys before this one are never loaded.
  __device__ static i32 first_visible_key(i32 kv_len) {
    const Coordinates at = {0, 0, 0, 0, kv_len};
    const i32 t0 = at.kv_len - 4096;
    const i32 t1 = larger(t0, 0);
    return t1;
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 232);
static_assert(32 * config.warps == 128);
static_assert(BlockRows<config>::bytes == 8272);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128)
    splitkv_split(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split<splitkv::config, splitkv::Score>(args, &shared[0].x);
}

extern "C" __global__ void __launch_bounds__(64)
    splitkv_reduce(const __grid_constant__ splitkv::LaunchArgs args) {
  splitkv::reduce_sequence<splitkv::config, splitkv::Score>(args, blockIdx.x, 2);
}
