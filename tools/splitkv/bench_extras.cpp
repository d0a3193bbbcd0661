#include "tools/splitkv/bench_extras.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {
namespace {

// Allocates and fills one tensor after the other; the first failure is kept.
class Filler {
 public:
  Filler(DeviceMemory& memory, std::vector<Buffer>& buffers) : memory_(memory), buffers_(buffers) {}

  template <class T>
  T* put(const std::vector<T>& values) {
    void* data = reserve(values.size() * sizeof(T));
    if (outcome_ && data != nullptr) {
      outcome_ = memory_.copy_in(buffers_.back(), values.data(), values.size() * sizeof(T));
    }
    return static_cast<T*>(data);
  }
  float* floats(int64_t count, float value) {
    return put(std::vector<float>(size_t(count), value));
  }
  std::byte* zeros(int64_t bytes) { return put(std::vector<std::byte>(size_t(bytes))); }
  void* reserve(size_t bytes) {
    if (!outcome_) return nullptr;
    Result<Buffer> buffer = memory_.allocate(bytes);
    if (!buffer) outcome_ = buffer.error();
    if (!buffer) return nullptr;
    buffers_.push_back(std::move(*buffer));
    return buffers_.back().data();
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  DeviceMemory& memory_;
  std::vector<Buffer>& buffers_;
  Outcome outcome_ = Unit{};
};

void put_masks(const Problem& problem, int64_t capacity, Filler& filler, splitkv_args& args) {
  if (problem.bias) {  // one for all rows, heads and queries
    args.bias = filler.zeros(capacity * size_bytes(*problem.bias));
    args.bias_stride_key = 1;
  }
  if (problem.mask == Mask::tree) {
    args.tree_stride_query = tree_row_bytes(problem);
    args.tree = static_cast<const uint8_t*>(
        filler.reserve(size_t(problem.query_len * args.tree_stride_query)));  // all bits are one
  }
}

}  // namespace

Result<BenchExtras> BenchExtras::place(DeviceMemory& memory, const Problem& problem,
                                       const std::vector<int32_t>& kv_len) {
  BenchExtras extras;
  Filler filler(memory, extras.buffers_);
  splitkv_args& args = extras.args_;
  const int64_t batch = int64_t(kv_len.size()), heads = problem.q_heads;
  const int64_t rows = batch * problem.query_len * heads;
  if (problem.alibi) extras.tensors_.slopes = filler.floats(heads, 0);
  if (problem.sink) extras.tensors_.sink = filler.floats(heads, 0);
  for (size_t i = 0; i < problem.params.size(); ++i) {
    extras.tensors_.params.push_back(filler.floats(std::max(batch, heads), 1));
  }
  if (written_lse(problem) != LseOutput::none) {
    args.lse = static_cast<float*>(filler.reserve(size_t(rows) * sizeof(float)));
  }
  if (writes_partial_l(problem)) {
    args.partial_l = static_cast<float*>(filler.reserve(size_t(rows) * sizeof(float)));
  }
  if (problem.dim_rope > 0) {
    args.q_rope = filler.zeros(rows * problem.dim_rope * size_bytes(problem.q_dtype));
  }
  if (problem.ragged) {
    std::vector<int32_t> offsets(kv_len.size() + 1);
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = int32_t(i) * problem.query_len;
    args.q_offset = filler.put(offsets);
    args.query_rows = batch * problem.query_len;
  }
  if (problem.strided_positions) {
    args.total_len = filler.put(kv_len);
    args.pos_step = 1;
  }
  put_masks(problem, *std::max_element(kv_len.begin(), kv_len.end()), filler, args);
  if (!filler.outcome()) return filler.outcome().error();
  return extras;
}

void BenchExtras::add_to(splitkv_tensors& tensors) const {
  tensors.alibi_slopes = tensors_.slopes;
  tensors.sink = tensors_.sink;
  std::copy(tensors_.params.begin(), tensors_.params.end(), tensors.params);
}

void BenchExtras::add_to(splitkv_args& args) const {
  args.lse = args_.lse;
  args.partial_l = args_.partial_l;
  args.q_rope = args_.q_rope;
  args.q_offset = args_.q_offset;
  args.query_rows = args_.query_rows;
  args.total_len = args_.total_len;
  args.pos_step = args_.pos_step;
  args.bias = args_.bias;
  args.bias_stride_key = args_.bias_stride_key;
  args.tree = args_.tree;
  args.tree_stride_query = args_.tree_stride_query;
}

}  // namespace splitkv::tool
