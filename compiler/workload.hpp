// Workload: what the caller expects to run. Hints that choose a schedule, never limits: the true
// lengths live on the device.
#pragma once

#include <cstdint>

namespace splitkv {

struct Workload {
  int64_t batch = 1;
  int64_t kv_len = 4096;    // longest row, in tokens
  int64_t kv_len_mean = 0;  // of all rows: tells equal lengths from ragged ones; 0: not known

  bool operator==(const Workload&) const = default;
};

}  // namespace splitkv
