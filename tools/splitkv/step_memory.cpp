#include "tools/splitkv/step_memory.hpp"

#include <cstring>
#include <utility>

#include "compiler/dtype.hpp"

namespace splitkv::tool {
namespace {

// Rows of q, or a part of each, where the step's form wants them.
std::vector<std::byte> spread_rows(const std::vector<std::byte>& dense, int64_t dense_row,
                                   int64_t first, const RowPlaces& places, int64_t bytes) {
  std::vector<std::byte> spread(size_t(places.elements() * bytes), std::byte{0xff});
  for (int64_t token = 0; token < places.token_rows; ++token) {
    for (int64_t head = 0; head < places.heads; ++head) {
      const int64_t from = (token * places.heads + head) * dense_row + first;
      std::memcpy(&spread[size_t(places.at(token, head) * bytes)], &dense[size_t(from * bytes)],
                  size_t(places.row * bytes));
    }
  }
  return spread;
}

}  // namespace

RowPlaces row_places(const Problem& problem, const Inputs& inputs, int64_t row) {
  RowPlaces places{inputs.query_rows, problem.q_heads, row, 0, 0};
  places.stride_head = row + (inputs.form.padded_rows ? 3 : 0);
  places.stride_token = places.stride_head * problem.q_heads + (inputs.form.padded_rows ? 5 : 0);
  return places;
}

// Puts one thing after another on the device; the first failure is kept and ends it.
class Placer {
 public:
  Placer(DeviceMemory& memory, const Problem& problem, const Inputs& inputs)
      : memory_(memory), problem_(problem), inputs_(inputs) {}

  void tensors(const KvImage& image);
  void queries();
  void outputs();
  void rows();
  void masks();
  void pages(const KvImage& image);
  void work(const splitkv_buffer_sizes& sizes);
  Result<StepMemory> finish() {
    if (!outcome_) return outcome_.error();
    return std::move(step_);
  }

 private:
  // Null for nothing.
  template <class T>
  const T* put(const std::vector<T>& values) {
    if (values.empty() || !outcome_) return nullptr;
    const size_t bytes = values.size() * sizeof(T);
    Buffer buffer = reserve(bytes);
    if (outcome_) outcome_ = memory_.copy_in(buffer, values.data(), bytes);
    step_.read_.push_back(std::move(buffer));
    return static_cast<const T*>(step_.read_.back().data());
  }
  Buffer reserve(size_t bytes) {
    if (!outcome_) return {};
    Result<Buffer> allocated = memory_.allocate(bytes);
    if (allocated) return std::move(*allocated);
    outcome_ = allocated.error();
    return {};
  }
  struct StrideFields {
    int64_t &batch, &query, &head;
  };
  void set(const RowPlaces& places, const StrideFields& fields) const {
    if (!inputs_.form.padded_rows) return;  // 0: dense
    fields.head = places.stride_head;
    fields.query = places.stride_token;
    if (inputs_.q_offset.empty()) fields.batch = problem_.query_len * places.stride_token;
  }

