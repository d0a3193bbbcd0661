// The third pass over a block of keys: the values, weighed and added up.
#include <algorithm>

#include "codegen/llvm/attend.hpp"
#include "codegen/llvm/convert.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

// Chunks of V a panel takes: as many as leave its accumulators in registers, and a divisor of all.
int panel_chunks(const KernelPlan& plan, int chunks) {
  const int accumulators = plan.lanes == 16 ? 16 : 8;
  int most = std::max(1, accumulators / plan.schedule.rows);
  while (chunks % most != 0) --most;
  return most;
}

// acc[r][first ... first + chunks * lanes] for all rows, over all keys of the block.
void emit_panel(const AttendContext& c, const KeyBlock& block, const Value& first, int chunks,
                int lanes) {
  ir::Writer& w = c.w;
  const DType dtype = c.plan.problem.v_dtype;
  const int rows = c.plan.schedule.rows;
  const ir::Type type{ir::Element::f32, lanes};
  std::vector<Value> places;
  std::vector<ir::Carried> carried;
  for (int r = 0; r < rows; ++r) {
    const Value row = emit_row_at(w, c.state.acc, ir::f32, i64_constant(r), c.plan.padded_v,
                                  numbered("acc.row", r));
    const Value at_first = w.element(row, ir::f32, first, numbered("acc.panel", r));
    const Value rescale_at = w.element(c.state.rescale, ir::f32, i64_constant(r), "rescale.at");
    const Value rescale = w.splat(w.load(ir::f32, rescale_at, 4, numbered("rescale", r)), lanes);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      places.push_back(w.element(at_first, ir::f32, i64_constant(chunk * lanes), "acc.at"));
      const Value acc = w.load(type, places.back(), 4, "acc.before");
      carried.push_back({"acc.value", w.mul(acc, rescale, "acc.rescaled")});
    }
  }
  const Value bytes = w.mul(first, i64_constant(size_bytes(dtype)), "panel.bytes");
  const auto sums =
      w.loop("v_key", i64_constant(0), block.count, i64_constant(1), carried,
             [&](const Value& key, std::vector<Value> acc) {
               const Value row = emit_key_at(c, c.cache.v, c.state.keys.v_at, block, key, "v.row");
               const Value panel = w.byte_offset(row, bytes, "v.panel");
               std::vector<Value> v;
               for (int chunk = 0; chunk < chunks; ++chunk) {
                 const std::string name = numbered("v", chunk);
                 const Value at = w.byte_offset(
                     panel, i64_constant(int64_t(chunk) * lanes * size_bytes(dtype)), name + ".at");
                 v.push_back(emit_load_elements(w, dtype, c.plan.native_half, at, lanes,
                                                chunk_align(c.plan, dtype, lanes), name));
               }
               for (int r = 0; r < rows; ++r) {
                 const Value weights = emit_row_at(w, c.state.weights, ir::f32, i64_constant(r),
                                                   c.plan.padded_keys, numbered("weights.row", r));
                 const Value at = w.element(weights, ir::f32, key, "weight.at");
                 const Value weight = w.splat(w.load(ir::f32, at, 4, numbered("weight", r)), lanes);
                 for (int chunk = 0; chunk < chunks; ++chunk) {
                   Value& sum = acc[r * chunks + chunk];
                   sum = w.mul_add(weight, v[chunk], sum, "acc.next");
                 }
               }
               return acc;
             });
  for (size_t i = 0; i < sums.size(); ++i) w.store(sums[i], places[i], 4);
}

}  // namespace

void emit_accumulate(const AttendContext& c, const KeyBlock& block) {
  const int lanes = c.plan.lanes, dim = c.plan.problem.dim_v, whole = dim / lanes * lanes;
  c.w.comment("acc = acc * rescale + weights * V, a panel of dims at a time");
  if (whole > 0) {
    const int chunks = panel_chunks(c.plan, whole / lanes);
    c.w.loop("panel", i64_constant(0), i64_constant(whole), i64_constant(chunks * lanes),
             [&](const Value& first) { emit_panel(c, block, first, chunks, lanes); });
  }
  if (whole < dim) emit_panel(c, block, i64_constant(whole), 1, dim - whole);
}

}  // namespace splitkv::llvm_codegen
