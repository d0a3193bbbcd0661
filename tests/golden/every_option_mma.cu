// attention q=bf16 kv=e4m3 heads=16/2 dim=192/128 query_len=4 kv_layout=paged:16:nhd page_tables=separate kv_scale=head softcap=30 alibi=on bias=fp16 params=slope:head,t:scalar score=tanh(score/t)*t+slope*abs(query_pos-key_pos) mask=tree window=1024 where=key_pos%2==0||key_pos<4 sink=on lse=base2 checked=on | schedule family=mma tile=64 rows=16 unroll=1 stages=2 partition=flat blocks=0 reduce=last_block
// ---- this problem ----
namespace splitkv {

constexpr Config config = {
  .q_dtype = DType::bf16,
  .k_dtype = DType::e4m3,
  .v_dtype = DType::e4m3,
  .out_dtype = DType::bf16,
  .kv_heads = 2,
  .group_size = 8,
  .query_len = 4,
  .ragged = false,
  .dim_qk = 192,
  .dim_v = 128,
  .dim_rope = 0,
  .v_in_k = false,
  .page_size = 16,
  .separate_tables = true,
  .strided_positions = false,
  .k_scale = KvScale::head,
  .v_scale = KvScale::head,
  .sink = true,
  .lse = LseOutput::base2,
  .out_partial = false,
  .out_form = Merge::lse,
  .checked = true,
  .merge = Merge::mlo,
  .tile_kv = 64,
  .rows = 16,
  .row_blocks = 2,
  .warps = 4,
  .row_warps = 1,
  .stages = 2,
  .loads = Loads::copy,
  .copy_k = 16,
  .copy_v = 16,
  .partition = Partition::flat,
  .reduce = Reduce::last_block,
  .cluster = 1,
  .pdl = false,
  .partial_dtype = DType::fp32,
};

struct Score {
  // Whether the two functions below look at where a score stands.
  static constexpr bool asks_place = true;

  // The score of q.k in log2 units.
  template <class Real>
  __device__ static Real log2_score(Real dot, const Coordinates& at, const LaunchArgs& args) {
    const Real t0 = dot * Real(0.002405626121623441);
    const Real t1 = tanh_of(t0);
    const Real t2 = t1 * Real(30ll);
    const i64 t3 = i64(at.key_pos) - i64(at.query_pos);
    const Real t4 = Real(args.params[2][at.q_head]) * Real(t3);
    const Real t5 = t2 + t4;
    const Real t6 = t5 + Real(bias_at<DType::fp16>(args, at));
    const Real t7 = t6 / Real(args.params[1][0]);
    const Real t8 = tanh_of(t7);
    const Real t9 = t8 * Real(args.params[1][0]);
    const i64 t10 = i64(at.query_pos) - i64(at.key_pos);
    const i64 t11 = larger(t10, -(t10));
    const Real t12 = Real(args.params[0][at.q_head]) * Real(t11);
    const Real t13 = t9 + t12;
    const Real t14 = t13 * Real(1.4426950408889634);
    return t14;
  }

  // Whether a key of the row's interval takes part.
  __device__ static bool visible(const Coordinates& at, const LaunchArgs& args) {
    using Real = float;
    const i64 t0 = i64(at.query_pos) - 1024ll;
    const bool t1 = t0 < i64(at.key_pos);
    const i64 t2 = floor_rest(i64(at.key_pos), 2ll);
    const bool t3 = t2 == 0ll;
    const bool t4 = i64(at.key_pos) < 4ll;
    const bool t5 = t3 || t4;
    const bool t6 = t1 && tree_visible(args, at);
    const bool t7 = t6 && t5;
    return t7;
  }

  // Keys outside [first_key, end_key) are never loaded: the first as the row's first query
  // sees it, the end as its last one does.
  __device__ static i32 first_key(i32 query_pos, i32) {
    const i64 t0 = i64(query_pos) - 1023ll;
    const i64 t1 = larger(0ll, t0);
    return i32(smaller(larger(i64(t1), i64(0)), i64(0x7fffffff)));
  }
  __device__ static i32 end_key(i32, i32 kv_len) {
    return i32(smaller(larger(i64(i64(kv_len)), i64(0)), i64(0x7fffffff)));
  }
};

// What the host launches with.
static_assert(sizeof(LaunchArgs) == 896);
static_assert(32 * config.warps == 128);
static_assert(MmaMemory<config>::bytes == 71680);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_split_bf16_e4m3_h16x2_d192x128_7292bed9(const __grid_constant__ splitkv::LaunchArgs args) {
  extern __shared__ float4 shared[];
  splitkv::split_mma<splitkv::config, splitkv::Score>(args, &shared[0].x);
}
