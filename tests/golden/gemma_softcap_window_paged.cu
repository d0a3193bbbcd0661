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
  .ragged = false,
  .dim_qk = 256,
  .dim_v = 256,
  .dim_rope = 0,
  .v_in_k = false,
  .page_size = 16,
  .separate_tables = false,
  .strided_positions = false,
  .k_scale = KvScale::none,
  .v_scale = KvScale::none,
  .sink = false,
  .lse = LseOutput::none,
  .out_partial = false,
  .out_form = Merge::lse,
  .checked = false,
  .merge = Merge::mlo,
  .tile_kv = 64,
  .rows = 2,
  .row_blocks = 1,
  .warps = 4,
  .row_warps = 1,
  .unroll = 4,
  .lanes = 32,
  .vector_k = 8,
  .vector_v = 8,
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
  static constexpr bool asks_place = false;

  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates&, const LaunchArgs&) {
    const Real t0 = dot * Real(0.00125);
    const Real t1 = tanh_of(t0);
    const Real t2 = t1 * Real(72.13475204444816);
    return t2;
  }

  // Whether a key of the row's interval takes part.
  __device__ static bool visible(const Coordinates&, const LaunchArgs&) {
    return true;
  }

  // Keys outside [first_key, end_key) are never loaded: the first as the row's first query
  // sees it, the end as its last one does.
  __device__ static i32 first_key(i32 query_pos, i32) {
    const i32 t0 = query_pos - 4095;
    const i32 t1 = larger(0, t0);
    return t1;
  }
  __device__ static i32 end_key(i32 query_pos, i32) {
    const i32 t0 = query_pos + 1;
    return t0;
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 896);
static_assert(32 * config.warps == 128);
static_assert(SimtMemory<config>::bytes == 8400);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_split_bf16_h16x8_d256_2d309741(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split_simt<splitkv::config, splitkv::Score>(args, &shared[0].x);
}

extern "C" __global__ void __launch_bounds__(64, 1)
    splitkv_reduce_bf16_h16x8_d256_2d309741(const __grid_constant__ splitkv::LaunchArgs args) {
  splitkv::reduce_sequence<splitkv::config, splitkv::Score, 2>(args, blockIdx.x);
}
