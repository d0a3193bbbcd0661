// `splitkv explain`: where the time of a problem, workload and schedule goes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/cost_model.hpp"
#include "compiler/default_schedule.hpp"
#include "compiler/resources.hpp"
#include "compiler/result.hpp"

namespace splitkv::tool {

// What a compiler says of one kernel.
struct KernelResources {
  std::string name;
  int registers = 0;
  int spilled_bytes = 0;  // a thread, stored and loaded
  int stack_bytes = 0;
  int64_t smem_bytes = 0;  // a block

  bool operator==(const KernelResources&) const = default;
};

// A schedule with its predicted time, and its measured one where there is.
struct Weighed {
  std::string kind;  // "fixed, cluster of 8"
  Schedule schedule;
  Cost cost;
  double measured_us = 0;  // 0: not measured
  std::string failure;     // why it could not be measured; or empty
};

struct Explanation {
  Problem problem;
  Target target;
  std::vector<RowGroup> rows;
  std::string why;  // of the schedule
  Weighed chosen;
  std::vector<Weighed> others;  // the least predicted of each other kind, by predicted time
  Resources resources;          // as the model has them
  std::vector<KernelResources> kernels;
  std::string not_compiled;  // why there are none; or empty
  int64_t kv_bytes = 0;
  double measured_floor_us = 0;  // 0: not measured
  std::string floor_method;
  std::string device;  // measured on; or empty
  bool cold = true;    // no measured run found its KV in a cache
};

// "fixed, last_block", "strided, cluster of 4": partition and reduce.
std::string kind_of(const Schedule& schedule);

// How many rows have each length, the shortest first.
std::vector<RowGroup> row_groups(const std::vector<int32_t>& kv_len);

// Everything but what is measured and compiled. The problem verifies on the target.
Result<Explanation> explain(const Problem& problem, const std::vector<int32_t>& kv_len,
                            const Target& target, const std::string& schedule_words);

// The schedules of all kinds of partition and reduce but `kind`, the least predicted of each.
std::vector<Weighed> best_of_kinds(const Problem& problem, const std::vector<RowGroup>& rows,
                                   const Target& target, const std::string& kind);

std::string text_of(const Explanation& explanation);
std::string json_of(const Explanation& explanation);

}  // namespace splitkv::tool
