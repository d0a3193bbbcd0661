#include "codegen/llvm/kv_walk.hpp"

#include <algorithm>

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

constexpr int kTableAlign = 64;
constexpr int kFloatBytes = 4;

struct StrideFields {
  size_t block, head, token;
};

struct CacheFields {
  size_t base;
  StrideFields strides;
  size_t scales;
  StrideFields scale_strides;
  size_t page_table, page_offset, page_table_stride;
};

constexpr CacheFields kKeyFields{
    offsetof(LaunchArgs, k),
    {offsetof(LaunchArgs, k_stride_block), offsetof(LaunchArgs, k_stride_head),
     offsetof(LaunchArgs, k_stride_token)},
    offsetof(LaunchArgs, k_scale),
    {offsetof(LaunchArgs, k_scale_stride_block), offsetof(LaunchArgs, k_scale_stride_head),
     offsetof(LaunchArgs, k_scale_stride_token)},
    offsetof(LaunchArgs, page_table),
    offsetof(LaunchArgs, page_offset),
    offsetof(LaunchArgs, page_table_stride)};
constexpr CacheFields kValueFields{
    offsetof(LaunchArgs, v),
    {offsetof(LaunchArgs, v_stride_block), offsetof(LaunchArgs, v_stride_head),
     offsetof(LaunchArgs, v_stride_token)},
    offsetof(LaunchArgs, v_scale),
    {offsetof(LaunchArgs, v_scale_stride_block), offsetof(LaunchArgs, v_scale_stride_head),
     offsetof(LaunchArgs, v_scale_stride_token)},
    offsetof(LaunchArgs, v_page_table),
    offsetof(LaunchArgs, v_page_offset),
    offsetof(LaunchArgs, v_page_table_stride)};

// An array over (block, head, token): where the sequence's part of it starts, and how far apart its
// blocks and tokens are.
struct Strided {
  Value base, block_bytes, token_bytes;
};
Strided emit_strided(ir::Writer& w, const KernelPlan& plan, const Value& args,
                     const Sequence& sequence, size_t base, const StrideFields& fields, int size,
                     const std::string& name) {
  const auto stride_bytes = [&](size_t field, const std::string& stride) {
    return w.mul(emit_i64_arg(w, args, field, name + "." + stride), i64_constant(size),
                 name + "." + stride + ".bytes");
  };
  Strided array;
  array.block_bytes = stride_bytes(fields.block, is_paged(plan.problem) ? "page" : "row");
  array.token_bytes = stride_bytes(fields.token, "token");
  Value offset = w.mul(stride_bytes(fields.head, "head"), sequence.kv_head, name + ".head.offset");
  if (!is_paged(plan.problem)) {
    offset = w.add(offset, w.mul(array.block_bytes, sequence.batch_row, name + ".row.offset"),
                   name + ".offset");
  }
  array.base =
      w.byte_offset(emit_pointer_arg(w, args, base, name + ".all"), offset, name + ".base");
  return array;
}

// The start of a row's page ids: from the array of offsets, or row times stride without one.
Value emit_page_list(ir::Writer& w, const Value& args, const Value& batch_row,
                     const CacheFields& fields, const std::string& name) {
  const Value offsets = emit_pointer_arg(w, args, fields.page_offset, name + ".page_offset");
  const Value start = w.choose(
      emit_is_null(w, offsets, name + ".table.is_2d"), name + ".page_list.offset",
      [&] {
        const Value stride =
            emit_i64_arg(w, args, fields.page_table_stride, name + ".page_table_stride");
        return w.mul(batch_row, stride, name + ".page_list.from_row");
      },
      [&] {
        const Value at = w.element(offsets, ir::i64, batch_row, name + ".page_offset.at");
        return w.load(ir::i64, at, 8, name + ".page_list.from_offset");
      });
  const Value table = emit_pointer_arg(w, args, fields.page_table, name + ".page_table");
  return w.element(table, ir::i32, start, name + ".page_list");
}

