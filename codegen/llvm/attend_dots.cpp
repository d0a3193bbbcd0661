// The first pass over a block of keys: q.k of every row and key.
#include <algorithm>
#include <bit>

#include "codegen/llvm/attend.hpp"
#include "codegen/llvm/convert.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

std::string numbered(const std::string& name, int number) {
  return name + "_" + std::to_string(number);
}

Value emit_key_at(const AttendContext& c, const Cache& cache, const Value& addresses,
                  const KeyBlock& block, const Value& index, const std::string& name) {
  if (is_paged(c.plan.problem)) {
    return c.w.load(ir::pointer, c.w.element(addresses, ir::pointer, index, name + ".at"), 8, name);
  }
  const Value key = c.w.add(block.first_key, index, name + ".position");
  return c.w.byte_offset(cache.base, c.w.mul(key, cache.token_bytes, name + ".offset"), name);
}

// The problem's alignment class, and no more than the size of the chunk.
int chunk_align(const KernelPlan& plan, DType dtype, int lanes) {
  return int(std::bit_floor(unsigned(std::min(plan.problem.align, lanes * size_bytes(dtype)))));
}

namespace {

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
      keys.push_back(
          emit_key_at(c, c.cache.k, c.state.keys.k_at, block, index, numbered("k.row", u)));
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

}  // namespace splitkv::llvm_codegen
