// Target: the machine a kernel is compiled for, as facts. Nothing here asks a device; the runtime
// fills these fields from the driver or from the host's cpuid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv {

enum class TargetKind { cuda, cpu };

struct Target {
  TargetKind kind = TargetKind::cuda;
  // cuda: "sm_90a" and the like. cpu: "host", or an LLVM cpu name such as "x86-64-v3".
  std::string arch;

  // cuda
  int sm_count = 0;
  int64_t smem_per_block_bytes = 0;  // with the opt-in attribute set
  int64_t smem_per_sm_bytes = 0;
  int registers_per_sm = 0;
  int max_threads_per_sm = 0;
  int max_blocks_per_sm = 0;
  int64_t l2_bytes = 0;
  double read_gb_per_s = 0;  // sustained plain read of device memory, for the cost model

  // cpu
  int vector_bits = 0;  // 128, 256 or 512
  int threads = 0;

  bool operator==(const Target&) const = default;
};

// "cuda:sm_90a": facts of a known architecture's largest common part.
// "cpu:x86-64-v3" (vector_bits from the name) or "cpu:x86-64-v3:128" (overridden).
// "cpu" alone needs the host's cpuid and is resolved by the runtime, not here.
Result<Target> parse_target(std::string_view text);
std::string print(const Target& target);

// The first compute capability with clusters and programmatic launches.
constexpr int kFirstWithClusters = 90;

// 90 for "sm_90a", whatever its letter; 0 for the CPU.
int compute_capability(const Target& target);

// The architectures of which facts are held, oldest first: sm_80, sm_86, sm_89, sm_90a, ...
const std::vector<Target>& known_cuda_targets();

}  // namespace splitkv
