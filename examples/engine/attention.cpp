#include "attention.hpp"

#include <algorithm>
#include <cmath>

#include "thread_pool.hpp"

namespace engine {
namespace {

constexpr int64_t kChunks = 0;  // the place of the chunks' kernel

splitkv::Options runtime_options(Device& device) {
  splitkv::Options options;
  if (ThreadPool* threads = device.threads(); threads != nullptr) {
    options.threads = threads->threads();
    options.parallel_for_user = threads;
    options.parallel_for = [](void* user, int64_t n, void (*body)(void*, int64_t), void* context) {
      static_cast<ThreadPool*>(user)->for_each(n, [=](int64_t i) { body(context, i); });
    };
  }
  return options;
}

}  // namespace

KvCache::KvCache(Device& device, const ModelConfig& config, const Limits& limits) {
  layer_bytes_ = size_t(limits.pages) * size_t(limits.page_size) *
                 size_t(config.kv_heads * config.dim) * size_of(device.dtype());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    k_.push_back(device.allocate(layer_bytes_));
    v_.push_back(device.allocate(layer_bytes_));
  }
}

std::string Attention::problem(bool is_decode, const AttentionOptions& options) const {
  const std::string dtype = name_of(dtype_);
  std::string text = "attention q=" + dtype + " kv=" + dtype;
  text += " heads=" + std::to_string(config_.q_heads) + "/" + std::to_string(config_.kv_heads);
  text += " dim=" + std::to_string(config_.dim);
  // A row of a chunk brings as many tokens as its q_offset says, up to query_len.
  if (!is_decode) text += " query_len=" + std::to_string(limits_.chunk) + " ragged=on mask=causal";
  text += " kv_layout=paged:" + std::to_string(limits_.page_size) + ":nhd lse=none";
  if (options.plant == Plant::scale) {
    text += " scale=" + std::to_string(1.02 / std::sqrt(double(config_.dim)));
  }
  if (options.deterministic) text += " deterministic=on";
  return text;
}

Attention::Attention(Device& device, const ModelConfig& config, const KvCache& cache,
                     const Limits& limits, const AttentionOptions& options)
    : config_(config), limits_(limits), dtype_(device.dtype()), runtime_(runtime_options(device)) {
  for (int64_t bucket = 1; bucket < limits.max_batch; bucket *= 2) buckets_.push_back(bucket);
  buckets_.push_back(limits.max_batch);

  // Hints choose the schedule, for each bucket its own; bindings and writers are good for all.
  splitkv::Hints hints;
  hints.kv_len = limits.max_length;
  hints.kv_len_mean = std::max(1, limits.max_length / 2);
  for (const int64_t bucket : buckets_) {
    hints.batch = bucket;
    kernels_.emplace(bucket, runtime_.prepare(device.target(), problem(true, options), hints));
  }
  hints.batch = std::clamp<int64_t>(limits.prefill_tokens / limits.chunk, 1, limits.max_batch);
  kernels_.emplace(kChunks, runtime_.prepare(device.target(), problem(false, options), hints));

  for (const bool is_decode : {false, true}) {
    appenders_.emplace(
        is_decode, runtime_.prepare_append(device.target(), problem(is_decode, options), "rows"));
    const splitkv::Kernel& kernel = kernels_.at(is_decode ? buckets_.front() : kChunks);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      splitkv_tensors tensors = kernel.dense_strides(0);
      tensors.k = cache.k(layer), tensors.v = cache.v(layer);
      layers_[is_decode].push_back(kernel.bind(tensors));
    }
  }
}

int64_t Attention::bucket_of(int64_t rows) const {
  return *std::lower_bound(buckets_.begin(), buckets_.end(), rows);
}

Workspace Attention::make_workspace(Device& device) const {
  Workspace workspace;
  for (const auto& [bucket, kernel] : kernels_) {
    const splitkv_buffer_sizes sizes = kernel.sizes(limits_.max_batch);
    workspace.scratch_bytes = std::max(workspace.scratch_bytes, sizes.scratch_bytes);
    workspace.state_bytes = std::max(workspace.state_bytes, sizes.state_bytes);
  }
  workspace.scratch = device.allocate(workspace.scratch_bytes);
  workspace.state = device.allocate(workspace.state_bytes);
  // One state serves all kernels of a stream: each run leaves it at zero.
  kernels_.at(kChunks).state_init(workspace.state.get(), workspace.state_bytes, device.stream());
  return workspace;
}

splitkv_args Attention::args_of(const AttentionRows& rows, const Workspace& workspace) const {
  auto args = splitkv::sized<splitkv_args>();
  args.batch = rows.batch;
  // q lies before K and V in each token's row of the projection's output and is not copied.
  args.q = rows.qkv, args.out = rows.out;
  args.q_stride_batch = args.q_stride_query = config_.qkv_width();
  args.q_stride_head = config_.dim;
  args.out_stride_batch = args.out_stride_query = config_.q_heads * config_.dim;
  args.out_stride_head = config_.dim;
  if (rows.q_offset != nullptr) {
    args.q_offset = rows.q_offset;
    args.query_rows = rows.tokens;
  }
  args.kv_len = rows.kv_len;
  args.page_table = rows.page_table, args.page_offset = rows.page_offset;
  args.scratch = workspace.scratch.get(), args.scratch_bytes = workspace.scratch_bytes;
  args.state = workspace.state.get(), args.state_bytes = workspace.state_bytes;
  return args;
}

void Attention::append(Device& device, int64_t layer, const AttentionRows& rows) const {
  const bool is_decode = rows.q_offset == nullptr;
  const char* const qkv = static_cast<const char*>(rows.qkv);
  const size_t head_bytes = size_t(config_.dim) * size_of(dtype_);
  auto args = splitkv::sized<splitkv_append_args>();
  args.tokens = rows.tokens;
  args.k_new = qkv + size_t(config_.q_heads) * head_bytes;
  args.v_new = qkv + size_t(config_.q_heads + config_.kv_heads) * head_bytes;
  args.k_new_stride_token = args.v_new_stride_token = config_.qkv_width();
  args.k_new_stride_head = args.v_new_stride_head = config_.dim;
  args.batch = rows.batch;
  args.q_offset = rows.q_offset;
  args.kv_len = rows.kv_len;
  args.page_table = rows.page_table, args.page_offset = rows.page_offset;
  appenders_.at(is_decode).append(layers_.at(is_decode)[size_t(layer)], args, device.stream());
}

void Attention::attend(Device& device, int64_t layer, const AttentionRows& rows,
                       const Workspace& workspace) const {
  const bool is_decode = rows.q_offset == nullptr;
  const splitkv::Kernel& kernel = kernels_.at(is_decode ? rows.batch : kChunks);
  kernel.run(layers_.at(is_decode)[size_t(layer)], args_of(rows, workspace), device.stream());
}

}  // namespace engine
