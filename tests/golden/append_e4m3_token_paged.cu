// append new=bf16 places=slots heads=8 k=e4m3 k_dim=128 k_scale=token v=e4m3 v_dim=128 v_scale=token page=16
// ---- this append ----
namespace splitkv {

constexpr AppendConfig config = {
  .new_dtype = DType::bf16,
  .by_rows = false,
  .k = {.dtype = DType::e4m3, .dim = 128, .scale = KvScale::token, .width = 4},
  .v = {.dtype = DType::e4m3, .dim = 128, .scale = KvScale::token, .width = 4},
  .v_in_k = false,
  .kv_heads = 8,
  .page_size = 16,
  .separate_tables = false,
  .checked = false,
};

// What the host launches with.
static_assert(sizeof(AppendArgs) == 336);

}  // namespace splitkv

extern "C" __global__ void __launch_bounds__(128, 1)
    splitkv_append_slots_bf16_e4m3_h8_d128(const __grid_constant__ splitkv::AppendArgs args) {
  splitkv::append<splitkv::config>(args, 4);
}
