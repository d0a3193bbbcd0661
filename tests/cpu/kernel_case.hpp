// One attention call on the CPU from text forms: inputs with everything outside a row's keys
// poisoned, the emitted kernels run block by block on this thread, and a plain two-pass fp64 answer
// beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "runtime/cpu/cpu_module.hpp"

namespace splitkv::test {

// A (query, key) pair of a case, for the user's expressions.
struct Pair {
  int batch = 0, head = 0;
  int64_t query_pos = 0, key_pos = 0, kv_len = 0;  // kv_len: of all shards
  std::vector<double> params;
};

struct KernelCase {
  std::string problem;
  std::string schedule;
  std::string target = "cpu";
  std::vector<int> kv_lens = {37, 0, 1, 130};
  double q_size = 1.0;        // inputs are uniform in [-size, size]
  int threads = 1;            // 1: blocks in turn, the last first
  bool page_offsets = false;  // paged: an array of offsets in place of a 2-D table

  int kv_len_bytes = 4;         // 0: one host value, kv_lens[0] for every row
  std::vector<int> kv_begins;   // empty: null
  std::vector<int> q_offsets;   // empty: null; else batch + 1 of them
  int query_rows = 0;           // with q_offsets: token rows of out
  std::vector<int> total_lens;  // strided positions
  int pos0 = 0, pos_step = 1;   // strided positions
  std::vector<float> sinks;     // empty: small random ones
  std::function<double(double score, const Pair&)> score;  // what score= says
  std::function<bool(const Pair&)> where;                  // what where= says
  std::vector<std::pair<int, int>> bad_pages;  // checked: (row, slot) that hold a wild id
  int64_t kv_capacity = 0;                     // checked
  bool with_errors = true;                     // checked: there is a record
};

// Row i is token row i of out (batch row * query_len + query without q_offsets). NaN stands for
// what no row owns: it must not be written.
struct Answer {
  std::vector<double> out;  // [token rows, q_heads, dim_v]
  std::vector<double> lse;  // [token rows, q_heads]; in the problem's base; empty without
};

struct CaseOutcome {
  Answer expected, actual;
  double out_error = 0;  // largest relative L2 of a row
  double lse_error = 0;  // largest difference over the tolerance of the types
  int64_t partials = 0;  // slots that hold at least one finite statistic
  std::string fault;     // empty, or what broke besides numbers: a canary, a counter, an empty row
  ErrorRecord errors;
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
