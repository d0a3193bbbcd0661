// attention q=bf16 kv=bf16 heads=128/1 dim=576/512 q_rope=64 v_in_k=on kv_layout=paged:64:nhd lse=natural | schedule family=wgmma tile=64 rows=64 warps=8 unroll=1 stages=2 loads=tensor partition=flat blocks=0 reduce=last_block pdl=on
// ---- this problem ----
namespace splitkv {

constexpr Config config = {
  .q_dtype = DType::bf16,
  .k_dtype = DType::bf16,
  .v_dtype = DType::bf16,
  .out_dtype = DType::bf16,
  .kv_heads = 1,
  .group_size = 128,
  .query_len = 1,
  .ragged = false,
  .dim_qk = 576,
  .dim_v = 512,
  .dim_rope = 64,
  .v_in_k = true,
  .page_size = 64,
  .separate_tables = false,
  .strided_positions = false,
  .k_scale = KvScale::none,
  .v_scale = KvScale::none,
  .sink = false,
  .lse = LseOutput::natural,
  .out_partial = false,
  .out_form = Merge::lse,
  .checked = false,
  .merge = Merge::mlo,
  .tile_kv = 64,
  .rows = 64,
  .row_blocks = 2,
  .warps = 8,
  .row_warps = 8,
  .stages = 2,
  .partition = Partition::flat,
  .reduce = Reduce::last_block,
  .cluster = 1,
  .pdl = true,
  .partial_dtype = DType::fp32,
};

struct Score {
  // Whether the two functions below look at where a score stands.
  static constexpr bool asks_place = false;

  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates&, const LaunchArgs&) {
    const Real t0 = dot * Real(0.06011229337037347);
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
static_assert(32 * config.warps == 256);
static_assert(WgmmaMemory<config>::bytes == 222016);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(256, 1)
    splitkv_split_bf16_h128x1_d576x512_bf86e230(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ __align__(1024) float4 shared[];
  splitkv::split_wgmma<splitkv::config, splitkv::Score>(args, &shared[0].x);
}
