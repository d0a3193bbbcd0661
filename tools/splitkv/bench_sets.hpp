// The copies of one problem's tensors that launches go through in turn, made on the device, and
// what attention over each gives.
#pragma once

#include <memory>
#include <vector>

#include "compiler/problem.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/bench_arithmetic.hpp"
#include "tools/splitkv/bench_extras.hpp"
#include "tools/splitkv/bench_floor.hpp"
#include "tools/splitkv/bench_gpu.hpp"
#include "tools/splitkv/kv_image.hpp"

namespace splitkv::tool {

// How K and V of one copy lie: dense, V behind K.
struct KvShape {
  int64_t blocks = 0;                // batch rows, or pages
  int64_t capacity = 0;              // tokens of a row of a contiguous layout: the longest
  int64_t table_slots = 0;           // of a row's page list; 0: not paged
  int64_t block_tokens = 0;          // of a block: capacity, or those of a page
  TokenStrides k, v;                 // elements
  int64_t k_bytes = 0, v_bytes = 0;  // v_bytes = 0: V lies in K
  int64_t copy_bytes = 0;            // of both, each filled up to 256 bytes

  bool operator==(const KvShape&) const = default;
};

KvShape kv_shape(const Problem& problem, const std::vector<int32_t>& kv_len);

// Bytes of a copy with its q, out, page table and expected out.
int64_t set_bytes(const Problem& problem, const std::vector<int32_t>& kv_len);

struct SetsPlan {
  Problem problem;
  std::vector<int32_t> kv_len;
  int64_t sets = 1;
  uint64_t seed = 0;   // of values and of the page shuffle
  bool expect = true;  // compute what out must be; the problem has passed check_attend then
  const GpuModule* attend = nullptr;  // attend_source(problem), where it is loaded already
};

// Must not outlive the Gpu and the FloorReader.
class BenchSets {
 public:
  // Allocates, fills and computes what every copy's out must be.
  static Result<std::unique_ptr<BenchSets>> place(Gpu& gpu, const FloorReader& reader,
                                                  const SetsPlan& plan);

  splitkv_tensors tensors(int64_t set) const;
  splitkv_args args(int64_t set) const;  // without scratch and state
  FloorRange floor_range(int64_t kv_bytes) const;
  int64_t sets() const { return plan_.sets; }
  bool is_expected() const { return plan_.expect; }

  Outcome poison_outs() const;
  // The greatest relative L2 error of a row of out, over all copies; infinity where one holds
  // anything that is no number.
  Result<double> worst_error() const;

 private:
  BenchSets(Gpu& gpu, const FloorReader& reader, const SetsPlan& plan);
  Outcome allocate();
  Outcome fill_kv() const;
  Outcome fill_small() const;
  Outcome expect();
  std::vector<int32_t> page_tables() const;
  char* copy(int64_t set) const { return static_cast<char*>(kv_.data()) + set * shape_.copy_bytes; }
  int64_t rows() const { return int64_t(plan_.kv_len.size()) * plan_.problem.query_len; }

  Gpu& gpu_;
  const FloorReader& reader_;
  SetsPlan plan_;
  KvShape shape_;
  int64_t q_bytes_ = 0, out_bytes_ = 0, expected_bytes_ = 0;  // of a copy
  GpuModule module_;
  BenchExtras extras_;
  Buffer kv_, q_, out_, expected_, kv_len_, tables_, k_scale_, v_scale_, compared_;
};

}  // namespace splitkv::tool