  DeviceMemory& memory_;
  const Problem& problem_;
  const Inputs& inputs_;
  StepMemory step_;
  Outcome outcome_ = Unit{};
};

void Placer::tensors(const KvImage& image) {
  splitkv_tensors& t = step_.tensors_;
  const std::byte* k = put(image.k);
  t.k = k;
  t.k_stride_block = image.k_strides.block;
  t.k_stride_head = image.k_strides.head;
  t.k_stride_token = image.k_strides.token;
  if (!problem_.v_in_k) {
    t.v = image.v.empty() ? k + image.v_at : put(image.v);
    t.v_stride_block = image.v_strides.block;
    t.v_stride_head = image.v_strides.head;
    t.v_stride_token = image.v_strides.token;
  }
  t.k_scale = put(image.k_scale);
  t.k_scale_stride_block = image.k_scale_strides.block;
  t.k_scale_stride_head = image.k_scale_strides.head;
  t.k_scale_stride_token = image.k_scale_strides.token;
  t.v_scale = put(image.v_scale);
  t.v_scale_stride_block = image.v_scale_strides.block;
  t.v_scale_stride_head = image.v_scale_strides.head;
  t.v_scale_stride_token = image.v_scale_strides.token;
  t.alibi_slopes = put(inputs_.alibi_slopes);
  t.sink = put(inputs_.sink);
  for (size_t i = 0; i < inputs_.params.size(); ++i) t.params[i] = put(inputs_.params[i]);
}

void Placer::queries() {
  splitkv_args& a = step_.args_;
  const int64_t bytes = size_bytes(problem_.q_dtype);
  const int64_t latent = problem_.dim_qk - problem_.dim_rope;
  const RowPlaces q = row_places(problem_, inputs_, latent);
  a.q = put(spread_rows(inputs_.q, problem_.dim_qk, 0, q, bytes));
  set(q, {a.q_stride_batch, a.q_stride_query, a.q_stride_head});
  if (problem_.dim_rope == 0) return;
  const RowPlaces rope = row_places(problem_, inputs_, problem_.dim_rope);
  a.q_rope = put(spread_rows(inputs_.q, problem_.dim_qk, latent, rope, bytes));
  set(rope, {a.q_rope_stride_batch, a.q_rope_stride_query, a.q_rope_stride_head});
}

void Placer::outputs() {
  splitkv_args& a = step_.args_;
  const RowPlaces out = row_places(problem_, inputs_, problem_.dim_v);
  step_.out_ = reserve(size_t(out.elements() * size_bytes(problem_.out_dtype)));
  a.out = step_.out_.data();
  set(out, {a.out_stride_batch, a.out_stride_query, a.out_stride_head});
  const RowPlaces lse = row_places(problem_, inputs_, 1);
  const size_t lse_bytes = size_t(lse.elements()) * sizeof(float);
  if (written_lse(problem_) != LseOutput::none) {
    step_.lse_ = reserve(lse_bytes);
    a.lse = static_cast<float*>(step_.lse_.data());
    set(lse, {a.lse_stride_batch, a.lse_stride_query, a.lse_stride_head});
  }
  if (writes_partial_l(problem_)) {
    step_.partial_l_ = reserve(lse_bytes);
    a.partial_l = static_cast<float*>(step_.partial_l_.data());
  }
}

void Placer::rows() {
  splitkv_args& a = step_.args_;
  a.batch = inputs_.batch;
  switch (inputs_.form.lengths) {
    case LengthForm::int32:
      a.kv_len = put(inputs_.kv_len);
      break;
    case LengthForm::int64:
      a.kv_len = put(std::vector<int64_t>(inputs_.kv_len.begin(), inputs_.kv_len.end()));
      a.kv_len_is_int64 = 1;
      break;
    case LengthForm::host:
      a.kv_len_host = inputs_.kv_len.front();
      break;
  }
  a.kv_begin = put(inputs_.form.kv_begin);
  a.q_offset = put(inputs_.q_offset);
  if (!inputs_.q_offset.empty()) a.query_rows = inputs_.query_rows;
  if (!problem_.strided_positions) return;
  a.total_len = put(inputs_.total_len);
  a.pos0 = inputs_.form.pos0;
  a.pos_step = inputs_.form.pos_step;
}

void Placer::masks() {
  splitkv_args& a = step_.args_;
  if (problem_.bias) {
    a.bias = put(inputs_.bias);
    a.bias_stride_key = 1;
    if (inputs_.bias_queries > 1) a.bias_stride_query = inputs_.capacity;
    if (inputs_.bias_heads > 1) a.bias_stride_head = inputs_.bias_queries * inputs_.capacity;
    a.bias_stride_batch = inputs_.bias_heads * inputs_.bias_queries * inputs_.capacity;
  }
  if (problem_.mask != Mask::tree) return;
  a.tree = reinterpret_cast<const uint8_t*>(put(inputs_.tree));
  a.tree_stride_query = tree_row_bytes(problem_);
  a.tree_stride_batch = problem_.query_len * a.tree_stride_query;
}

void Placer::pages(const KvImage& image) {
  splitkv_args& a = step_.args_;
  a.page_table = put(image.page_table);
  a.page_offset = put(image.page_offset);
  a.page_table_stride = image.page_table_stride;
  a.v_page_table = put(image.v_pages.table);
  a.v_page_offset = put(image.v_pages.offset);
  a.v_page_table_stride = image.v_pages.stride;
  a.page_count = image.page_count;
  a.kv_capacity = inputs_.capacity;
}

void Placer::work(const splitkv_buffer_sizes& sizes) {
  splitkv_args& a = step_.args_;
  step_.scratch_ = reserve(sizes.scratch_bytes);
  step_.state_ = reserve(sizes.state_bytes);
  a.scratch_bytes = sizes.scratch_bytes;
  a.scratch = sizes.scratch_bytes > 0 ? step_.scratch_.data() : nullptr;
  a.state_bytes = sizes.state_bytes;
  a.state = sizes.state_bytes > 0 ? step_.state_.data() : nullptr;
}

Result<StepMemory> StepMemory::place(DeviceMemory& memory, const Problem& problem,
                                     const Inputs& inputs, const KvImage& image,
                                     const splitkv_buffer_sizes& sizes) {
  Placer placer(memory, problem, inputs);
  placer.tensors(image);
  placer.queries();
  placer.outputs();
  placer.rows();
  placer.masks();
  placer.pages(image);
  placer.work(sizes);
  return placer.finish();
}

}  // namespace splitkv::tool
