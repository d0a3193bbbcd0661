#include "tools/splitkv/bench_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "compiler/arithmetic.hpp"
#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {
namespace {

constexpr int64_t kUnit = 256;

int64_t filled_up(int64_t bytes) { return round_up(bytes, kUnit); }

TokenStrides dense_strides(const Problem& problem, int64_t tokens, int64_t row) {
  const bool tokens_first = is_paged(problem) ? problem.kv_layout.page_order == PageOrder::nhd
                                              : problem.kv_layout.kind == KvLayoutKind::bthd;
  const int64_t heads = problem.kv_heads;
  if (tokens_first) return {tokens * heads * row, row, heads * row};
  return {tokens * heads * row, tokens * row, row};
}

int64_t slots_of(const Problem& problem, int32_t kv_len) {
  return ceil_div(kv_len, problem.kv_layout.page_size);
}

int32_t longest(const std::vector<int32_t>& kv_len) {
  return std::max(1, *std::max_element(kv_len.begin(), kv_len.end()));
}

// Whole numbers of 8 bits are spread over their range and scaled back.
float deviation_of(DType type) { return type == DType::int8 ? 32.0f : 1.0f; }

}  // namespace

KvShape kv_shape(const Problem& problem, const std::vector<int32_t>& kv_len) {
  KvShape shape;
  shape.capacity = longest(kv_len);
  shape.blocks = int64_t(kv_len.size());
  int64_t tokens = shape.capacity;
  if (is_paged(problem)) {
    tokens = problem.kv_layout.page_size;
    shape.table_slots = slots_of(problem, longest(kv_len));
    shape.blocks = 0;
    for (const int32_t length : kv_len) shape.blocks += slots_of(problem, length);
    shape.blocks = std::max<int64_t>(1, shape.blocks);
  }
  shape.block_tokens = tokens;
  shape.k = dense_strides(problem, tokens, problem.dim_qk);
  shape.k_bytes = shape.blocks * shape.k.block * size_bytes(problem.k_dtype);
  if (!problem.v_in_k) {
    shape.v = dense_strides(problem, tokens, problem.dim_v);
    shape.v_bytes = shape.blocks * shape.v.block * size_bytes(problem.v_dtype);
  }
  shape.copy_bytes = filled_up(shape.k_bytes) + filled_up(shape.v_bytes);
  return shape;
}

int64_t set_bytes(const Problem& problem, const std::vector<int32_t>& kv_len) {
  const KvShape shape = kv_shape(problem, kv_len);
  const int64_t rows = int64_t(kv_len.size()) * problem.query_len * problem.q_heads;
  const int64_t row = problem.dim_qk * size_bytes(problem.q_dtype) +
                      problem.dim_v * (size_bytes(problem.out_dtype) + int64_t(sizeof(float)));
  const int64_t table = int64_t(kv_len.size()) * shape.table_slots * int64_t(sizeof(int32_t));
  return shape.copy_bytes + rows * row + table;
}

BenchSets::BenchSets(Gpu& gpu, const FloorReader& reader, const SetsPlan& plan)
    : gpu_(gpu), reader_(reader), plan_(plan), shape_(kv_shape(plan.problem, plan.kv_len)) {
  const Problem& p = plan_.problem;
  const int64_t heads = rows() * p.q_heads;
  q_bytes_ = filled_up(heads * p.dim_qk * size_bytes(p.q_dtype));
  out_bytes_ = filled_up(heads * p.dim_v * size_bytes(p.out_dtype));
  expected_bytes_ = filled_up(heads * p.dim_v * int64_t(sizeof(float)));
}

Result<std::unique_ptr<BenchSets>> BenchSets::place(Gpu& gpu, const FloorReader& reader,
                                                    const SetsPlan& plan) {
  std::unique_ptr<BenchSets> sets(new BenchSets(gpu, reader, plan));
  if (const Outcome o = sets->allocate(); !o) return o.error();
  if (const Outcome o = sets->fill_small(); !o) return o.error();
  if (const Outcome o = sets->fill_kv(); !o) return o.error();
  if (!plan.expect) return sets;
  if (plan.attend != nullptr) {
    sets->module_ = *plan.attend;
  } else {
    Result<GpuModule> module = gpu.load(attend_source(plan.problem));
    if (!module) return module.error();
    sets->module_ = std::move(*module);
  }
  if (const Outcome o = sets->expect(); !o) return o.error();
  return sets;
}