Cache emit_one_cache(ir::Writer& w, const KernelPlan& plan, const Value& args,
                     const Sequence& sequence, Cache cache, const CacheFields& fields,
                     const std::string& name) {
  const Strided rows = emit_strided(w, plan, args, sequence, fields.base, fields.strides,
                                    size_bytes(cache.dtype), name);
  cache.base = rows.base;
  cache.block_bytes = rows.block_bytes;
  cache.token_bytes = rows.token_bytes;
  if (cache.scale == KvScale::token) {
    const Strided scales = emit_strided(w, plan, args, sequence, fields.scales,
                                        fields.scale_strides, kFloatBytes, name + ".scale");
    cache.scales = scales.base;
    cache.scale_block_bytes = scales.block_bytes;
    cache.scale_token_bytes = scales.token_bytes;
  } else if (cache.scale == KvScale::tensor || cache.scale == KvScale::head) {
    const Value all = emit_pointer_arg(w, args, fields.scales, name + ".scale.all");
    const Value index = cache.scale == KvScale::head ? sequence.kv_head : i64_constant(0);
    cache.shared_scale = w.load(ir::f32, w.element(all, ir::f32, index, name + ".scale.at"),
                                kFloatBytes, name + ".scale");
  }
  return cache;
}

}  // namespace

KeyValueCache emit_cache(ir::Writer& w, const KernelPlan& plan, Value args,
                         const Sequence& sequence) {
  const Problem& problem = plan.problem;
  KeyValueCache cache;
  cache.k = emit_one_cache(w, plan, args, sequence,
                           {problem.k_dtype, problem.dim_qk, problem.k_scale}, kKeyFields, "k");
  if (is_paged(problem)) {
    cache.k.page_list = emit_page_list(w, args, sequence.batch_row, kKeyFields, "k");
  }
  if (problem.v_in_k) {
    cache.v = cache.k;
    return cache;
  }
  cache.v = emit_one_cache(w, plan, args, sequence,
                           {problem.v_dtype, problem.dim_v, problem.v_scale}, kValueFields, "v");
  cache.v.page_list = cache.k.page_list;
  if (problem.separate_tables) {
    cache.v.page_list = emit_page_list(w, args, sequence.batch_row, kValueFields, "v");
  }
  return cache;
}

KeyTables emit_key_tables(ir::Writer& w, const KernelPlan& plan) {
  const Problem& problem = plan.problem;
  const auto table = [&](ir::Type type, const char* name) {
    return w.stack(type, plan.padded_keys, kTableAlign, name);
  };
  KeyTables tables;
  if (is_paged(problem)) {
    tables.k_at = table(ir::pointer, "k_at");
    tables.v_at = problem.v_in_k ? tables.k_at : table(ir::pointer, "v_at");
  }
  if (is_scale_of_key(problem.k_scale)) tables.k_scales = table(ir::f32, "k_scales");
  if (problem.v_in_k) {
    tables.v_scales = tables.k_scales;
  } else if (is_scale_of_key(problem.v_scale)) {
    tables.v_scales = table(ir::f32, "v_scales");
  }
  if (!checks_pages(plan)) return tables;
  tables.readable = table(ir::i8, "readable");
  const int bytes = std::max(problem.dim_qk * size_bytes(problem.k_dtype),
                             problem.dim_v * size_bytes(problem.v_dtype));
  const int floats = (bytes + 2 * kFloatBytes - 1) / kFloatBytes;  // with room for a scale
  tables.nothing = w.stack(ir::f32, floats, kTableAlign, "nothing");
  w.loop("cleared", i64_constant(0), i64_constant(floats), i64_constant(1), [&](const Value& i) {
    w.store(ir::f32_constant(0), w.element(tables.nothing, ir::f32, i, "nothing.at"), kFloatBytes);
  });
  return tables;
}

