// One attention call on the CPU from text forms: inputs with everything outside a row's keys
// poisoned, the emitted kernels run block by block on this thread, and a plain two-pass fp64 answer
// beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "runtime/cpu/cpu_module.hpp"

namespace splitkv::test {

struct KernelCase {
  std::string problem;
  std::string schedule;
  std::string target = "cpu";
  std::vector<int> kv_lens = {37, 0, 1, 130};
  double q_size = 1.0;        // inputs are uniform in [-size, size]
  int threads = 1;            // 1: blocks in turn, the last first
  bool page_offsets = false;  // paged: an array of offsets in place of a 2-D table
};

struct Answer {
  std::vector<double> out;  // [batch, q_heads, dim_v]
  std::vector<double> lse;  // [batch, q_heads]; in the problem's base; empty without
};

struct CaseOutcome {
  Answer expected, actual;
  double out_error = 0;  // largest relative L2 of a row
  double lse_error = 0;  // largest difference over max(1e-5, 4 ulp of fp32)
  int64_t partials = 0;  // slots that hold at least one finite statistic
  std::string fault;     // empty, or what broke besides numbers: a canary, a counter, an empty row
};

// Memory that ends where an unreadable page begins.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  void* data_ = nullptr;
};

// Asserts (throws) where a text does not parse or does not verify or does not compile.
struct CompiledCase {
  Problem problem;
  Schedule schedule;
  Target target;
  std::shared_ptr<const CpuModule> module;
};
CompiledCase compile_case(const KernelCase& test);
CaseOutcome run_case(const KernelCase& test);
CaseOutcome run_case(const KernelCase& test, const CompiledCase& compiled);

// Runs the whole case and expects the accuracy contract of the out type, or `tolerance` where one
// is given.
void expect_right(const KernelCase& test, double tolerance = 0);

}  // namespace splitkv::test
