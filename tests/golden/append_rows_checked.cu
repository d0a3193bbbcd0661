// append new=fp16 places=rows heads=2 k=fp16 k_dim=100 v=int8 v_dim=72 v_scale=inline page=3 page_tables=separate align=4 checked=on
// ---- this append ----
namespace splitkv {

constexpr AppendConfig config = {
  .new_dtype = DType::fp16,
  .by_rows = true,
  .k = {.dtype = DType::fp16, .dim = 100, .scale = KvScale::none, .width = 2},
  .v = {.dtype = DType::int8, .dim = 72, .scale = KvScale::inl, .width = 4},
  .v_in_k = false,
  .kv_heads = 2,
  .page_size = 3,
  .separate_tables = true,
  .checked = true,
};

// What the host launches with.
static_assert(sizeof(AppendArgs) == 336);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_append_rows_fp16_h2_d100x72(const __grid_constant__ splitkv::AppendArgs args) {
  splitkv::append<splitkv::config>(args, 4);
}