Outcome BenchSets::allocate() {
  const Problem& p = plan_.problem;
  const int64_t n = plan_.sets, batch = int64_t(plan_.kv_len.size());
  const int64_t table = batch * shape_.table_slots * int64_t(sizeof(int32_t));
  const auto scales = [&](KvScale scale) {
    const int64_t each = scale == KvScale::token ? shape_.blocks * shape_.block_tokens : 1;
    return scale == KvScale::none ? 0 : each * p.kv_heads * int64_t(sizeof(float));
  };
  const std::pair<Buffer*, int64_t> wanted[] = {
      {&kv_, n * shape_.copy_bytes},
      {&q_, n * q_bytes_},
      {&out_, n * out_bytes_},
      {&expected_, plan_.expect ? n * expected_bytes_ : 0},
      {&kv_len_, batch * int64_t(sizeof(int32_t))},
      {&tables_, n * table},
      {&k_scale_, scales(p.k_scale)},
      {&v_scale_, scales(p.v_scale)},
      {&compared_, int64_t(sizeof(Compared))}};
  for (const auto& [buffer, bytes] : wanted) {
    if (bytes == 0) continue;
    Result<Buffer> allocated = gpu_.memory().allocate(size_t(bytes));
    if (!allocated) return allocated.error();
    *buffer = std::move(*allocated);
  }
  Result<BenchExtras> extras = BenchExtras::place(gpu_.memory(), p, plan_.kv_len);
  if (!extras) return extras.error();
  extras_ = std::move(*extras);
  return gpu_.synchronize();
}

// Every copy's lists, one after the other: [sets, batch, table_slots].
std::vector<int32_t> BenchSets::page_tables() const {
  std::vector<int32_t> tables;
  uint64_t state = plan_.seed * 2 + 1;
  for (int64_t set = 0; set < plan_.sets; ++set) {
    std::vector<int32_t> ids(static_cast<size_t>(shape_.blocks));
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = ids.size(); i > 1; --i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(ids[i - 1], ids[(state >> 33) % i]);
    }
    auto next = ids.begin();
    for (const int32_t length : plan_.kv_len) {
      const int64_t used = slots_of(plan_.problem, length);
      tables.insert(tables.end(), next, next + used);
      tables.insert(tables.end(), size_t(shape_.table_slots - used), kPoisonPage);
      next += used;
    }
  }
  return tables;
}

Outcome BenchSets::fill_small() const {
  const Problem& p = plan_.problem;
  DeviceMemory& memory = gpu_.memory();
  Outcome done =
      memory.copy_in(kv_len_, plan_.kv_len.data(), plan_.kv_len.size() * sizeof(int32_t));
  if (done && is_paged(p)) {
    const std::vector<int32_t> tables = page_tables();
    done = memory.copy_in(tables_, tables.data(), tables.size() * sizeof(int32_t));
  }
  const auto scales = [&](const Buffer& buffer, DType type) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = (1.0f + 0.125f * float(i % 5)) / deviation_of(type);
    }
    return memory.copy_in(buffer, values.data(), buffer.bytes());
  };
  if (done && k_scale_.bytes() > 0) done = scales(k_scale_, p.k_dtype);
  if (done && v_scale_.bytes() > 0) done = scales(v_scale_, p.v_dtype);
  if (!done) return done;
  const int64_t elements = int64_t(q_.bytes()) / size_bytes(p.q_dtype);
  return reader_.fill({q_.data(), elements, int(p.q_dtype), plan_.seed * 4 + 1, 1.0f});
}

Outcome BenchSets::fill_kv() const {
  const Problem& p = plan_.problem;
  for (int64_t set = 0; set < plan_.sets; ++set) {
    const uint64_t seed = (plan_.seed * 4096 + uint64_t(set)) * 4;
    const Outcome k = reader_.fill({copy(set), shape_.k_bytes / size_bytes(p.k_dtype),
                                    int(p.k_dtype), seed + 2, deviation_of(p.k_dtype)});
    if (!k || p.v_in_k) {
      if (!k) return k;
      continue;
    }
    const Outcome v =
        reader_.fill({copy(set) + filled_up(shape_.k_bytes), shape_.v_bytes / size_bytes(p.v_dtype),
                      int(p.v_dtype), seed + 3, deviation_of(p.v_dtype)});
    if (!v) return v;
  }
  return gpu_.synchronize();
}

