#include "compiler/target.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace splitkv {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * 1024;

struct CudaFacts {
  const char* arch;
  int sm_count;
  int smem_per_block_kib, smem_per_sm_kib;
  int max_threads_per_sm, max_blocks_per_sm;
  int l2_mib;
  double read_gb_per_s;
};

// Shared memory, threads and blocks: the CUDA C++ Programming Guide's table of technical
// specifications per compute capability. SM counts, L2 and bandwidth: the vendor's data of the
// largest common part (A100 80 GB, RTX A6000, L40S, H200, B200, B300, RTX PRO 6000 Blackwell);
// bandwidth is what a plain read sustains: measured for sm_90a, elsewhere about 0.9 of the data
// sheet's figure.
constexpr CudaFacts kCudaFacts[] = {
    {"sm_80", 108, 163, 164, 2048, 32, 40, 1800},   //
    {"sm_86", 84, 99, 100, 1536, 16, 6, 690},       //
    {"sm_89", 142, 99, 100, 1536, 24, 96, 780},     //
    {"sm_90a", 132, 227, 228, 2048, 32, 50, 4700},  //
    {"sm_100a", 148, 227, 228, 2048, 32, 126, 7200},
    {"sm_103a", 148, 227, 228, 2048, 32, 126, 7200},
    {"sm_120a", 188, 99, 100, 1536, 24, 128, 1600},
};

Target cuda_target(const CudaFacts& facts) {
  Target target;
  target.kind = TargetKind::cuda;
  target.arch = facts.arch;
  target.sm_count = facts.sm_count;
  target.smem_per_block_bytes = facts.smem_per_block_kib * kKiB;
  target.smem_per_sm_bytes = facts.smem_per_sm_kib * kKiB;
  target.registers_per_sm = 65536;  // the same on every architecture listed
  target.max_threads_per_sm = facts.max_threads_per_sm;
  target.max_blocks_per_sm = facts.max_blocks_per_sm;
  target.l2_bytes = facts.l2_mib * kMiB;
  target.read_gb_per_s = facts.read_gb_per_s;
  return target;
}

Result<Target> parse_cuda(std::string_view arch) {
  std::vector<std::string_view> known;
  for (const Target& target : known_cuda_targets()) {
    if (target.arch == arch) return target;
    known.push_back(target.arch);
  }
  return invalid_argument(
      fmt::format("target=cuda:{}: no facts are held of this architecture; cuda:{} would work",
                  arch, fmt::join(known, ", cuda:")));
}

// The psABI levels name a vector width; of other cpu names it is not known here. 0: unknown.
int vector_bits_of_cpu(std::string_view name) {
  if (name == "x86-64" || name == "x86-64-v2") return 128;
  if (name == "x86-64-v3") return 256;
  if (name == "x86-64-v4") return 512;
  return 0;
}

Result<Target> parse_cpu(std::string_view text) {
  Target target;
  target.kind = TargetKind::cpu;
  target.threads = 1;
  const size_t colon = text.find(':');
  target.arch = std::string(text.substr(0, colon));
  target.vector_bits = vector_bits_of_cpu(target.arch);
  if (target.arch.empty())
    return invalid_argument("target=cpu: a cpu name is missing; cpu:x86-64-v3 would work");
  if (colon != std::string_view::npos) {
    const std::string_view bits = text.substr(colon + 1);
    if (bits != "128" && bits != "256" && bits != "512")
      return invalid_argument(fmt::format(
          "target=cpu:{}: the vector width {} is not a number of bits known here; cpu:{}:128, :256 "
          "or :512 would work",
          text, bits.empty() ? "\"\"" : bits, target.arch));
    std::from_chars(bits.data(), bits.data() + bits.size(), target.vector_bits);
  }
  if (target.vector_bits == 0)
    return invalid_argument(fmt::format(
        "target=cpu:{}: the vector width of this cpu is not known here; cpu:{}:256 would "
        "work, as would cpu:x86-64-v2, cpu:x86-64-v3, cpu:x86-64-v4",
        text, target.arch));
  return target;
}

}  // namespace

const std::vector<Target>& known_cuda_targets() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> list;
    for (const CudaFacts& facts : kCudaFacts) list.push_back(cuda_target(facts));
    return list;
  }();
  return targets;
}

int compute_capability(const Target& target) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  if (target.kind != TargetKind::cuda || !target.arch.starts_with(kPrefix)) return 0;
  const char* end = target.arch.data() + target.arch.size();
  std::from_chars(target.arch.data() + kPrefix.size(), end, number);
  return number;
}

Result<Target> parse_target(std::string_view text) {
  if (text.starts_with("cuda:")) return parse_cuda(text.substr(5));
  if (text.starts_with("cpu:")) return parse_cpu(text.substr(4));
  if (text == "cpu")
    return invalid_argument(
        "target=cpu: the host's features are not looked up here; cpu:x86-64-v3 or cpu:host:256 "
        "would "
        "work");
  return invalid_argument(fmt::format(
      "target={}: not a target; cuda:ARCH (cuda:sm_90a) or cpu:NAME (cpu:x86-64-v3) would "
      "work",
      text));
}

std::string print(const Target& target) {
  if (target.kind == TargetKind::cuda) return "cuda:" + target.arch;
  if (target.vector_bits == vector_bits_of_cpu(target.arch)) return "cpu:" + target.arch;
  return fmt::format("cpu:{}:{}", target.arch, target.vector_bits);
}

}  // namespace splitkv
