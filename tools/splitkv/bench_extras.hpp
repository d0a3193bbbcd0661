// The tensors of a step that the benchmark's own attention does not know: values that cost what
// any would, for times alone.
#pragma once

#include <vector>

#include "compiler/problem.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/device_memory.hpp"

namespace splitkv::tool {

// lse and l of partials; zeros for slopes, sinks, biases and q's rotary part; ones for parameters;
// trees in which every query sees every key; offsets of rows that have all their queries. Of
// positions=strided: one shard of one. Nothing where the problem has none of those.
class BenchExtras {
 public:
  static Result<BenchExtras> place(DeviceMemory& memory, const Problem& problem,
                                   const std::vector<int32_t>& kv_len);

  void add_to(splitkv_tensors& tensors) const;
  void add_to(splitkv_args& args) const;

 private:
  struct Tensors {
    const float* slopes = nullptr;
    const float* sink = nullptr;
    std::vector<const float*> params;
  };

  std::vector<Buffer> buffers_;
  Tensors tensors_;
  splitkv_args args_ = sized<splitkv_args>();
};

}  // namespace splitkv::tool
