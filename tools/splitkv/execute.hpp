// One problem on one device: prepare, place, run several times, bring the result back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::tool {

struct ExecutePlan {
  std::string device;    // "cpu", "cpu:NAME" or "cuda:N"
  std::string schedule;  // words, or empty
  int repeat = 1;        // timed runs after one that is not timed
  uint64_t seed = 0;     // of the page shuffle
};

struct Execution {
  std::string target, problem, schedule, why;  // as the kernel tells them
  std::string origin;                          // of the code: "memory", "disk" or "compiled"
  double disk_ms = 0;
  double compile_ms = 0;
  int registers_split = 0, registers_reduce = 0;
  int local_bytes_split = 0, local_bytes_reduce = 0;
  size_t module_bytes = 0;
  size_t scratch_bytes = 0, state_bytes = 0;
  std::vector<double> run_ms;  // in the order they ran
  std::string clock;
  // The bits of out and lse were the same after every run.
  bool repeatable = true;
  // Token rows are those of Inputs: [batch, query_len], or [query_rows] where rows are ragged.
  std::vector<float> out;  // [token rows, q_heads, dim_v], the exact values of out_dtype
  // [token rows, q_heads] in the problem's base: the log-sum-exp, or that of the partial where
  // out=partial; empty when there is neither.
  std::vector<float> lse;
  std::vector<float> partial_m, partial_l;  // out=partial in the form mlo; else empty
};

double median(std::vector<double> values);

// Prepares in `runtime`. out, lse and scratch are poisoned before every run. Fails where a run
// wrote outside its rows, or a checked kernel reports a fault.
Result<Execution> execute(Runtime& runtime, const ExecutePlan& plan, const Problem& problem,
                          const Inputs& inputs);

}  // namespace splitkv::tool
