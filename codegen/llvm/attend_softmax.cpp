// The second pass over a block of keys: scores become weights, and every row's m and l move on.
#include "codegen/llvm/attend.hpp"
#include "codegen/llvm/math.hpp"

namespace splitkv::llvm_codegen {

using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

namespace {

struct RowPlaces {
  Value scores, weights, m, l, rescale;
};

// The block's largest score of a row, rounded to fp32, with the scores left in place of the dot
// products. Any m near the largest score serves, weights are relative to the rounded one; it is
// near (emit_settled).
Value emit_block_maximum(const AttendContext& c, const KeyBlock& block, const RowPlaces& places,
                         const Value& row) {
  ir::Writer& w = c.w;
  const ir::Type type{c.plan.real, c.plan.lanes};
  const ScoredRow scored = emit_scored_row(c, block, row);
  const auto largest =
      w.loop("scored", i64_constant(0), block.count, i64_constant(c.plan.lanes),
             {{"score.largest", ir::infinity(type, true)}},
             [&](const Value& index, const std::vector<Value>& carried) -> std::vector<Value> {
               const Value at = w.element(places.scores, {c.plan.real}, index, "dots.at");
               const Value dots = w.load(type, at, ir::element_bytes(c.plan.real), "dots");
               const Value score = emit_masked_scores(c, block, scored, index, dots);
               w.store(score, at, ir::element_bytes(c.plan.real));
               return {w.max(score, carried[0], "score.largest.next")};
             });
  return w.cast(c.plan.real == ir::Element::f64 ? "fptrunc" : "bitcast",
                w.max_lanes(largest[0], "block.largest"), ir::f32, "block.largest.single");
}

// A weight as the value wants it: times V's scale.
Value emit_value_weight(const AttendContext& c, const Value& index, const Value& weight) {
  ir::Writer& w = c.w;
  if (c.cache.v.scale == KvScale::none) return weight;
  Value scale = c.cache.v.shared_scale;
  if (is_scale_of_key(c.cache.v.scale)) {
    scale = w.load(weight.type, w.element(c.state.keys.v_scales, ir::f32, index, "v_scales.at"), 4,
                   "v_scale");
  }
  return w.mul(weight, scale, "weight.scaled");
}

// The weights 2^(score - m), scaled for V in memory, and their sum.
Value emit_weights(const AttendContext& c, const KeyBlock& block, const RowPlaces& places,
                   const Value& m) {
  ir::Writer& w = c.w;
  const ir::Type type{ir::Element::f32, c.plan.lanes};
  const ir::Type real{c.plan.real, c.plan.lanes};
  const Value base = w.cast("fpext", m, {real.element}, "m.real");
  const auto sums = w.loop(
      "weighed", i64_constant(0), block.count, i64_constant(c.plan.lanes),
      {{"weight.sum", ir::float_constant(type, 0)}},
      [&](const Value& index, const std::vector<Value>& carried) -> std::vector<Value> {
        const Value score =
            w.load(real, w.element(places.scores, {real.element}, index, "scores.at"),
                   ir::element_bytes(real.element), "score");
        const Value less = w.sub(score, base, "score.less");
        const Value weight = emit_exp2_nonpositive(w, w.cast("fptrunc", less, type, "exponent"));
        w.store(emit_value_weight(c, index, weight),
                w.element(places.weights, ir::f32, index, "weights.at"), 4);
        return {w.add(carried[0], weight, "weight.sum.next")};
      });
  return w.sum_lanes(sums[0], "block.sum");
}

}  // namespace

void emit_softmax(const AttendContext& c, const KeyBlock& block) {
  ir::Writer& w = c.w;
  w.comment("online softmax: weights of the block, m and l of every row");
  w.loop("row", i64_constant(0), i64_constant(c.plan.schedule.rows), i64_constant(1),
         [&](const Value& row) {
           const RowPlaces places{
               emit_row_at(w, c.state.scores, {c.plan.real}, row, c.plan.padded_keys, "scores.row"),
               emit_row_at(w, c.state.weights, ir::f32, row, c.plan.padded_keys, "weights.row"),
               w.element(c.state.m, ir::f32, row, "m.at"),
               w.element(c.state.l, ir::f32, row, "l.at"),
               w.element(c.state.rescale, ir::f32, row, "rescale.at")};
           const Value m_before = w.load(ir::f32, places.m, 4, "m.before");
           const Value m = w.max(emit_block_maximum(c, block, places, row), m_before, "m.next");
           // Nothing seen yet: subtracting 0 instead of -inf gives weights of 0 rather than NaN.
           const Value empty = w.compare("eq", m, ir::infinity(ir::f32, true), "m.is_empty");
           const Value base = w.select(empty, f32_constant(0), m, "m.base");
           const Value sum = emit_weights(c, block, places, base);
           const Value rescale = emit_exp2_nonpositive(w, w.sub(m_before, base, "m.less"));
           const Value l_before = w.load(ir::f32, places.l, 4, "l.before");
           w.store(m, places.m, 4);
           w.store(rescale, places.rescale, 4);
           w.store(w.mul_add(l_before, rescale, sum, "l.next"), places.l, 4);
         });
}

}  // namespace splitkv::llvm_codegen
