// attention q=fp32 kv=fp32 heads=7/1 dim=80/72 kv_layout=bthd lse=base2 merge=lse | schedule family=simt tile=32 rows=7 warps=2 unroll=1 partition=strided splits=1
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
  .ragged = false,
  .dim_qk = 80,
  .dim_v = 72,
  .dim_rope = 0,
  .v_in_k = false,
  .page_size = 0,
  .separate_tables = false,
  .strided_positions = false,
  .k_scale = KvScale::none,
  .v_scale = KvScale::none,
  .sink = false,
  .lse = LseOutput::base2,
  .out_partial = false,
  .out_form = Merge::lse,
  .checked = false,
  .merge = Merge::lse,
  .tile_kv = 32,
  .rows = 7,
  .row_blocks = 1,
  .warps = 2,
  .row_warps = 1,
  .unroll = 1,
  .lanes = 16,
  .vector_k = 4,
  .vector_v = 4,
  .slice_qk = 8,
  .slice_v = 8,
  .partition = Partition::strided,
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
    const Real t0 = dot * Real(0.16129820911147805);
    return t0;
  }

  // Whether a key of the row's interval takes part.
  __device__ static bool visible(const Coordinates&, const LaunchArgs&) {
    return true;
  }

  // Keys outside [first_key, end_key) are never loaded: the first as the row's first query
  // sees it, the end as its last one does.
  __device__ static i32 first_key(i32, i32) {
    return 0;
  }
  __device__ static i32 end_key(i32 query_pos, i32) {
    const i32 t0 = query_pos + 1;
    return t0;
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 896);
static_assert(32 * config.warps == 64);
static_assert(SimtMemory<config>::bytes == 4832);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(64, 1)
    splitkv_split_fp32_h7x1_d80x72_44caec45(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split_simt<splitkv::config, splitkv::Score>(args, &shared[0].x);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_reduce_fp32_h7x1_d80x72_44caec45(const __grid_constant__ splitkv::LaunchArgs args) {
  splitkv::reduce_sequence<splitkv::config, splitkv::Score, 4>(args, blockIdx.x);
}
