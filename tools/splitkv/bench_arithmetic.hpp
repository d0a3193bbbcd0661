// The rules of the benchmark that need no device: how many copies rotate, how long a graph is, when
// a floor is one that cannot be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace splitkv::tool {

struct Rotation {
  int64_t sets = 1;      // copies of K, V, q and out that launches go through in turn
  int64_t launches = 1;  // of one graph; a multiple of sets
  bool cold = true;      // no launch finds its KV in L2; false where memory holds too few copies

  bool operator==(const Rotation&) const = default;
};

struct RotationFacts {
  int64_t kv_bytes = 0;   // that one launch reads
  int64_t set_bytes = 0;  // that one copy takes in memory
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;  // that all copies may take
  double bytes_per_us = 0;   // about what the device reads
};

// Copies of at least 3 x L2 together, and at least two unless one is that large; as many as memory
// holds, and at least one. Launches of a graph: at least 20 (8 from 1 GB up), and so many that
// they take about half a millisecond, beside which the two events vanish.
Rotation rotation_of(const RotationFacts& facts);

// A read cannot be faster than the fastest read: what is wrong with a floor that lies more than 2 %
// below the one handed for the same bytes on the same card, or nothing. `step_us` is the last digit
// the handed floor was written with; half of it is granted for its rounding.
std::optional<std::string> impossible_floor(double measured_us, double handed_us, double step_us);

}  // namespace splitkv::tool