namespace {

struct LookUp {
  ir::Writer& w;
  const KernelPlan& plan;
  Value args;
  Sequence sequence;
  const KeyTables& tables;
  Value index;     // in the tables
  Value slot;      // paged: of the row's page list
  Value token;     // of the page, or of the row
  Value readable;  // checked pages: i1
};

Value emit_page(const LookUp& l, const Cache& side, const std::string& name) {
  return emit_i32_element(l.w, side.page_list, l.slot, name + ".page.id");
}

// Whether a page id is one; a bad one is reported.
Value emit_page_is_good(const LookUp& l, const Value& page) {
  ir::Writer& w = l.w;
  const Value count = emit_i64_arg(w, l.args, offsetof(LaunchArgs, page_count), "page_count");
  const Value below = w.compare("lt", page, i64_constant(0), "page.is_below");
  const Value past = w.compare("ge", page, count, "page.is_past");
  const Value known = w.compare("gt", count, i64_constant(0), "page_count.is_known");
  const Value bad = w.bit_and(known, w.bit_or(below, past, "page.is_outside"), "page.is_bad");
  w.when(bad, "bad_page",
         [&] { emit_report_call(w, l.args, kBadPageId, l.sequence.batch_row, l.slot, page); });
  return w.bit_xor(bad, ir::int_constant(ir::i1, 1), "page.is_good");
}

// base + page * block + token * token, or zeros where the page is bad.
Value emit_place(const LookUp& l, const Value& base, const Value& block_bytes,
                 const Value& token_bytes, const Value& page, const std::string& name) {
  ir::Writer& w = l.w;
  Value offset = w.mul(l.token, token_bytes, name + ".token.offset");
  if (is_paged(l.plan.problem)) {
    offset = w.add(w.mul(page, block_bytes, name + ".page.offset"), offset, name + ".key.offset");
  }
  const Value place = w.byte_offset(base, offset, name + ".key");
  if (!checks_pages(l.plan)) return place;
  return w.select(l.readable, place, l.tables.nothing, name + ".key.held");
}

void emit_look_up_side(const LookUp& l, const Cache& side, const Value& page, const Value& at,
                       const Value& scales, const std::string& name) {
  ir::Writer& w = l.w;
  const Value place = emit_place(l, side.base, side.block_bytes, side.token_bytes, page, name);
  if (is_paged(l.plan.problem)) {
    w.store(place, w.element(at, ir::pointer, l.index, name + ".key.at"), 8);
  }
  if (!is_scale_of_key(side.scale)) return;
  const bool inside = side.scale == KvScale::inl;
  const Value from =
      inside ? w.byte_offset(place, i64_constant(int64_t(side.dim) * size_bytes(side.dtype)),
                             name + ".scale.from")
             : emit_place(l, side.scales, side.scale_block_bytes, side.scale_token_bytes, page,
                          name + ".scale");
  const Value scale = w.load(ir::f32, from, inside ? 1 : kFloatBytes, name + ".scale.value");
  w.store(scale, w.element(scales, ir::f32, l.index, name + ".scale.to"), kFloatBytes);
}

}  // namespace

void emit_look_up_keys(ir::Writer& w, const KernelPlan& plan, Value args, const Sequence& sequence,
                       const KeyValueCache& cache, Value first_key, Value count,
                       const KeyTables& tables) {
  const Problem& problem = plan.problem;
  const bool paged = is_paged(problem);
  if (!paged && !is_scale_of_key(problem.k_scale) && !is_scale_of_key(problem.v_scale)) return;
  w.comment("addresses and scales of the block's keys");
  w.loop("found", i64_constant(0), count, i64_constant(1), [&](const Value& index) {
    LookUp l{w, plan, args, sequence, tables, index, {}, {}, {}};
    l.token = w.add(first_key, index, "found.key");
    Value k_page, v_page;
    if (paged) {
      const Value page_size = i64_constant(problem.kv_layout.page_size);
      const Value key = l.token;
      l.slot = w.div(key, page_size, "page.number");
      l.token = w.rem(key, page_size, "page.token");
      k_page = emit_page(l, cache.k, "k");
      v_page = problem.separate_tables ? emit_page(l, cache.v, "v") : k_page;
    }
    if (checks_pages(plan)) {
      l.readable = emit_page_is_good(l, k_page);
      if (problem.separate_tables) {
        l.readable = w.bit_and(l.readable, emit_page_is_good(l, v_page), "pages.are_good");
      }
      w.store(w.cast("zext", l.readable, ir::i8, "readable.byte"),
              w.element(tables.readable, ir::i8, index, "readable.at"), 1);
    }
    emit_look_up_side(l, cache.k, k_page, tables.k_at, tables.k_scales, "k");
    if (!problem.v_in_k) emit_look_up_side(l, cache.v, v_page, tables.v_at, tables.v_scales, "v");
  });
}

}  // namespace splitkv::llvm_codegen
