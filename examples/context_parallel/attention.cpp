#include "attention.hpp"

#include <string>

namespace context_parallel {

std::string problem_of(const Options& options, const Merge* form) {
  const std::string dtype = name_of(options.dtype);
  std::string text = "attention q=" + dtype + " kv=" + dtype;
  text += form != nullptr ? " out=partial" : " out=fp32";
  text += " heads=" + std::to_string(options.q_heads) + "/" + std::to_string(options.kv_heads);
  text += " dim=" + std::to_string(options.dim);
  text += " query_len=" + std::to_string(options.query_len) + " mask=causal lse=natural";
  // Keys of a shard do not stand where their local index says; a query's position, and with it what
  // it may see, comes from the tokens that all processes hold.
  if (form != nullptr) text += std::string(" positions=strided merge=") + name_of(*form);
  return text;
}

namespace {

// In memory of the whole sequence: takes keys that belong to another process (NaN) for its own.
Shard with_foreign_keys(Shard shard, int64_t capacity) {
  if (shard.slot_step > 1) shard.first_slot = (shard.first_slot + 1) % shard.slot_step;
  for (size_t row = 0; row < shard.kv_len.size(); ++row) {
    if (shard.slot_step == 1 && shard.kv_len[row] < capacity) ++shard.kv_len[row];
  }
  return shard;
}

}  // namespace

std::shared_ptr<void> Attention::put(const void* data, size_t bytes) {
  std::shared_ptr<void> there = place_.allocate(bytes);
  place_.upload(there.get(), data, bytes);
  return there;
}

Attention::Attention(const Options& options, const splitkv::Kernel& kernel, const Shard& held,
                     const Merge* form, Place& place)
    : kernel_(kernel), place_(place), args_(splitkv::sized<splitkv_args>()) {
  splitkv_tensors tensors = kernel.dense_strides(held.capacity);
  const Cache cache = make_cache(options, held, tensors);
  k_ = put(cache.k.data(), cache.k.size());
  v_ = put(cache.v.data(), cache.v.size());
  const bool foreign = form != nullptr && options.fault == Fault::foreign_keys;
  const Shard shard = foreign ? with_foreign_keys(held, options.tokens) : held;
  const size_t element = options.dtype == Dtype::fp32 ? 4 : 2;
  const size_t k_first = size_t(shard.first_slot * tensors.k_stride_token) * element;
  const size_t v_first = size_t(shard.first_slot * tensors.v_stride_token) * element;
  tensors.k = static_cast<const char*>(k_.get()) + k_first;
  tensors.v = static_cast<const char*>(v_.get()) + v_first;
  tensors.k_stride_token *= shard.slot_step;
  tensors.v_stride_token *= shard.slot_step;
  binding_ = kernel.bind(tensors);

  const Elements q = make_queries(options);
  q_ = put(q.data(), q.size());
  const size_t counts = size_t(options.batch()) * sizeof(int32_t);
  kv_begin_ = put(shard.kv_begin.data(), counts);
  kv_len_ = put(shard.kv_len.data(), counts);
  args_.batch = options.batch();
  args_.q = q_.get();
  args_.kv_len = kv_len_.get();
  args_.kv_begin = static_cast<const int32_t*>(kv_begin_.get());
  if (form != nullptr) {
    const bool local = options.fault == Fault::local_causality;
    total_len_ = put(local ? shard.kv_len.data() : options.lengths.data(), counts);
    args_.total_len = static_cast<const int32_t*>(total_len_.get());
    args_.pos0 = local ? 0 : shard.pos0;
    args_.pos_step = local ? 1 : shard.pos_step;
  }

  const splitkv_buffer_sizes sizes = kernel.sizes(options.batch());
  scratch_ = place.allocate(sizes.scratch_bytes);
  state_ = place.allocate(sizes.state_bytes);
  kernel.state_init(state_.get(), sizes.state_bytes, place.stream());
  args_.scratch = scratch_.get();
  args_.scratch_bytes = sizes.scratch_bytes;
  args_.state = state_.get();
  args_.state_bytes = sizes.state_bytes;
}

void Attention::run(const Partials& partials, float* out) const {
  splitkv_args args = args_;
  args.out = out;
  args.lse = partials.statistic(out);
  args.partial_l = partials.sum(out);
  kernel_.run(binding_, args, place_.stream());
}

}  // namespace context_parallel