Outcome BenchSets::expect() {
  const Problem& p = plan_.problem;
  const Result<cuda::CUfunction> attend = module_.function("attend");
  if (!attend) return attend.error();
  const int64_t items = rows() * p.q_heads;
  const int64_t blocks = std::min<int64_t>(items, gpu_.facts().target.sm_count * 2);
  Result<Buffer> scores = gpu_.memory().allocate(size_t(blocks * shape_.capacity) * sizeof(double));
  if (!scores) return scores.error();
  if (const Outcome settled = gpu_.synchronize(); !settled) return settled;
  for (int64_t set = 0; set < plan_.sets; ++set) {
    const splitkv_tensors t = tensors(set);
    const splitkv_args step = args(set);
    const TokenStrides& v = p.v_in_k ? shape_.k : shape_.v;
    AttendArgs a{
        step.q,
        t.k,
        p.v_in_k ? t.k : t.v,
        static_cast<const int32_t*>(step.kv_len),
        step.page_table,
        step.page_table_stride,
        shape_.k.block,
        shape_.k.head,
        shape_.k.token,
        v.block,
        v.head,
        v.token,
        t.k_scale,
        p.v_in_k ? t.k_scale : t.v_scale,
        static_cast<double*>(scores->data()),
        shape_.capacity,
        reinterpret_cast<float*>(static_cast<char*>(expected_.data()) + set * expected_bytes_),
        step.batch};
    if (const Outcome launched = gpu_.launch({*attend, blocks, kAttendThreads, 0}, {&a});
        !launched) {
      return launched;
    }
  }
  return gpu_.synchronize();
}

splitkv_tensors BenchSets::tensors(int64_t set) const {
  auto t = sized<splitkv_tensors>();
  t.k = copy(set);
  t.k_stride_block = shape_.k.block;
  t.k_stride_head = shape_.k.head;
  t.k_stride_token = shape_.k.token;
  t.k_scale = static_cast<const float*>(k_scale_.data());
  const auto by_token = [&](KvScale scale, int64_t& block, int64_t& head, int64_t& token) {
    if (scale != KvScale::token) return;
    block = shape_.block_tokens * plan_.problem.kv_heads, head = 1, token = plan_.problem.kv_heads;
  };
  by_token(plan_.problem.k_scale, t.k_scale_stride_block, t.k_scale_stride_head,
           t.k_scale_stride_token);
  extras_.add_to(t);
  if (plan_.problem.v_in_k) return t;
  by_token(plan_.problem.v_scale, t.v_scale_stride_block, t.v_scale_stride_head,
           t.v_scale_stride_token);
  t.v = copy(set) + filled_up(shape_.k_bytes);
  t.v_stride_block = shape_.v.block;
  t.v_stride_head = shape_.v.head;
  t.v_stride_token = shape_.v.token;
  t.v_scale = static_cast<const float*>(v_scale_.data());
  return t;
}

splitkv_args BenchSets::args(int64_t set) const {
  auto a = sized<splitkv_args>();
  a.batch = int64_t(plan_.kv_len.size());
  a.q = static_cast<const char*>(q_.data()) + set * q_bytes_;
  a.out = static_cast<char*>(out_.data()) + set * out_bytes_;
  a.kv_len = kv_len_.data();
  a.kv_capacity = shape_.capacity;
  extras_.add_to(a);
  if (!is_paged(plan_.problem)) return a;
  const int64_t entries = a.batch * shape_.table_slots;
  a.page_table = static_cast<const int32_t*>(tables_.data()) + set * entries;
  a.page_table_stride = shape_.table_slots;
  a.page_count = shape_.blocks;
  if (!plan_.problem.separate_tables) return a;
  a.v_page_table = a.page_table;
  a.v_page_table_stride = a.page_table_stride;
  return a;
}

FloorRange BenchSets::floor_range(int64_t kv_bytes) const {
  return {kv_.data(), shape_.copy_bytes, plan_.sets, kv_bytes / 16 * 16};
}

Outcome BenchSets::poison_outs() const {
  if (const Outcome poisoned = gpu_.memory().poison(out_); !poisoned) return poisoned;
  return gpu_.synchronize();
}

Result<double> BenchSets::worst_error() const {
  Compared found;
  DeviceMemory& memory = gpu_.memory();
  if (const Outcome o = memory.copy_in(compared_, &found, sizeof(found)); !o) return o.error();
  const Result<cuda::CUfunction> compare = module_.function("compare");
  if (!compare) return compare.error();
  int64_t heads = rows() * plan_.problem.q_heads;
  const int64_t blocks = ceil_div(heads, kCompareThreads / 32);
  for (int64_t set = 0; set < plan_.sets; ++set) {
    const void* out = static_cast<const char*>(out_.data()) + set * out_bytes_;
    const void* expected = static_cast<const char*>(expected_.data()) + set * expected_bytes_;
    void* compared = compared_.data();
    const Outcome launched =
        gpu_.launch({*compare, blocks, kCompareThreads, 0}, {&out, &expected, &heads, &compared});
    if (!launched) return launched.error();
  }
  if (const Outcome settled = gpu_.synchronize(); !settled) return settled.error();
  if (const Outcome o = memory.copy_out(&found, compared_, sizeof(found)); !o) return o.error();
  if (found.rows != heads * plan_.sets) {
    return Error{Status::device_error, fmt::format("{} rows of out were compared instead of {}",
                                                   found.rows, heads * plan_.sets)};
  }
  return double(std::bit_cast<float>(found.worst));
}

}  // namespace splitkv::tool
