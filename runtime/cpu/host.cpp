#include "runtime/cpu/host.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace splitkv {
namespace {

// 256 stands for AVX2 with FMA and F16C, which the emitters rely on together; 512 for x86-64-v4.
int host_vector_bits() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_256 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                       __builtin_cpu_supports("f16c");
  const bool has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_256 && has_512) return 512;
  if (has_256) return 256;
#endif
  return 128;
}

// A psABI level is a promise about instructions that can be held against this machine. What other
// cpu names imply only LLVM knows, and running their code here could end the process.
bool is_known(std::string_view arch) {
  return arch == "host" || arch == "x86-64" || arch == "x86-64-v2" || arch == "x86-64-v3" ||
         arch == "x86-64-v4";
}

bool runs_here(std::string_view arch) {
  if (arch == "x86-64-v3") return host_vector_bits() >= 256;
  if (arch == "x86-64-v4") return host_vector_bits() >= 512;
  return true;
}

}  // namespace

int usable_threads() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

Result<Target> resolve_cpu_target(std::string_view text, int threads) {
  Target target;
  if (text == "cpu" || text == "cpu:host") {
    target.kind = TargetKind::cpu;
    target.arch = "host";
    target.vector_bits = host_vector_bits();
  } else {
    Result<Target> parsed = parse_target(text);
    if (!parsed) return parsed.error();
    target = *parsed;
    if (target.kind != TargetKind::cpu) {
      return invalid_argument("target=" + std::string(text) + " is no CPU; cpu would fit");
    }
    if (!is_known(target.arch)) {
      return invalid_argument("target=" + std::string(text) +
                              " is not known to run here; cpu, cpu:x86-64-v2, cpu:x86-64-v3 or "
                              "cpu:x86-64-v4 would fit");
    }
    if (!runs_here(target.arch)) {
      return invalid_argument("target=" + std::string(text) +
                              ": this machine lacks instructions of that level; cpu would fit");
    }
  }
  target.threads = threads > 0 ? threads : usable_threads();
  return target;
}

}  // namespace splitkv
