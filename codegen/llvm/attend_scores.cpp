// Scores and masks of a block of keys: what the expressions ask for, and what they make of it.
#include <cassert>

#include "codegen/llvm/attend.hpp"
#include "codegen/llvm/convert.hpp"
#include "codegen/llvm/score.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

// Beyond 2^20 an fp64 score is rounded to fp32, so that the maximum, which is kept in fp32, is one
// of the scores: no weight overflows and none is lost, however large the scores.
Value emit_settled(ir::Writer& w, const Value& score) {
  if (score.type.element != ir::Element::f64) return score;
  const ir::Type single = ir::with_lanes(ir::f32, score.type.lanes);
  const Value rounded = w.cast("fpext", w.cast("fptrunc", score, single, "score.single"),
                               score.type, "score.rounded");
  const Value is_small = w.compare("lt", w.abs(score, "score.size"),
                                   ir::float_constant(score.type, 1048576), "score.is_small");
  return w.select(is_small, score, rounded, "score.settled");
}

// The row's bias towards each key of the block, into state.bias.
void emit_load_bias(const AttendContext& c, const KeyBlock& block, const QueryRow& asked) {
  ir::Writer& w = c.w;
  const DType dtype = *c.plan.problem.bias;
  const auto part = [&](const Value& index, size_t stride, const char* name) {
    return w.mul(index, emit_i64_arg(w, c.args, stride, std::string("bias.") + name),
                 std::string("bias.") + name + ".offset");
  };
  const Value in_batch =
      part(c.sequence.batch_row, offsetof(LaunchArgs, bias_stride_batch), "batch");
  const Value in_head = part(asked.head, offsetof(LaunchArgs, bias_stride_head), "head");
  const Value in_query = part(asked.query, offsetof(LaunchArgs, bias_stride_query), "query");
  const Value start = w.add(w.add(in_batch, in_head, "bias.row"), in_query, "bias.row");
  const Value stride = emit_i64_arg(w, c.args, offsetof(LaunchArgs, bias_stride_key), "bias.key");
  const Value bias = emit_pointer_arg(w, c.args, offsetof(LaunchArgs, bias), "bias.all");
  const Value size = i64_constant(size_bytes(dtype));
  w.loop("biased", i64_constant(0), block.count, i64_constant(1), [&](const Value& index) {
    const Value key = w.add(block.first_key, index, "biased.key");
    const Value element = w.add(start, w.mul(key, stride, "bias.key.offset"), "bias.element");
    const Value at = w.byte_offset(bias, w.mul(element, size, "bias.bytes"), "bias.at");
    const Value value =
        emit_load_elements(w, dtype, c.plan.native_half, at, 0, size_bytes(dtype), "bias.value");
    w.store(value, w.element(c.state.bias, ir::f32, index, "bias.to"), 4);
  });
}

// Whether the tree lets the query see each key of the block, into state.tree: the keys before those
// of the row's own queries always, of these the ones whose bit is set.
void emit_load_tree(const AttendContext& c, const KeyBlock& block, const QueryRow& asked) {
  ir::Writer& w = c.w;
  const auto part = [&](const Value& index, size_t stride, const char* name) {
    return w.mul(index, emit_i64_arg(w, c.args, stride, std::string("tree.") + name),
                 std::string("tree.") + name + ".offset");
  };
  const Value offset =
      w.add(part(c.sequence.batch_row, offsetof(LaunchArgs, tree_stride_batch), "batch"),
            part(asked.query, offsetof(LaunchArgs, tree_stride_query), "query"), "tree.offset");
  const Value bits = w.byte_offset(
      emit_pointer_arg(w, c.args, offsetof(LaunchArgs, tree), "tree.all"), offset, "tree.bits");
  const Value first = w.sub(c.row.kv_len, c.row.queries, "tree.first_key");
  w.loop("judged", i64_constant(0), block.count, i64_constant(1), [&](const Value& index) {
    const Value key = w.add(block.first_key, index, "judged.key");
    const Value bit = w.sub(key, first, "tree.bit");
    const Value seen = w.choose(
        w.compare("lt", bit, i64_constant(0), "tree.is_before"), "tree.seen",
        [] { return ir::int_constant(ir::i8, 1); },
        [&] {
          const Value at = w.element(bits, ir::i8, w.floor_div(bit, 8, "tree.byte"), "tree.at");
          const Value byte = w.load(ir::i8, at, 1, "tree.packed");
          const Value place =
              w.cast("trunc", w.floor_rem(bit, 8, "tree.place"), ir::i8, "tree.place.byte");
          return w.bit_and(w.shift_right(byte, place, "tree.shifted"), ir::int_constant(ir::i8, 1),
                           "tree.set");
        });
    w.store(seen, w.element(c.state.tree, ir::i8, index, "tree.to"), 1);
  });
}

