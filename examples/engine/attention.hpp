// Everything that the engine asks of SplitKV: one cache of pages for all layers, a kernel for
// answers (one query token a row) of each batch bucket, a kernel for chunks of prompts, and the
// writers of the cache.
#pragma once

#include <splitkv/splitkv.hpp>

#include <map>
#include <string>
#include <vector>

#include "device.hpp"
#include "scheduler.hpp"
#include "weights.hpp"

namespace engine {

// Faults that the checks must notice.
enum class Plant { none, scale, length, page };

struct AttentionOptions {
  bool deterministic = false;  // a row's bits do not depend on its neighbours
  Plant plant = Plant::none;
};

// K and V of every layer: [pages, page_size, kv_heads, dim] each. Shared by all streams.
class KvCache {
 public:
  KvCache(Device& device, const ModelConfig& config, const Limits& limits);

  void* k(int64_t layer) const { return k_[size_t(layer)].get(); }
  void* v(int64_t layer) const { return v_[size_t(layer)].get(); }
  size_t layer_bytes() const { return layer_bytes_; }  // of K; V has as many

 private:
  size_t layer_bytes_ = 0;
  std::vector<Memory> k_, v_;
};

// The rows of one step, in device memory.
struct AttentionRows {
  int64_t batch = 0, tokens = 0;  // tokens = batch for answers
  const int32_t* kv_len = nullptr;
  const int32_t* q_offset = nullptr;  // chunks alone
  const int32_t* page_table = nullptr;
  const int64_t* page_offset = nullptr;
  void* qkv = nullptr;  // [tokens, q_heads + 2 * kv_heads, dim]
  void* out = nullptr;  // [tokens, q_heads, dim]
};

// What one stream needs for itself: runs at once must not share it.
struct Workspace {
  Memory scratch, state;
  size_t scratch_bytes = 0, state_bytes = 0;
};

class Attention {
 public:
  // Compiles for every bucket; nothing is compiled later.
  Attention(Device& device, const ModelConfig& config, const KvCache& cache, const Limits& limits,
            const AttentionOptions& options);

  // The smallest bucket that holds `rows` rows: 1, 2, 4 ... max_batch.
  int64_t bucket_of(int64_t rows) const;
  const std::vector<int64_t>& buckets() const { return buckets_; }

  Workspace make_workspace(Device& device) const;

  // Both on the device's stream; both may be captured. First the rows' new keys and values are
  // written, then the rows attend to all that they have. A row with kv_len 0 writes nothing, and
  // its out becomes 0.
  void append(Device& device, int64_t layer, const AttentionRows& rows) const;
  void attend(Device& device, int64_t layer, const AttentionRows& rows,
              const Workspace& workspace) const;

  const splitkv::Kernel& kernel(int64_t bucket) const { return kernels_.at(bucket); }

 private:
  std::string problem(bool is_decode, const AttentionOptions& options) const;
  splitkv_args args_of(const AttentionRows& rows, const Workspace& workspace) const;

  ModelConfig config_;
  Limits limits_;
  Dtype dtype_;
  std::vector<int64_t> buckets_;
  splitkv::Runtime runtime_;
  std::map<int64_t, splitkv::Kernel> kernels_;            // of answers, by bucket; of chunks, at 0
  std::map<bool, splitkv::Appender> appenders_;           // by is_decode
  std::map<bool, std::vector<splitkv::Binding>> layers_;  // by is_decode
};

}  // namespace engine
