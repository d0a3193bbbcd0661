// The three passes over a block of keys: scores, softmax, values. Each element of K and V is loaded
// and converted once, for all rows of the row block.
#include <algorithm>
#include <bit>

#include "codegen/llvm/attend.hpp"
#include "codegen/llvm/convert.hpp"
#include "codegen/llvm/math.hpp"
#include "codegen/llvm/score.hpp"

namespace splitkv::llvm_codegen {

using ir::f32_constant;
using ir::i64_constant;
using ir::Value;

namespace {

// Key `index` of the block: through the table of addresses when paged, else by its stride.
Value emit_key_at(const AttendContext& c, const Cache& cache, const Value& addresses,
                  const KeyBlock& block, const Value& index, const std::string& name) {
  if (is_paged(c.plan.problem)) {
    return c.w.load(ir::pointer, c.w.element(addresses, ir::pointer, index, name + ".at"), 8, name);
  }
  const Value key = c.w.add(block.first_key, index, name + ".position");
  return c.w.byte_offset(cache.base, c.w.mul(key, cache.token_bytes, name + ".offset"), name);
}

// A chunk of K or V may be assumed aligned as the problem's class says, and no more than its size.
int chunk_align(const KernelPlan& plan, DType dtype, int lanes) {
  return std::min(plan.problem.align, lanes * size_bytes(dtype));
}

std::string numbered(const std::string& name, int number) {
  return name + "_" + std::to_string(number);
}

// sums[r * unroll + u] += q[r][first ...] * k[u][first ...]
std::vector<Value> emit_dot_chunk(const AttendContext& c, const std::vector<Value>& keys,
                                  std::vector<Value> sums, const Value& first, int lanes) {
  ir::Writer& w = c.w;
  const DType dtype = c.plan.problem.k_dtype;
  const int rows = c.plan.schedule.rows, unroll = int(keys.size());
  const ir::Type dot{c.plan.real, c.plan.lanes};
  const Value bytes = w.mul(first, i64_constant(size_bytes(dtype)), "dim.bytes");
  std::vector<Value> k(unroll);
  for (int u = 0; u < unroll; ++u) {
    const std::string name = numbered("k", u);
    k[u] = emit_load_elements(w, dtype, c.plan.native_half,
                              w.byte_offset(keys[u], bytes, name + ".at"), lanes,
                              chunk_align(c.plan, dtype, lanes), name);
    if (c.plan.real == ir::Element::f64)
      k[u] = w.cast("fpext", k[u], {c.plan.real, lanes}, name + ".double");
    k[u] = w.widen(k[u], c.plan.lanes, name + ".padded");
  }
  for (int r = 0; r < rows; ++r) {
    const Value row = emit_row_at(w, c.state.q, {c.plan.real}, i64_constant(r), c.plan.padded_qk,
                                  numbered("q.row", r));
    const Value q = w.load(dot, w.element(row, {c.plan.real}, first, numbered("q", r) + ".at"),
                           ir::element_bytes(c.plan.real), numbered("q", r));
    for (int u = 0; u < unroll; ++u) {
      Value& sum = sums[r * unroll + u];
      sum = w.mul_add(q, k[u], sum, "dot.next");
    }
  }
  return sums;
}

// Reduces sums[r * unroll + u] to one number each and stores it at key + u of row r's scores: as
// many at once as a vector has lanes.
void emit_store_dots(const AttendContext& c, const std::vector<Value>& sums, const Value& key) {
  ir::Writer& w = c.w;
  const int unroll = c.plan.schedule.unroll, all = int(sums.size());
  for (int done = 0; done < all;) {
    const int group = int(std::bit_floor(unsigned(std::min(all - done, c.plan.lanes))));
    const Value dots = w.sum_each({sums.begin() + done, sums.begin() + done + group}, "dots");
    for (int lane = 0; lane < group;) {
      const int row = (done + lane) / unroll, u = (done + lane) % unroll;
      const int count = std::min(group - lane, unroll - u);
      const Value to = emit_row_at(w, c.state.scores, {c.plan.real}, i64_constant(row),
                                   c.plan.padded_keys, numbered("scores.row", row));
      const Value at = w.element(w.element(to, {c.plan.real}, key, "scores.key"), {c.plan.real},
                                 i64_constant(u), "scores.at");
      w.store(w.slice(dots, lane, count, "dots.row"), at, ir::element_bytes(c.plan.real));
      lane += count;
    }
    done += group;
  }
}

}  // namespace

void emit_dots(const AttendContext& c, const KeyBlock& block) {
  ir::Writer& w = c.w;
  const int rows = c.plan.schedule.rows, unroll = c.plan.schedule.unroll, lanes = c.plan.lanes;
  const int dim = c.plan.problem.dim_qk, whole = dim / lanes * lanes;
  const ir::Type dot{c.plan.real, lanes};
  w.comment("q.k of every row and key, several keys at a time; the last key stands in beyond it");
  const Value last = w.sub(block.count, i64_constant(1), "key.last");
  w.loop("key", i64_constant(0), block.count, i64_constant(unroll), [&](const Value& key) {
    std::vector<Value> keys, sums(size_t(unroll) * rows, ir::float_constant(dot, 0));
    for (int u = 0; u < unroll; ++u) {
      Value index = w.add(key, i64_constant(u), numbered("key", u));
      if (unroll > 1) index = w.min(index, last, numbered("key.held", u));
      keys.push_back(emit_key_at(c, c.cache.k, c.state.k_at, block, index, numbered("k.row", u)));
    }
    if (whole > 0) {
      std::vector<ir::Carried> carried;
      for (const Value& sum : sums) carried.push_back({"dot", sum});
      sums = w.loop("dim", i64_constant(0), i64_constant(whole), i64_constant(lanes), carried,
                    [&](const Value& first, const std::vector<Value>& current) {
                      return emit_dot_chunk(c, keys, current, first, lanes);
                    });
    }
    if (whole < dim) sums = emit_dot_chunk(c, keys, sums, i64_constant(whole), dim - whole);
    emit_store_dots(c, sums, key);
  });
}

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

// Log2 scores of `lanes` keys from `index` on, -inf where a key is masked or beyond the block.
Value emit_masked_scores(const AttendContext& c, const KeyBlock& block, const QueryRow& asked,
                         const Value& query_pos, const Value& index, const Value& dots) {
  ir::Writer& w = c.w;
  const int lanes = c.plan.lanes;
  const ir::Type positions{ir::Element::i64, lanes};
  const Value in_block = w.add(w.splat(index, lanes), ir::lane_numbers(positions), "key.in_block");
  const ScoreLeaf leaf = [&](ScoreOp op) -> Value {
    switch (op) {
      case ScoreOp::dot:
        return dots;
      case ScoreOp::query_pos:
        return query_pos;
      case ScoreOp::key_pos:
        return w.add(in_block, block.first_key, "key_pos");
      case ScoreOp::kv_len:
        return c.interval.kv_len;
      case ScoreOp::q_head:
        return asked.head;
      default:
        return c.sequence.batch_row;
    }
  };
  const Value score = emit_settled(w, emit_score(w, c.plan.log2_score, dots.type, leaf));
  Value visible = w.compare("lt", in_block, w.splat(block.count, lanes), "in_block");
  if (!is_constant(c.plan.mask, 1)) {
    visible = w.bit_and(visible, emit_condition(w, c.plan.mask, dots.type, leaf), "visible");
  }
  return w.select(visible, score, ir::infinity(score.type, true), "score.masked");
}

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
  const Value before =
      w.mul(c.sequence.row_block, i64_constant(c.plan.schedule.rows), "rows.before");
  const QueryRow asked = emit_query_row(w, c.plan, c.sequence, w.add(before, row, "group.row"));
  const Value past_len = w.sub(asked.query, i64_constant(c.plan.problem.query_len), "query.past");
  const Value query_pos = w.add(c.interval.kv_len, past_len, "query_pos");
  const auto largest =
      w.loop("scored", i64_constant(0), block.count, i64_constant(c.plan.lanes),
             {{"score.largest", ir::infinity(type, true)}},
             [&](const Value& index, const std::vector<Value>& carried) -> std::vector<Value> {
               const Value at = w.element(places.scores, {c.plan.real}, index, "dots.at");
               const Value dots = w.load(type, at, ir::element_bytes(c.plan.real), "dots");
               const Value score = emit_masked_scores(c, block, asked, query_pos, index, dots);
               w.store(score, at, ir::element_bytes(c.plan.real));
               return {w.max(score, carried[0], "score.largest.next")};
             });
  return w.cast(c.plan.real == ir::Element::f64 ? "fptrunc" : "bitcast",
                w.max_lanes(largest[0], "block.largest"), ir::f32, "block.largest.single");
}

// The weights 2^(score - m) and their sum.
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
        w.store(weight, w.element(places.weights, ir::f32, index, "weights.at"), 4);
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
               const Value row = emit_key_at(c, c.cache.v, c.state.v_at, block, key, "v.row");
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