std::vector<Value> emit_params(const AttendContext& c, const QueryRow& asked) {
  std::vector<Value> values;
  for (size_t i = 0; i < c.plan.params.size(); ++i) {
    const std::string name = numbered("param", int(i));
    const size_t field = offsetof(LaunchArgs, params) + i * sizeof(void*);
    const ParamScope scope = c.plan.params[i].scope;
    const Value index = scope == ParamScope::head  ? asked.head
                        : scope == ParamScope::row ? c.sequence.batch_row
                                                   : i64_constant(0);
    const Value all = emit_pointer_arg(c.w, c.args, field, name + ".all");
    values.push_back(c.w.load(ir::f32, c.w.element(all, ir::f32, index, name + ".at"), 4, name));
  }
  return values;
}

// Bytes of a table from `index` on, as truth values.
Value emit_flags(const AttendContext& c, const Value& table, const Value& index,
                 const std::string& name) {
  const ir::Type bytes{ir::Element::i8, c.plan.lanes};
  const Value loaded =
      c.w.load(bytes, c.w.element(table, ir::i8, index, name + ".at"), 1, name + ".bytes");
  return c.w.compare("ne", loaded, ir::int_constant(bytes, 0), name);
}

Value emit_key_pos(const AttendContext& c, const Value& key) {
  if (!c.plan.problem.strided_positions) return key;
  ir::Writer& w = c.w;
  const Value pos0 = emit_i64_arg(w, c.args, offsetof(LaunchArgs, pos0), "pos0");
  const Value step = emit_i64_arg(w, c.args, offsetof(LaunchArgs, pos_step), "pos_step");
  return w.add(w.mul(key, step, "key_pos.past"), pos0, "key_pos.strided");
}

// q.k times the scale of K.
Value emit_scaled_dots(const AttendContext& c, const Value& index, const Value& dots) {
  ir::Writer& w = c.w;
  if (c.cache.k.scale == KvScale::none) return dots;
  Value scale = c.cache.k.shared_scale;
  if (is_scale_of_key(c.cache.k.scale)) {
    scale = w.load({ir::Element::f32, c.plan.lanes},
                   w.element(c.state.keys.k_scales, ir::f32, index, "k_scales.at"), 4, "k_scale");
  }
  const ir::Type real{c.plan.real, scale.type.lanes};
  return w.mul(dots, w.cast("fpext", scale, real, "k_scale.real"), "dots.scaled");
}

}  // namespace

ScoredRow emit_scored_row(const AttendContext& c, const KeyBlock& block, Value row) {
  ScoredRow scored;
  scored.asked = emit_query_row(c.w, c.plan, c.sequence, c.row, row);
  const Value first = c.w.sub(c.row.total, c.row.queries, "query_pos.first");
  scored.query_pos = c.w.add(first, scored.asked.query, "query_pos");
  scored.params = emit_params(c, scored.asked);
  if (c.plan.problem.bias) emit_load_bias(c, block, scored.asked);
  if (c.plan.uses_tree) emit_load_tree(c, block, scored.asked);
  return scored;
}

Value emit_masked_scores(const AttendContext& c, const KeyBlock& block, const ScoredRow& scored,
                         Value index, Value dots) {
  ir::Writer& w = c.w;
  const int lanes = c.plan.lanes;
  const ir::Type positions{ir::Element::i64, lanes};
  const Value in_block = w.add(w.splat(index, lanes), ir::lane_numbers(positions), "key.in_block");
  const ScoreLeaf leaf = [&](const ScoreNode& node) -> Value {
    switch (node.op) {
      case ScoreOp::dot:
        return emit_scaled_dots(c, index, dots);
      case ScoreOp::query_pos:
        return scored.query_pos;
      case ScoreOp::key_pos:
        return emit_key_pos(c, w.add(in_block, block.first_key, "key_pos"));
      case ScoreOp::kv_len:
        return c.row.total;
      case ScoreOp::q_head:
        return scored.asked.head;
      case ScoreOp::param:
        return scored.params[node.index];
      case ScoreOp::bias:
        return w.load({ir::Element::f32, lanes},
                      w.element(c.state.bias, ir::f32, index, "bias.from"), 4, "bias");
      case ScoreOp::tree_visible:
        return emit_flags(c, c.state.tree, index, "tree.visible");
      default:
        assert(node.op == ScoreOp::batch);
        return c.sequence.batch_row;
    }
  };
  const Value score = emit_settled(w, emit_score(w, c.plan.log2_score, dots.type, leaf));
  Value visible = w.compare("lt", in_block, w.splat(block.count, lanes), "in_block");
  if (!is_constant(c.plan.mask, 1)) {
    visible = w.bit_and(visible, emit_condition(w, c.plan.mask, lanes, leaf), "visible");
  }
  if (checks_pages(c.plan)) {
    const Value readable = emit_flags(c, c.state.keys.readable, index, "key.readable");
    visible = w.bit_and(visible, readable, "visible.readable");
  }
  return w.select(visible, score, ir::infinity(score.type, true), "score.masked");
}

}  // namespace splitkv::llvm_codegen
